// The thread's and the CTA's place in the grid, read afresh.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// PTX ISA, "Special registers: %tid, %ctaid". volatile: what is computed from such a read after a
// loop is computed there, and not kept in registers through the loop, as the compiler does with
// threadIdx and blockIdx.
__device__ __forceinline__ int32_t thread_index_x() {
  int32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

__device__ __forceinline__ uint32_t cta_index_x() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

}  // namespace tilefold::ptx
