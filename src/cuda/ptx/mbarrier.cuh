// Transaction barriers in shared memory (PTX ISA 9.7.13.15, mbarrier). A barrier is named by its
// 32-bit shared-memory address.
//
// Phases: a fresh barrier is in phase 0. wait(parity p) returns once the phase with parity p has
// completed, so on a fresh barrier parity 1 passes at once and parity 0 blocks. For the n-th use
// (n = 0, 1, ...) of a buffer the consumer waits for `full` with parity n & 1 and the producer for
// `empty` with parity (n & 1) ^ 1. At most one phase may be outstanding.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// Spins of one wait before it traps: builds for tests turn a hang into an error that way.
#if defined(TILEFOLD_BOUNDED_SPINS)
inline constexpr uint32_t kMbarrierSpinLimit = 4'000'000;
#else
inline constexpr uint32_t kMbarrierSpinLimit = 0;  // no limit
#endif

// One thread initialises; fence_mbarrier_init() and a CTA barrier come before the first use.
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

// Whether the phase with this parity has completed; may suspend the thread for a while first.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Waits until the phase with this parity has completed; acquires what was released into it.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  if constexpr (kMbarrierSpinLimit == 0) {
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
    for (uint32_t spins = 0; !mbarrier_try_wait(barrier, parity); ++spins) {
      if (spins > kMbarrierSpinLimit) asm volatile("trap;");
    }
  }
}

}  // namespace tilefold::ptx
