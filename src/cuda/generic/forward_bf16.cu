// The plain CUDA kernel for bfloat16.
#include "cuda/generic/launch.cuh"

namespace tilefold::generic {

template cudaError_t launch_forward<DType::kBFloat16>(const ForwardProblem&, cudaStream_t);

}  // namespace tilefold::generic
