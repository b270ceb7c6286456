// The compiled forms of the plain CUDA kernel, and their launch.
#include "cuda/generic/forward.h"

#include <algorithm>
#include <limits>

#include "cuda/generic/forward_kernel.cuh"

namespace tilefold::generic {
namespace {

// Up to this many query rows, one row per thread wastes less of the tile than four.
constexpr int64_t kFewRows = 16;

template <DType kDType, int kRowsPerThread>
cudaError_t launch(const ForwardProblem& problem, cudaStream_t stream) {
  constexpr ForwardConfig kConfig{.dtype = kDType, .rows_per_thread = kRowsPerThread};
  const ForwardGrid grid = forward_grid(problem, kConfig.block_m());
  const auto num_ctas =
      static_cast<unsigned>(std::min<int64_t>(grid.num_tiles, std::numeric_limits<int32_t>::max()));
  void* arguments[] = {const_cast<ForwardProblem*>(&problem)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&forward_kernel<kDType, kRowsPerThread>),
                          dim3(num_ctas), dim3(ForwardConfig::kThreads), arguments,
                          kConfig.smem_bytes(), stream);
}

template <DType kDType>
cudaError_t launch_dtype(const ForwardProblem& problem, cudaStream_t stream) {
  return problem.seqlen_q <= kFewRows ? launch<kDType, 1>(problem, stream)
                                      : launch<kDType, 4>(problem, stream);
}

}  // namespace

cudaError_t launch_forward(const ForwardProblem& problem, cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::kFloat32: return launch_dtype<DType::kFloat32>(problem, stream);
    case DType::kFloat16: return launch_dtype<DType::kFloat16>(problem, stream);
    case DType::kBFloat16: return launch_dtype<DType::kBFloat16>(problem, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tilefold::generic
