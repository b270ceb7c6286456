// The program `tilefold`: attention from the command line.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <tilefold/tilefold.hpp>

#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/flags.h"
#include "cli/io/text.h"

namespace tilefold::cli {
namespace {

// Errors are one line, whatever a file's name or a library's sentence holds.
int report(ExitCode code, const std::string& sentence) {
  std::fflush(stdout);
  fmt::print(stderr, "tilefold: {}\n", clean(sentence));
  return static_cast<int>(code);
}

std::string list_of(std::span<const Command> commands) {
  std::string names;
  for (const Command& command : commands) names += (names.empty() ? "" : ", ") + command.name();
  return names;
}

std::string help(std::span<const Command> commands) {
  std::string text =
      "Exact attention, O = softmax(scale Q K^T + mask) V, on the CPU and on NVIDIA GPUs.\n\n"
      "Usage: tilefold COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : commands) {
    text += fmt::format("  {:<10}{}\n", command.name(), command.summary());
  }
  text +=
      "\nOptions:\n  -h, --help  Print this and exit\n  --version   Print the version and exit\n";
  text +=
      "\n`tilefold COMMAND --help` has each command's options and examples. Begin with "
      "`tilefold demo`.\n\n";
  return text + kExitCodesHelp + "\n";
}

// The command that argv names, run; or the program's own options.
void run_command(std::span<Command> commands, std::span<char* const> arguments) {
  if (arguments.empty()) {
    throw UsageError("a command is needed", list_of(commands) + " (see tilefold --help)");
  }
  const std::string_view first = arguments[0];
  if (first == "--help" || first == "-h") return fmt::print("{}", help(commands));
  if (first == "--version") return fmt::print("tilefold {}\n", version());
  for (Command& command : commands) {
    if (command.name() != first) continue;
    try {
      if (!command.parse(arguments.subspan(1))) return fmt::print("{}", command.help());
      return command.run();
    } catch (const UsageError& error) {
      fail(ExitCode::kUsage, "{} (see tilefold {} --help)", error.what(), command.name());
    }
  }
  throw UsageError(fmt::format("'{}'", first),
                   fmt::format("accepted: {} (see tilefold --help)", list_of(commands)));
}

int run(int argc, char** argv) {
  Command commands[] = {make_demo_command(),  make_attend_command(),  make_check_command(),
                        make_bench_command(), make_picture_command(), make_info_command()};
  try {
    run_command(commands, std::span(argv, argc).subspan(argc > 0 ? 1 : 0));
  } catch (const UsageError& error) {
    return report(ExitCode::kUsage, error.what());
  } catch (const Failure& failure) {
    return report(failure.code(), failure.what());
  } catch (const Error& error) {
    return report(ExitCode::kLibraryRefused,
                  fmt::format("{}: {}", tilefold_status_string(error.status()), error.what()));
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kIo, "out of memory");
  }
  // Output that could not be written (a full disk, say) is an error too.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report(ExitCode::kIo, "standard output could not be written");
  }
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace
}  // namespace tilefold::cli

int main(int argc, char** argv) {
  // What run() does not expect ends the program as an error too, not as a crash.
  try {
    return tilefold::cli::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilefold: unexpected error: %s\n", error.what());
  } catch (...) {
    std::fputs("tilefold: unexpected error\n", stderr);
  }
  return static_cast<int>(tilefold::cli::ExitCode::kIo);
}
