// The CPU back end's forward pass, and the choice of its SIMD target.
#pragma once

#include "core/problem.h"
#include "core/status.h"
#include "cpu/forward_plan.h"

namespace tilefold::cpu {

// The target that forward() uses: the best one that the processor supports, or the one forced.
const ForwardTarget& active_target();

// For tests: uses targets[index] from now on (-1: the best again). Not while a call is running.
void force_target(int index);

tilefold_status forward(const ForwardProblem& problem);

}  // namespace tilefold::cpu
