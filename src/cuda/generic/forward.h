// What the plain CUDA kernel offers to the host.
#pragma once

#include <cuda_runtime_api.h>

#include "core/problem.h"

namespace tilefold::generic {

// Enqueues the kernel on `stream` of the current device.
cudaError_t launch_forward(const ForwardProblem& problem, cudaStream_t stream);

}  // namespace tilefold::generic
