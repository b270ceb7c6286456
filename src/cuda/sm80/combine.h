// The second pass of a forward call whose K and V were split over CTAs.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm80/config.h"
#include "cuda/sm80/params.h"

namespace tilefold::sm80 {

// Enqueues the merging of params.grid.num_splits partial results into params.o and params.lse.
cudaError_t launch_combine(DType dtype, const ForwardParams& params, cudaStream_t stream);

}  // namespace tilefold::sm80
