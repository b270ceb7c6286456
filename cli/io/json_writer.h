// JSON as text, for what this program writes.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilefold::cli {

/// `text` (UTF-8) as a JSON string, quotes included.
std::string json_string(std::string_view text);

/// Writes an object member by member, indented by two spaces:
///   json.field("version", "0.1.0"); json.begin_list("devices"); json.begin_object(); ...
class JsonWriter {
 public:
  JsonWriter() { open('{'); }

  void field(std::string_view key, std::string_view value) { member(key, json_string(value)); }
  void field(std::string_view key, const char* value) { field(key, std::string_view(value)); }
  void field(std::string_view key, bool value) { member(key, value ? "true" : "false"); }
  void field(std::string_view key, std::integral auto value) { member(key, std::to_string(value)); }
  /// The shortest text that reads back as `value`; null if it is not finite.
  void field(std::string_view key, double value);

  void begin_object(std::string_view key) { begin_entry(key), open('{'); }
  void begin_list(std::string_view key) { begin_entry(key), open('['); }
  /// An object in a list.
  void begin_object() { begin_entry({}), open('{'); }
  /// Ends what was begun last.
  void end();
  /// Ends everything; the whole text, with a line end.
  std::string finish();

 private:
  void open(char bracket);
  void begin_entry(std::string_view key);
  void member(std::string_view key, std::string_view value);

  std::string text_;
  std::string closing_;  // the brackets that are open, outermost first
  bool empty_ = true;    // nothing stands yet in the innermost
};

}  // namespace tilefold::cli
