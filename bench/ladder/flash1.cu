// Rung "flash1", FlashAttention-1's schedule (Dao et al. 2022, Algorithm 1): nothing of size N x N
// is stored any more. The outer loop runs over K/V tiles, the inner one over Q tiles; O and the
// statistics (m, l) of every row live in global memory, and are read, corrected and written back in
// every round. A CTA owns one head, so the GPU is full only when there are many. The four warps
// split the keys of a tile ("split-K"), so every round ends with a sum over warps through shared
// memory.
#include "ladder.h"
#include "tile.cuh"

namespace tilefold::ladder {
namespace {

constexpr int kRoundM = kRowsPerWarp;  // query rows of a round: each warp takes all of them

template <int kHeadDim>
constexpr int kRoundN = kHeadDim == 64 ? 128 : 64;  // keys of a tile, a quarter to each warp

// The CTA's shared memory, in bytes from its start.
template <int kHeadDim>
struct Memory {
  static constexpr int kQ = 0;
  static constexpr int kK = kQ + kRoundM * kHeadDim * 2;
  static constexpr int kV = kK + kRoundN<kHeadDim> * kHeadDim * 2;
  static constexpr int kPartial = kV + kRoundN<kHeadDim> * kHeadDim * 2;  // [warp, row, column]
  static constexpr int kPartialPitch = kHeadDim + 8;  // keeps the rows of a fragment in other banks
  static constexpr int kMax = kPartial + kWarps * kRoundM * kPartialPitch * 4;  // [warp, row]
  static constexpr int kSum = kMax + kWarps * kRoundM * 4;                      // [warp, row]
  static constexpr int kBytes = kSum + kWarps * kRoundM * 4;
};

template <int kHeadDim>
__global__ __launch_bounds__(kThreads) void flash1_kernel(const __grid_constant__ Problem problem) {
  using Layout = PlainLayout<kHeadDim>;
  using Smem = Memory<kHeadDim>;
  constexpr int kBlock = kRoundN<kHeadDim>;
  constexpr int kKeysPerWarp = kBlock / kWarps;
  constexpr int kNTiles = kKeysPerWarp / 8;
  unsigned char* const smem = ptx::dynamic_shared_memory();
  const uint32_t sQ = ptx::shared_address(smem + Smem::kQ);
  const uint32_t sK = ptx::shared_address(smem + Smem::kK);
  const uint32_t sV = ptx::shared_address(smem + Smem::kV);
  auto* const partial = reinterpret_cast<float*>(smem + Smem::kPartial);
  auto* const warp_max = reinterpret_cast<float*>(smem + Smem::kMax);
  auto* const warp_sum = reinterpret_cast<float*>(smem + Smem::kSum);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const float scale_log2 = problem.scale * kLog2e;

  const int64_t head_rows = int64_t{blockIdx.x} * problem.seqlen;
  const uint16_t* const gQ = problem.q + head_rows * kHeadDim;
  const uint16_t* const gK = problem.k + head_rows * kHeadDim;
  const uint16_t* const gV = problem.v + head_rows * kHeadDim;
  // The state between rounds: O normalised, m, l.
  const int64_t num_rows = int64_t{problem.num_heads} * problem.seqlen;
  float* const gO = static_cast<float*>(problem.workspace) + head_rows * kHeadDim;
  float* const gMax = static_cast<float*>(problem.workspace) + num_rows * kHeadDim + head_rows;
  float* const gSum = gMax + num_rows;

  for (int n_start = 0; n_start < problem.seqlen; n_start += kBlock) {
    const bool first_round = n_start == 0;
    const bool last_round = n_start + kBlock == problem.seqlen;
    ptx::barrier_sync_cta();  // the last round's readers of sK and sV are done
    copy_tile<kBlock, kHeadDim, Layout>(sK, gK + int64_t{n_start} * kHeadDim, kHeadDim);
    copy_tile<kBlock, kHeadDim, Layout>(sV, gV + int64_t{n_start} * kHeadDim, kHeadDim);
    for (int m_start = 0; m_start < problem.seqlen; m_start += kRoundM) {
      copy_tile<kRoundM, kHeadDim, Layout>(sQ, gQ + int64_t{m_start} * kHeadDim, kHeadDim);
      ptx::barrier_sync_cta();  // sQ, sK and sV are written

      // S for this warp's keys, and its row maxima.
      float rS[kMTiles][kNTiles][4];
      compute_scores<kHeadDim, kNTiles, Layout, Layout>(rS, sQ, 0, sK, warp * kKeysPerWarp);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float maximum = -FLT_MAX;
#pragma unroll
          for (int n = 0; n < kNTiles; ++n) {
            maximum =
                ptx::max_f32(maximum, ptx::max_f32(rS[m][n][2 * half], rS[m][n][2 * half + 1]));
          }
          maximum = row_all_max(maximum);
          if (lane % 4 == 0) warp_max[warp * kRoundM + 16 * m + 8 * half + lane / 4] = maximum;
        }
      }
      ptx::barrier_sync_cta();  // every warp's maxima are there

      // P relative to the tile's maximum, its row sums, and this warp's part of P V.
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = 16 * m + 8 * half + lane / 4;
          float maximum = warp_max[row];
#pragma unroll
          for (int w = 1; w < kWarps; ++w) {
            maximum = ptx::max_f32(maximum, warp_max[w * kRoundM + row]);
          }
          float sum = 0.0f;
#pragma unroll
          for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
            for (int c = 2 * half; c < 2 * half + 2; ++c) {
              rS[m][n][c] = ptx::ex2_approx_ftz((rS[m][n][c] - maximum) * scale_log2);
              sum += rS[m][n][c];
            }
          }
          sum = row_all_sum(sum);
          if (lane % 4 == 0) warp_sum[warp * kRoundM + row] = sum;
        }
      }
      float rO[kMTiles][kHeadDim / 8][4] = {};
      accumulate_output<kHeadDim, kNTiles, Layout>(rO, rS, sV, warp * kKeysPerWarp);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row = 16 * m + 8 * half + lane / 4;
            *reinterpret_cast<float2*>(partial + (warp * kRoundM + row) * Smem::kPartialPitch +
                                       8 * n + 2 * (lane % 4)) =
                make_float2(rO[m][n][2 * half], rO[m][n][2 * half + 1]);
          }
        }
      }
      ptx::barrier_sync_cta();  // the parts of all warps are there

      // Algorithm 1, lines 11-13: the sum over warps joins what global memory holds.
      constexpr int kThreadsPerRow = kThreads / kRoundM;
      const int row = threadIdx.x / kThreadsPerRow;
      const int64_t at = m_start + row;
      float tile_max = warp_max[row];
      float tile_sum = warp_sum[row];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) {
        tile_max = ptx::max_f32(tile_max, warp_max[w * kRoundM + row]);
        tile_sum += warp_sum[w * kRoundM + row];
      }
      const float old_max = first_round ? -FLT_MAX : gMax[at];
      const float old_sum = first_round ? 0.0f : gSum[at];
      const float new_max = ptx::max_f32(old_max, tile_max);
      const float old_weight = old_sum * ptx::ex2_approx_ftz((old_max - new_max) * scale_log2);
      const float tile_weight = ptx::ex2_approx_ftz((tile_max - new_max) * scale_log2);
      const float new_sum = old_weight + tile_weight * tile_sum;
      const float inverse = 1.0f / new_sum;
      for (int column = 2 * (threadIdx.x % kThreadsPerRow); column < kHeadDim;
           column += 2 * kThreadsPerRow) {
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const float2 part = *reinterpret_cast<const float2*>(
              partial + (w * kRoundM + row) * Smem::kPartialPitch + column);
          sum.x += part.x;
          sum.y += part.y;
        }
        const float2 old = first_round
                               ? make_float2(0.0f, 0.0f)
                               : *reinterpret_cast<const float2*>(gO + at * kHeadDim + column);
        const float value[2] = {(old_weight * old.x + tile_weight * sum.x) * inverse,
                                (old_weight * old.y + tile_weight * sum.y) * inverse};
        if (last_round) {
          *reinterpret_cast<uint32_t*>(problem.o + (head_rows + at) * kHeadDim + column) =
              ptx::cvt_f16x2(value[0], value[1]);
        } else {
          ptx::st_global_f32_v2(gO + at * kHeadDim + column, value[0], value[1]);
        }
      }
      ptx::sync_warp();  // the row's other threads have read the old m and l
      if (threadIdx.x % kThreadsPerRow == 0) {
        gMax[at] = new_max;
        gSum[at] = new_sum;
        if (last_round) {
          problem.lse[head_rows + at] =
              new_max * problem.scale + ptx::lg2_approx_ftz(new_sum) * kLn2;
        }
      }
      ptx::barrier_sync_cta();  // the round's readers of shared memory are done
    }
  }
}

template <int kHeadDim>
cudaError_t run(const Problem& problem, cudaStream_t stream) {
  return launch(&flash1_kernel<kHeadDim>, dim3(static_cast<unsigned>(problem.num_heads)),
                Memory<kHeadDim>::kBytes, stream, problem);
}

}  // namespace

size_t flash1_workspace_bytes(const Problem& problem) {
  return size_t{4} * problem.num_heads * problem.seqlen * (problem.head_dim + 2);
}

cudaError_t run_flash1(const Problem& problem, cudaStream_t stream) {
  return problem.head_dim == 64 ? run<64>(problem, stream) : run<128>(problem, stream);
}

}  // namespace tilefold::ladder
