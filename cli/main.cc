// The program `tilefold`: attention from the command line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <tilefold/tilefold.hpp>

#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/flags.h"

namespace tilefold::cli {
namespace {

// Errors are one line, whatever a file's name or a library's sentence holds.
int report(ExitCode code, std::string sentence) {
  for (char& c : sentence) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fflush(stdout);
  fmt::print(stderr, "tilefold: {}\n", sentence);
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Exact attention, O = softmax(scale Q K^T + mask) V, on the CPU and on NVIDIA GPUs.");
  app.name("tilefold");
  app.set_version_flag("--version", std::string("tilefold ") + std::string(version()),
                       "Print the version and exit");
  app.require_subcommand(0, 1);
  app.footer(std::string("`tilefold COMMAND --help` has each command's options and examples. "
                         "Begin with `tilefold demo`.\n\n") +
             kExitCodesHelp);
  add_demo_command(&app);
  add_attend_command(&app);
  add_check_command(&app);
  add_bench_command(&app);
  add_picture_command(&app);
  add_info_command(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error);  // --help, --version
      if (!std::cout.flush()) {
        return report(ExitCode::kIo, "standard output could not be written");
      }
      return static_cast<int>(ExitCode::kOk);
    }
    std::string command = "tilefold";
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    return report(ExitCode::kUsage,
                  fmt::format("{} (see {} --help)", std::string(error.what()), command));
  } catch (const Failure& failure) {
    return report(failure.code(), failure.what());
  } catch (const Error& error) {
    return report(ExitCode::kLibraryRefused,
                  fmt::format("{}: {}", tilefold_status_string(error.status()), error.what()));
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kIo, "out of memory");
  }
  if (app.get_subcommands().empty()) {
    return report(ExitCode::kUsage,
                  "a command is needed: demo, attend, check, bench, picture or "
                  "info (see tilefold --help)");
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
