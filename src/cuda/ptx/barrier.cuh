// Barriers among the warps of a CTA: bar.sync, bar.arrive, bar.red.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

constexpr int kNumNamedBarriers = 16;  // 0 is barrier_sync_cta's

// All threads of the CTA meet; their shared and global writes before it are visible after it. Warps
// may come from different places in the program, which __syncthreads() does not promise.
__device__ __forceinline__ void barrier_sync_cta() { asm volatile("bar.sync 0;" ::: "memory"); }

// `num_threads` (a multiple of 32) threads meet at named barrier `id`. PTX ISA, "Parallel
// synchronization and communication instructions: barrier{.cta}".
__device__ __forceinline__ void barrier_sync(int id, int num_threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(num_threads) : "memory");
}

// Counts as arrived at named barrier `id` and goes on; others wait with barrier_sync. The count is
// that of arrivals and waiters together.
__device__ __forceinline__ void barrier_arrive(int id, int num_threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(num_threads) : "memory");
}

// As barrier_sync; tells all of them whether any one's predicate holds.
__device__ __forceinline__ bool barrier_red_or(int id, int num_threads, bool predicate) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.s32 p, %3, 0;\n"
      "bar.red.or.pred q, %1, %2, p;\n"
      "selp.s32 %0, 1, 0, q;\n"
      "}"
      : "=r"(any)
      : "r"(id), "r"(num_threads), "r"(static_cast<int>(predicate))
      : "memory");
  return any != 0;
}

}  // namespace tilefold::ptx
