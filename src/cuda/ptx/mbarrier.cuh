// Transaction barriers in shared memory (PTX ISA 9.7.13.15, mbarrier). A barrier is named by its
// 32-bit shared-memory address.
//
// Phases: a fresh barrier is in phase 0. wait(parity p) returns once the phase with parity p has
// completed, so on a fresh barrier parity 1 passes at once and parity 0 blocks. For the n-th use
// (n = 0, 1, ...) of a buffer the consumer waits for `full` with parity n & 1 and the producer for
// `empty` with parity (n & 1) ^ 1. At most one phase may be outstanding.
#pragma once

#include <cstdint>

#include "cuda/ptx/wait_limit.h"

namespace tilefold::ptx {

// One thread initialises; fence_mbarrier_init() comes before its own first use, a CTA barrier as
// well before another thread's.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the async proxy (TMA).
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival; releases this thread's earlier accesses to whoever waits.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, and `bytes` that TMA must deliver before the phase completes.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}

// Waits until the phase with this parity has completed; acquires what was released into it. The
// time is watched in PTX: a loop that the compiler sees spills, and serialises the wgmmas around
// it.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  if constexpr (kWaitLimit == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\n"
        "bra again;\n"
        "done:\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        ".reg .u32 start, now;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\n"
        "mov.u32 start, %%globaltimer_hi;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\n"
        "mov.u32 now, %%globaltimer_hi;\n"
        "sub.u32 now, now, start;\n"
        "setp.lt.u32 p, now, %2;\n"
        "@p bra again;\n"
        "trap;\n"
        "done:\n"
        "}" ::"r"(barrier),
        "r"(parity), "n"(kWaitLimit)
        : "memory");
  }
}

}  // namespace tilefold::ptx
