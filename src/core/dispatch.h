// Problem -> kernel: the walk over the table.
#pragma once

#include <string>

#include "core/kernel.h"

namespace tilefold {

struct Choice {
  const KernelRow* row = nullptr;
  const DeviceProperties* device = nullptr;
};

// Picks the row for the problem: `forced` by name if not null, else the one that
// TILEFOLD_FORCE_KERNEL names, else the eligible row of the highest preference (the earlier on a
// tie). Fails with a sentence if there is none.
tilefold_status choose_kernel(const ForwardProblem& problem, const char* forced, Choice* choice);

// The text of tilefold_explain().
tilefold_status explain_choice(const ForwardProblem& problem, const char* forced,
                               std::string* text);

}  // namespace tilefold
