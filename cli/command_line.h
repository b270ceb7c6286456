// A command's options and arguments: declared once, then parsed and described by --help.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tilefold::cli {

/// A wrong command line: the option, its value, what is accepted.
class UsageError : public std::runtime_error {
 public:
  UsageError(std::string_view option, std::string_view sentence)
      : std::runtime_error(std::string(option) + ": " + std::string(sentence)) {}
};

/// One command of the program.
///
/// Options are written `--name value`, `--name=value`, `-n value` or `-nvalue`, as getopt_long
/// takes them; what follows `--` is no option. An option takes the argument after it whatever that
/// begins with (`--window -1,0`), and may be given once, unless it is a list. The pointers given
/// here must outlive parse(), which is not for several threads at once.
class Command {
 public:
  /// \param name    As it is typed.
  /// \param summary One line on what it does.
  Command(std::string name, std::string summary)
      : name_(std::move(name)), summary_(std::move(summary)) {}

  // ---- declared: `names` is "--out" or "-o,--out", `value_name` what help calls the value

  void flag(std::string_view names, bool* on, std::string help);
  void text(std::string_view names, std::string* value, std::string_view value_name,
            std::string help);
  /// A list: the option again, or (`split`) commas, add to it. What it held before is the default.
  void texts(std::string_view names, std::vector<std::string>* values, std::string_view value_name,
             std::string help, bool split);
  /// An integer from `least` to `most`: T is int, int64_t or uint64_t.
  template <typename T>
  void integer(std::string_view names, T* value, T least, T most, const std::string& help);
  void real(std::string_view names, double* value, double least, double most, std::string help);
  /// Any number.
  void real(std::string_view names, std::optional<float>* value, std::string help);
  /// What is no option: `least` to `most` arguments.
  void arguments(std::vector<std::string>* values, std::string_view value_name, size_t least,
                 size_t most, std::string help);

  /// The option last declared must be given.
  void required() { options_.back().required = true; }
  /// The option last declared goes only with `other`, or never with it.
  void needs(std::string_view other) { options_.back().needs = other; }
  void excludes(std::string_view other) { options_.back().excludes = other; }

  /// What --help ends with.
  void footer(std::string text) { footer_ = std::move(text); }
  void runs(std::function<void()> body) { body_ = std::move(body); }

  // ---- used

  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }
  /// Sets what was declared. \return false if --help was among the arguments
  /// \throws UsageError
  bool parse(std::span<char* const> arguments);
  std::string help() const;
  void run() const { body_(); }

 private:
  struct Option {
    std::string short_name;  // "-o", or empty
    std::string name;        // "--out"
    std::string value_name;  // empty: a flag
    std::string help;
    std::function<void(std::string_view)> set;
    bool is_list = false;
    bool required = false;
    std::string needs;
    std::string excludes;
    int times_given = 0;
  };

  Option& declare(std::string_view names, std::string_view value_name, std::string help,
                  std::function<void(std::string_view)> set);
  Option* find(std::string_view name);
  void take_argument(std::string_view text);
  void check_combination();

  std::string name_;
  std::string summary_;
  std::string footer_;
  std::vector<Option> options_;
  std::vector<std::string>* arguments_ = nullptr;
  std::string arguments_name_;
  std::string arguments_help_;
  size_t least_arguments_ = 0;
  size_t most_arguments_ = 0;
  std::function<void()> body_;
};

}  // namespace tilefold::cli
