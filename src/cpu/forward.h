// The CPU back end's forward pass, and the choice of its SIMD target.
#pragma once

#include "core/problem.h"
#include "core/status.h"
#include "cpu/forward_plan.h"

namespace tilefold::cpu {

// The target that serves float32 problems here, and so every problem that no other one serves.
const ForwardTarget& general_target();

// Name of the targets in use, e.g. "AVX2" or "AVX3, AMX_BF16 for 16-bit inputs".
const char* targets_in_use();

// For tests: every problem runs on this target from now on (null: on the best again). Not while a
// call is running. The target must outlive its use.
void force_target(const ForwardTarget* target);

tilefold_status forward(const ForwardProblem& problem);

}  // namespace tilefold::cpu
