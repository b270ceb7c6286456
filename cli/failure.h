// How a command ends: its exit code and the one line that stderr gets.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tilefold::cli {

/// Exit codes; every command's --help lists them.
enum class ExitCode : int {
  kOk = 0,              ///< Done.
  kCheckFailed = 1,     ///< `check` or `demo` found an error beyond its tolerance.
  kUsage = 2,           ///< The command line is wrong.
  kBadInput = 3,        ///< An input file is missing, malformed, or not what the command takes.
  kLibraryRefused = 4,  ///< The library refused the problem; the line is its sentence.
  kIo = 5               ///< Reading or writing failed, or memory could not be had.
};

/// A command's end before its work was done.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tilefold::cli
