// The kernel for matrix tiles, run on a processor without them: the same source over an emulation
// of its six instructions.
#pragma once

#include "cpu/forward_plan.h"

namespace tilefold::cpu_test {

// Null where the emulation is not compiled in for any SIMD target that this processor runs.
const cpu::ForwardTarget* emulated_amx_target();

}  // namespace tilefold::cpu_test
