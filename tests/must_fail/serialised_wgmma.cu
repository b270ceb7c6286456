// Warpgroup matrix products that ptxas serialises: the build of the sm90 rows must not let them
// pass.
#include "cuda/ptx/wgmma.cuh"

using namespace tilefold;

__global__ void products(float* out, uint64_t a, uint64_t b) {
  float rS[32] = {};
  ptx::wgmma_fence();
  ptx::wgmma_ss<64, DType::kFloat16>(rS, a, b, false);
#if MISUSE == 1
  // MISUSE 1: error: ptxas changed how warpgroup matrix products run (C75xx above)
  rS[0] += 1.0f;
#endif
  ptx::wgmma_ss<64, DType::kFloat16>(rS, a + 2, b + 2, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int i = 0; i < 32; ++i) out[i] = rS[i];
}
