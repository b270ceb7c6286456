// The commands of the program: each declares its options and what it does.
#pragma once

#include "cli/command_line.h"

namespace tilefold::cli {

Command make_attend_command();
Command make_picture_command();
Command make_check_command();
Command make_bench_command();
Command make_info_command();
Command make_demo_command();

}  // namespace tilefold::cli
