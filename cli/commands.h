// The commands of the program; each adds itself and runs as its subcommand's callback.
#pragma once

#include <CLI/CLI.hpp>

namespace tilefold::cli {

void add_attend_command(CLI::App* app);
void add_picture_command(CLI::App* app);
void add_check_command(CLI::App* app);
void add_bench_command(CLI::App* app);
void add_info_command(CLI::App* app);
void add_demo_command(CLI::App* app);

}  // namespace tilefold::cli
