// Compiles and launches the merging of split K/V.
#include "cuda/sm80/combine.h"

#include "cuda/sm80/combine_kernel.cuh"

namespace tilefold::sm80 {

cudaError_t launch_combine(DType dtype, const ForwardParams& params, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(params.grid.num_batch_heads) * params.seqlen_q;
  const dim3 grid(static_cast<unsigned>((rows + kCombineWarps - 1) / kCombineWarps));
  const dim3 block(32 * kCombineWarps);
  const void* kernel = dtype == DType::kFloat16
                           ? reinterpret_cast<const void*>(&combine_kernel<DType::kFloat16>)
                           : reinterpret_cast<const void*>(&combine_kernel<DType::kBFloat16>);
  void* arguments[] = {const_cast<ForwardParams*>(&params)};
  return cudaLaunchKernel(kernel, grid, block, arguments, 0, stream);
}

}  // namespace tilefold::sm80
