// Atomic operations on global memory.
#pragma once

#include <cstdint>

#include "cuda/ptx/wait_limit.h"

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

__device__ __forceinline__ void atomic_store_relaxed(uint64_t* address, uint64_t value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

// Releases what this thread wrote before to whoever acquires the value.
__device__ __forceinline__ void atomic_store_release(uint64_t* address, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t atomic_load_acquire(const uint64_t* address) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

// Writes `desired` where there is `expected`; returns what was there.
__device__ __forceinline__ uint64_t atomic_compare_and_swap_relaxed(uint64_t* address,
                                                                    uint64_t expected,
                                                                    uint64_t desired) {
  uint64_t before;
  asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(address), "l"(expected), "l"(desired)
               : "memory");
  return before;
}

// Waits until there is `value`, and acquires it.
__device__ __forceinline__ void atomic_wait_acquire(const uint64_t* address, uint64_t value) {
  if constexpr (kWaitLimit == 0) {
    while (atomic_load_acquire(address) != value) {
    }
  } else {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        ".reg .u32 start, now;\n"
        ".reg .u64 seen;\n"
        "mov.u32 start, %%globaltimer_hi;\n"
        "again:\n"
        "ld.acquire.gpu.global.u64 seen, [%0];\n"
        "setp.eq.u64 p, seen, %1;\n"
        "@p bra done;\n"
        "mov.u32 now, %%globaltimer_hi;\n"
        "sub.u32 now, now, start;\n"
        "setp.lt.u32 p, now, %2;\n"
        "@p bra again;\n"
        "trap;\n"
        "done:\n"
        "}" ::"l"(address),
        "l"(value), "n"(kWaitLimit)
        : "memory");
  }
}

}  // namespace tilefold::ptx
