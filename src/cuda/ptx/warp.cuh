// Exchange and votes inside a warp: shfl.sync, vote.sync, bar.warp.sync.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

constexpr uint32_t kWholeWarp = 0xffffffffu;

// The value of lane `lane ^ mask`. PTX ISA, "shfl.sync", mode bfly. All 32 lanes take part.
__device__ __forceinline__ float shfl_xor(float value, int mask) {
  return __shfl_xor_sync(kWholeWarp, value, mask);
}

// The value of lane `lane`. PTX ISA, "shfl.sync", mode idx. Its result is uniform over the warp,
// and the compiler knows it: warp indices are passed through it so that what follows from them
// lives in uniform registers.
__device__ __forceinline__ int shfl_idx(int value, int lane) {
  return __shfl_sync(kWholeWarp, value, lane);
}

__device__ __forceinline__ float shfl_idx(float value, int lane) {
  return __shfl_sync(kWholeWarp, value, lane);
}

// Whether any lane's predicate holds; uniform. PTX ISA, "vote.sync.any".
__device__ __forceinline__ bool vote_any(bool predicate) {
  return __any_sync(kWholeWarp, predicate) != 0;
}

// Whether every lane's predicate holds; uniform. PTX ISA, "vote.sync.all".
__device__ __forceinline__ bool vote_all(bool predicate) {
  return __all_sync(kWholeWarp, predicate) != 0;
}

// Orders the warp's memory accesses before it with those after it. PTX ISA, "bar.warp.sync".
__device__ __forceinline__ void sync_warp() { __syncwarp(kWholeWarp); }

}  // namespace tilefold::ptx
