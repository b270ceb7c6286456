// Atomic operations on global memory.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// Adds and returns the value before. Relaxed: orders nothing else (PTX ISA 9.7.13.5, atom).
__device__ __forceinline__ uint32_t atomic_add_relaxed(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

__device__ __forceinline__ void atomic_store_relaxed(uint32_t* address, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

}  // namespace tilefold::ptx
