// The plain CUDA kernel for float32.
#include "cuda/generic/launch.cuh"

namespace tilefold::generic {

template cudaError_t launch_forward<DType::kFloat32>(const ForwardProblem&, cudaStream_t);

}  // namespace tilefold::generic
