// Every wrapper of src/cuda/ptx that compute capability 8.0 has, once: compiled for each
// architecture of the build, never run. What a wrapper returns goes to memory, so that nothing is
// left out.
#include "cuda/ptx/atomic.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/scalar.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/warp.cuh"

namespace tilefold::ptx {

__global__ void compile_atomic(uint32_t* out, uint64_t* state) {
  out[1] = atomic_add_relaxed(out, 1);
  atomic_store_relaxed(out + 2, 1);
  atomic_store_relaxed(state, 1);
  atomic_store_release(state, atomic_load_acquire(state));
  atomic_compare_and_swap_relaxed(state, 2, 3);
  atomic_wait_acquire(state, 4);
}

__global__ void compile_barrier(uint32_t* out) {
  barrier_sync_cta();
  barrier_arrive(1, 64);
  barrier_sync(1, 64);
  out[0] = barrier_red_or(2, 32, out[1] != 0);
}

template <DType kDType>
__device__ void use_convert(uint32_t* out, float x) {
  out[0] = cvt_pack<kDType>(x, x + 1);
  const float wide = cvt_f32<kDType>(out[1]);
  const float half = cvt_f32<kDType>(static_cast<uint16_t>(out[2]));
  out[3] = __float_as_uint(wide + half);
}

__global__ void compile_convert(uint32_t* out, float x) {
  use_convert<DType::kFloat16>(out, x);
  use_convert<DType::kBFloat16>(out + 4, x);
  out[8] = cvt_f16x2(x, x) + cvt_bf16x2(x, x);
}

__global__ void compile_cp_async(const char* from, uint32_t bytes) {
  const uint32_t shared = shared_address(dynamic_shared_memory());
  cp_async_16(shared, from);
  cp_async_16_zero_fill(shared + 16, from, bytes);
  cp_async_commit_group();
  cp_async_wait_group<1>();
  cp_async_wait_group<0>();
}

__global__ void compile_global(char* out, const char* in) {
  uint32_t words[4];
  ld_global_v4(words, in);
  st_global_v4(out, words);
  float floats[4];
  ld_global_f32_v4(floats, in);
  st_global_f32(out, ld_global_f32(in) + floats[0]);
  st_global_f32_v2(out + 8, floats[1], floats[2] + floats[3] + ld_global_u16(in));
}

__global__ void compile_ldmatrix(uint32_t* out, uint32_t shared) {
  uint32_t x1[1], x2[2], x4[4], t1[1], t2[2], t4[4];
  ldmatrix_x1(x1, shared);
  ldmatrix_x2(x2, shared);
  ldmatrix_x4(x4, shared);
  ldmatrix_x1_trans(t1, shared);
  ldmatrix_x2_trans(t2, shared);
  ldmatrix_x4_trans(t4, shared);
  out[0] = x1[0] + x2[0] + x2[1] + x4[0] + x4[1] + x4[2] + x4[3];
  out[1] = t1[0] + t2[0] + t2[1] + t4[0] + t4[1] + t4[2] + t4[3];
}

__global__ void compile_math(float* out, uint32_t* bits) {
  out[0] = ex2_approx_ftz(out[1]) + lg2_approx_ftz(out[2]) + rcp_approx_ftz(out[3]);
  out[4] = max_f32(fma_rn(out[5], out[6], out[7]), out[8]);
  bits[0] = fma_rn_x2<DType::kFloat16>(bits[1], bits[2], bits[3]) +
            fma_rn_x2<DType::kBFloat16>(bits[1], bits[2], bits[3]);
}

__global__ void compile_mma(float* out, const uint32_t* in) {
  float d[4] = {};
  const uint32_t a[4] = {in[0], in[1], in[2], in[3]};
  mma_m16n8k16<DType::kFloat16>(d, a, in[4], in[5]);
  mma_m16n8k16<DType::kBFloat16>(d, a, in[4], in[5]);
  mma_m16n8k16_f16(d, a, in[4], in[5]);
  mma_m16n8k16_bf16(d, a, in[4], in[5]);
  for (int i = 0; i < 4; ++i) out[i] = d[i];
}

__global__ void compile_shared(uint32_t* out, uint32_t shared) {
  uint32_t words[4];
  ld_shared_v4(words, shared);
  st_shared_v4(shared + 16, words);
  st_shared_u32(shared, ld_shared_u32(shared + 4));
  st_shared_f32(shared, ld_shared_f32(shared + 4));
  st_shared_u16(shared, static_cast<uint16_t>(out[0]));
  st_global_u16(out, static_cast<uint16_t>(out[0]));
  out[0] = cta_index_x();
  out[1] = static_cast<uint32_t>(thread_index_x());
}

__global__ void compile_warp(float* out, int lane) {
  const float x = shfl_xor(out[0], 1) + shfl_idx(out[1], lane);
  sync_warp();
  out[2] = vote_any(x > 0) && vote_all(x < 1) ? x : static_cast<float>(shfl_idx(lane, 3));
}

}  // namespace tilefold::ptx
