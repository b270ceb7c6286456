// The bulk tensor copy engine (PTX ISA 9.7.9.27, cp.async.bulk.tensor) for maps of rank 4 with
// coordinates {column, row, head, batch} and of rank 5, {column, row, head of the group, group,
// batch}. One thread issues; shared-memory addresses are multiples
// of 1024 bytes for the 128-byte swizzle.
#pragma once

#include <cstdint>

#include "cuda/tensor_map.h"

namespace tilefold::ptx {

// What L2 is to make of the lines that a copy touches: kOnce goes first when room is needed.
enum class CacheUse { kAgain, kOnce };

// The policy of lines used once, an operand of copies (PTX ISA, createpolicy). Made where it is
// used: volatile, or else it takes two registers for the whole kernel.
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Fetches the map itself ahead of its first use.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads a box; its bytes (the full box, also where it reaches past the tensor, at whose either end
// zeros stand) count against the expect_tx of `barrier`.
template <CacheUse kUse = CacheUse::kAgain>
__device__ __forceinline__ void tma_load_4d(uint32_t destination, const TensorMap* map,
                                            uint32_t barrier, int32_t column, int32_t row,
                                            int32_t head, int32_t batch) {
  if constexpr (kUse == CacheUse::kAgain) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch),
        "l"(evict_first_policy())
        : "memory");
  }
}

// Stores a box as part of this thread's current bulk group; what lies past the tensor is left out,
// but no coordinate may be negative (CUDA C++ Programming Guide, "Multi-dimensional arrays").
// Shared memory written by other than TMA needs fence_proxy_async() in the writing threads first.
template <CacheUse kUse = CacheUse::kAgain>
__device__ __forceinline__ void tma_store_4d(const TensorMap* map, uint32_t source, int32_t column,
                                             int32_t row, int32_t head, int32_t batch) {
  if constexpr (kUse == CacheUse::kAgain) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], "
        "[%1];" ::"l"(map),
        "r"(source), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint "
        "[%0, {%2, %3, %4, %5}], [%1], %6;" ::"l"(map),
        "r"(source), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(evict_first_policy())
        : "memory");
  }
}

// The two for maps of rank 5, whose boxes hold rows of several heads of a group.
template <CacheUse kUse>
__device__ __forceinline__ void tma_load_5d(uint32_t destination, const TensorMap* map,
                                            uint32_t barrier, int32_t column, int32_t row,
                                            int32_t head, int32_t group, int32_t batch) {
  static_assert(kUse == CacheUse::kOnce);
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(group), "r"(batch),
      "l"(evict_first_policy())
      : "memory");
}

template <CacheUse kUse>
__device__ __forceinline__ void tma_store_5d(const TensorMap* map, uint32_t source, int32_t column,
                                             int32_t row, int32_t head, int32_t group,
                                             int32_t batch) {
  static_assert(kUse == CacheUse::kOnce);
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group.L2::cache_hint "
      "[%0, {%2, %3, %4, %5, %6}], [%1], %7;" ::"l"(map),
      "r"(source), "r"(column), "r"(row), "r"(head), "r"(group), "r"(batch),
      "l"(evict_first_policy())
      : "memory");
}

// Closes this thread's current bulk group.
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the newest kPending of this thread's bulk groups have been read from shared
// memory, which may then be overwritten.
template <int kPending = 0>
__device__ __forceinline__ void tma_store_wait_read() {
  static_assert(kPending >= 0);
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until all of this thread's bulk groups are done: what they store is in memory.
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders this thread's ordinary accesses to shared memory before later accesses of the async proxy
// (TMA, wgmma) that are reached through a barrier (PTX ISA 9.7.13.4, fence.proxy.async).
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace tilefold::ptx
