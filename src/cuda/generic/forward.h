// What the plain CUDA kernel offers to the host.
#pragma once

#include <cuda_runtime_api.h>

#include "core/problem.h"

namespace tilefold::generic {

// Enqueues the kernel for problems of a dtype on `stream` of the current device. Each dtype is a
// translation unit of its own.
template <DType kDType>
cudaError_t launch_forward(const ForwardProblem& problem, cudaStream_t stream);

extern template cudaError_t launch_forward<DType::kFloat32>(const ForwardProblem&, cudaStream_t);
extern template cudaError_t launch_forward<DType::kFloat16>(const ForwardProblem&, cudaStream_t);
extern template cudaError_t launch_forward<DType::kBFloat16>(const ForwardProblem&, cudaStream_t);

}  // namespace tilefold::generic
