// The ladder: one computation, O = softmax(scale Q K^T) V without a mask, as a series of kernels
// that each add one idea to the one before.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tilefold::ladder {

// float16 tensors [num_heads, seqlen, head_dim], contiguous; batch and heads are one axis.
struct Problem {
  int num_heads = 0;
  int seqlen = 0;    // a multiple of kSeqlenMultiple
  int head_dim = 0;  // 64 or 128
  float scale = 1.0f;
  const uint16_t* q = nullptr;
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
  uint16_t* o = nullptr;
  float* lse = nullptr;       // [num_heads, seqlen]
  void* workspace = nullptr;  // workspace_bytes() of the rung
};

inline constexpr int kSeqlenMultiple = 128;

struct Rung {
  const char* name;
  const char* idea;  // what it adds to the rung before
  size_t (*workspace_bytes)(const Problem& problem);
  cudaError_t (*run)(const Problem& problem, cudaStream_t stream);
};

std::span<const Rung> rungs();

// The rungs, each in the file of its name.
size_t naive_workspace_bytes(const Problem& problem);
cudaError_t run_naive(const Problem& problem, cudaStream_t stream);
size_t flash1_workspace_bytes(const Problem& problem);
cudaError_t run_flash1(const Problem& problem, cudaStream_t stream);
cudaError_t run_flash2(const Problem& problem, cudaStream_t stream);
cudaError_t run_swizzle(const Problem& problem, cudaStream_t stream);
cudaError_t run_pipeline(const Problem& problem, cudaStream_t stream);

}  // namespace tilefold::ladder
