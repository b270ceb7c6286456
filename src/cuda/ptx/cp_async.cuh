// Asynchronous copies from global to shared memory in 16-byte pieces: cp.async.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// PTX ISA, "Data movement and conversion instructions: cp.async". Copies 16 bytes past L1; both
// addresses are 16-byte aligned. Compute capability 8.0.
__device__ __forceinline__ void cp_async_16(uint32_t shared_address, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared_address), "l"(global));
}

// Copies the first `source_bytes` (0 or 16) and fills the rest of the 16 bytes with zeros. With 0
// nothing is read, so the address need not be valid.
__device__ __forceinline__ void cp_async_16_zero_fill(uint32_t shared_address, const void* global,
                                                      uint32_t source_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address), "l"(global), "r"(source_bytes));
}

// Closes the group of this thread's copies since the last commit (a group may be empty).
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits until at most kPending of this thread's newest groups are under way. What they wrote is
// visible to this thread; a barrier makes it visible to others.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  static_assert(kPending >= 0 && kPending < 8);
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

}  // namespace tilefold::ptx
