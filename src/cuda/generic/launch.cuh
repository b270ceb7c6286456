// The launch of the plain CUDA kernel: which of its forms serves a problem.
#pragma once

#include <algorithm>
#include <limits>

#include "cuda/generic/forward.h"
#include "cuda/generic/forward_kernel.cuh"

namespace tilefold::generic {

// Up to this many query rows, one row per thread wastes less of the tile than four.
inline constexpr int64_t kFewRows = 16;

template <DType kDType, int kRowsPerThread, int kSlab>
cudaError_t launch_form(const ForwardProblem& problem, cudaStream_t stream) {
  constexpr ForwardConfig kConfig{
      .dtype = kDType, .rows_per_thread = kRowsPerThread, .slab = kSlab};
  const ForwardGrid grid = forward_grid(problem, kConfig.block_m(), kSlab);
  const auto num_ctas =
      static_cast<unsigned>(std::min<int64_t>(grid.num_tiles, std::numeric_limits<int32_t>::max()));
  void* arguments[] = {const_cast<ForwardProblem*>(&problem)};
  return cudaLaunchKernel(
      reinterpret_cast<const void*>(&forward_kernel<kDType, kRowsPerThread, kSlab>), dim3(num_ctas),
      dim3(ForwardConfig::kThreads), arguments, kConfig.smem_bytes(), stream);
}

template <DType kDType>
cudaError_t launch_forward(const ForwardProblem& problem, cudaStream_t stream) {
  if (problem.seqlen_q <= kFewRows) return launch_form<kDType, 1, 128>(problem, stream);
  return problem.head_dim_v <= 64 ? launch_form<kDType, 4, 64>(problem, stream)
                                  : launch_form<kDType, 4, 128>(problem, stream);
}

}  // namespace tilefold::generic
