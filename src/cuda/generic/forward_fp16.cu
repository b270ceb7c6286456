// The plain CUDA kernel for float16.
#include "cuda/generic/launch.cuh"

namespace tilefold::generic {

template cudaError_t launch_forward<DType::kFloat16>(const ForwardProblem&, cudaStream_t);

}  // namespace tilefold::generic
