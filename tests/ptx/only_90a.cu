// Every wrapper of src/cuda/ptx that exists on compute capability 9.0 alone (sm_90a), once:
// compiled, never run.
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace tilefold::ptx {

__global__ void __maxnreg__(128) compile_setmaxnreg(uint32_t* out) {
  if (threadIdx.x < 128) {
    setmaxnreg_dec<40>();
  } else {
    setmaxnreg_inc<232>();
  }
  out[threadIdx.x] = 1;
}

template <int kN, DType kDType>
__global__ void compile_wgmma(float* out, const uint32_t* in, uint64_t a, uint64_t b) {
  float d[kN / 2] = {};
  const uint32_t rA[4] = {in[0], in[1], in[2], in[3]};
  pin_registers(d);
  wgmma_fence();
  wgmma_ss<kN, kDType>(d, a, b, false);
  wgmma_rs<kN, kDType>(d, rA, b);
  wgmma_commit();
  wgmma_wait<0>();
  pin_registers(d);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) out[i] = d[i];
}

#define TILEFOLD_COMPILE_WGMMA(n)                                                                \
  template __global__ void compile_wgmma<n, DType::kFloat16>(float*, const uint32_t*, uint64_t,  \
                                                             uint64_t);                          \
  template __global__ void compile_wgmma<n, DType::kBFloat16>(float*, const uint32_t*, uint64_t, \
                                                              uint64_t)
TILEFOLD_COMPILE_WGMMA(48);
TILEFOLD_COMPILE_WGMMA(64);
TILEFOLD_COMPILE_WGMMA(80);
TILEFOLD_COMPILE_WGMMA(96);
TILEFOLD_COMPILE_WGMMA(112);
TILEFOLD_COMPILE_WGMMA(128);
TILEFOLD_COMPILE_WGMMA(144);
TILEFOLD_COMPILE_WGMMA(160);
TILEFOLD_COMPILE_WGMMA(176);
TILEFOLD_COMPILE_WGMMA(192);
TILEFOLD_COMPILE_WGMMA(224);
TILEFOLD_COMPILE_WGMMA(256);
#undef TILEFOLD_COMPILE_WGMMA

}  // namespace tilefold::ptx
