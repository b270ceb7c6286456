// Host meaning of src/cuda/ptx/special_registers.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/cuda_builtins.h"

namespace tilefold::ptx {

inline int32_t thread_index_x() { return static_cast<int32_t>(threadIdx.x); }

inline uint32_t cta_index_x() { return blockIdx.x; }

}  // namespace tilefold::ptx
