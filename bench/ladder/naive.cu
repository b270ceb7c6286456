// Rung "naive", the formula as it stands: S = Q K^T, P = softmax(S) and O = P V are a kernel each,
// and S and P travel through global memory. The products already run on tensor cores, tile by tile;
// what it costs is the size of the N x N matrices and their traffic. Bytes per score: S written 4
// and read 4, P written 2 and read 2, 12 in all; the softmax reads its row of S twice more, which
// caches serve or memory does (20).
#include <algorithm>

#include "ladder.h"
#include "tile.cuh"

namespace tilefold::ladder {
namespace {

// Heads are taken in groups, so that S (float32) and P (float16) of a group fit in this much
// memory.
constexpr size_t kWorkspaceLimitBytes = size_t{1} << 31;
constexpr int kSoftmaxThreads = 256;

size_t head_bytes(const Problem& problem) { return size_t{6} * problem.seqlen * problem.seqlen; }

int heads_per_group(const Problem& problem) {
  const size_t fitting = std::max<size_t>(kWorkspaceLimitBytes / head_bytes(problem), 1);
  return static_cast<int>(std::min<size_t>(fitting, problem.num_heads));
}

// S[i, j] = Q[i] . K[j]; a CTA computes kBlockM x kBlockN of them.
template <int kHeadDim>
__global__ __launch_bounds__(kThreads) void scores_kernel(const __grid_constant__ Problem problem,
                                                          float* scores, int first_head) {
  using Layout = PlainLayout<kHeadDim>;
  const uint32_t sQ = ptx::shared_address(ptx::dynamic_shared_memory());
  const uint32_t sK = sQ + kBlockM * kHeadDim * 2;
  const int64_t head = first_head + blockIdx.z;
  const int64_t m_start = int64_t{blockIdx.y} * kBlockM;
  const int64_t n_start = int64_t{blockIdx.x} * kBlockN;
  copy_tile<kBlockM, kHeadDim, Layout>(sQ, problem.q + (head * problem.seqlen + m_start) * kHeadDim,
                                       kHeadDim);
  copy_tile<kBlockN, kHeadDim, Layout>(sK, problem.k + (head * problem.seqlen + n_start) * kHeadDim,
                                       kHeadDim);
  ptx::barrier_sync_cta();  // the tiles are written
  const int warp_row = threadIdx.x / 32 * kRowsPerWarp;
  const int lane = threadIdx.x % 32;
  float rS[kMTiles][kBlockN / 8][4];
  compute_scores<kHeadDim, kBlockN / 8, Layout, Layout>(rS, sQ, warp_row, sK, 0);
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = m_start + warp_row + 16 * m + 8 * half + lane / 4;
      float* to = scores + (int64_t{blockIdx.z} * problem.seqlen + row) * problem.seqlen + n_start;
#pragma unroll
      for (int n = 0; n < kBlockN / 8; ++n) {
        ptx::st_global_f32_v2(to + 8 * n + 2 * (lane % 4), rS[m][n][2 * half],
                              rS[m][n][2 * half + 1]);
      }
    }
  }
}

// The CTA's maximum or sum of a value per thread.
template <typename Combine>
__device__ float reduce(float value, float* scratch, Combine combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = combine(value, ptx::shfl_xor(value, mask));
  ptx::barrier_sync_cta();  // scratch's last readers are done
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  ptx::barrier_sync_cta();  // every warp's part is there
  value = scratch[0];
  for (int warp = 1; warp < kSoftmaxThreads / 32; ++warp) value = combine(value, scratch[warp]);
  return value;
}

// P[i] = softmax(scale S[i]) and LSE, one row a CTA: three sweeps over the row.
__global__ __launch_bounds__(kSoftmaxThreads) void softmax_kernel(
    const __grid_constant__ Problem problem, const float* scores, uint16_t* probabilities,
    int first_head) {
  __shared__ float scratch[kSoftmaxThreads / 32];
  const float scale_log2 = problem.scale * kLog2e;
  const int64_t row = blockIdx.x;
  const float* from = scores + row * problem.seqlen;
  float maximum = -FLT_MAX;
  for (int j = threadIdx.x; j < problem.seqlen; j += kSoftmaxThreads) {
    maximum = ptx::max_f32(maximum, from[j]);
  }
  maximum = reduce(maximum, scratch, [](float a, float b) { return ptx::max_f32(a, b); });
  float sum = 0.0f;
  for (int j = threadIdx.x; j < problem.seqlen; j += kSoftmaxThreads) {
    sum += ptx::ex2_approx_ftz((from[j] - maximum) * scale_log2);
  }
  sum = reduce(sum, scratch, [](float a, float b) { return a + b; });
  const float inverse = 1.0f / sum;
  for (int j = 2 * threadIdx.x; j < problem.seqlen; j += 2 * kSoftmaxThreads) {
    const float p0 = ptx::ex2_approx_ftz((from[j] - maximum) * scale_log2) * inverse;
    const float p1 = ptx::ex2_approx_ftz((from[j + 1] - maximum) * scale_log2) * inverse;
    *reinterpret_cast<uint32_t*>(probabilities + row * problem.seqlen + j) = ptx::cvt_f16x2(p0, p1);
  }
  if (threadIdx.x == 0) {
    problem.lse[int64_t{first_head} * problem.seqlen + row] =
        maximum * problem.scale + ptx::lg2_approx_ftz(sum) * kLn2;
  }
}

// O = P V; a CTA computes kBlockM rows.
template <int kHeadDim>
__global__ __launch_bounds__(kThreads) void output_kernel(const __grid_constant__ Problem problem,
                                                          const uint16_t* probabilities,
                                                          int first_head) {
  using PLayout = PlainLayout<kBlockN>;
  using VLayout = PlainLayout<kHeadDim>;
  const uint32_t sP = ptx::shared_address(ptx::dynamic_shared_memory());
  const uint32_t sV = sP + kBlockM * kBlockN * 2;
  const int64_t head = first_head + blockIdx.y;
  const int64_t m_start = int64_t{blockIdx.x} * kBlockM;
  const int warp_row = threadIdx.x / 32 * kRowsPerWarp;
  const int lane = threadIdx.x % 32;
  const int matrix = lane / 8;
  float rO[kMTiles][kHeadDim / 8][4] = {};
  for (int64_t n_start = 0; n_start < problem.seqlen; n_start += kBlockN) {
    ptx::barrier_sync_cta();  // the readers of the last tiles are done
    copy_tile<kBlockM, kBlockN, PLayout>(
        sP,
        probabilities + (int64_t{blockIdx.y} * problem.seqlen + m_start) * problem.seqlen + n_start,
        problem.seqlen);
    copy_tile<kBlockN, kHeadDim, VLayout>(
        sV, problem.v + (head * problem.seqlen + n_start) * kHeadDim, kHeadDim);
    ptx::barrier_sync_cta();  // the tiles are written
#pragma unroll
    for (int k = 0; k < kBlockN / 16; ++k) {
      uint32_t rP[kMTiles][4];
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        ptx::ldmatrix_x4(rP[m], sP + PLayout::offset(warp_row + 16 * m + matrix % 2 * 8 + lane % 8,
                                                     2 * k + matrix / 2));
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n += 2) {
        uint32_t rV[4];
        ptx::ldmatrix_x4_trans(
            rV, sV + VLayout::offset(16 * k + matrix % 2 * 8 + lane % 8, n + matrix / 2));
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          ptx::mma_m16n8k16_f16(rO[m][n], rP[m], rV[0], rV[1]);
          ptx::mma_m16n8k16_f16(rO[m][n + 1], rP[m], rV[2], rV[3]);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = m_start + warp_row + 16 * m + 8 * half + lane / 4;
      uint16_t* to = problem.o + (head * problem.seqlen + row) * kHeadDim;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        *reinterpret_cast<uint32_t*>(to + 8 * n + 2 * (lane % 4)) =
            ptx::cvt_f16x2(rO[m][n][2 * half], rO[m][n][2 * half + 1]);
      }
    }
  }
}

template <int kHeadDim>
cudaError_t run(const Problem& problem, cudaStream_t stream) {
  const int group = heads_per_group(problem);
  const auto n = static_cast<unsigned>(problem.seqlen);
  auto* scores = static_cast<float*>(problem.workspace);
  auto* probabilities =
      reinterpret_cast<uint16_t*>(scores + size_t{n} * n * static_cast<size_t>(group));
  for (int first = 0; first < problem.num_heads; first += group) {
    const auto heads = static_cast<unsigned>(std::min(group, problem.num_heads - first));
    cudaError_t error = launch(&scores_kernel<kHeadDim>, dim3(n / kBlockN, n / kBlockM, heads),
                               (kBlockM + kBlockN) * kHeadDim * 2, stream, problem, scores, first);
    if (error != cudaSuccess) return error;
    softmax_kernel<<<n * heads, kSoftmaxThreads, 0, stream>>>(problem, scores, probabilities,
                                                              first);
    error = launch(&output_kernel<kHeadDim>, dim3(n / kBlockM, heads),
                   (kBlockM * kBlockN + kBlockN * kHeadDim) * 2, stream, problem,
                   static_cast<const uint16_t*>(probabilities), first);
    if (error != cudaSuccess) return error;
  }
  return cudaGetLastError();
}

}  // namespace

size_t naive_workspace_bytes(const Problem& problem) {
  return head_bytes(problem) * static_cast<size_t>(heads_per_group(problem));
}

cudaError_t run_naive(const Problem& problem, cudaStream_t stream) {
  return problem.head_dim == 64 ? run<64>(problem, stream) : run<128>(problem, stream);
}

}  // namespace tilefold::ladder
