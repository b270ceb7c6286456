// JSON as text, for what this program writes.
#include "cli/io/json_writer.h"

#include <charconv>
#include <cmath>

namespace tilefold::cli {

std::string json_string(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ') {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

void JsonWriter::open(char bracket) {
  text_ += bracket;
  closing_ += bracket == '{' ? '}' : ']';
  empty_ = true;
}

void JsonWriter::begin_entry(std::string_view key) {
  text_ += empty_ ? "\n" : ",\n";
  text_.append(2 * closing_.size(), ' ');
  if (closing_.back() == '}') text_ += json_string(key) + ": ";
  empty_ = false;
}

void JsonWriter::member(std::string_view key, std::string_view value) {
  begin_entry(key);
  text_ += value;
}

void JsonWriter::field(std::string_view key, double value) {
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof(digits), value);
  member(key, std::isfinite(value) ? std::string_view(digits, result.ptr - digits) : "null");
}

void JsonWriter::end() {
  const char bracket = closing_.back();
  closing_.pop_back();
  if (!empty_) {
    text_ += '\n';
    text_.append(2 * closing_.size(), ' ');
  }
  text_ += bracket;
  empty_ = false;
}

std::string JsonWriter::finish() {
  while (!closing_.empty()) end();
  return std::move(text_) + "\n";
}

}  // namespace tilefold::cli
