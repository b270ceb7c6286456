// What the rungs share: tiles in shared memory, and the three products of attention on tensor
// cores.
//
// A warp owns kRowsPerWarp query rows as two m16 tiles. Fragments are those of mma.m16n8k16: lane l
// of a warp holds, of a 16 x 8 accumulator tile, rows l / 4 and l / 4 + 8, columns 2 (l % 4) and
// the next.
#pragma once

#include <cuda_runtime_api.h>

#include <cfloat>
#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/warp.cuh"

namespace tilefold::ladder {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kMTiles = 2;                  // m16 tiles of a warp
inline constexpr int kRowsPerWarp = 16 * kMTiles;  // query rows of a warp
inline constexpr int kBlockM = kWarps * kRowsPerWarp;
inline constexpr int kBlockN = 64;  // keys of a tile
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// Where the 16-byte chunk `chunk` of row `row` lies in a tile of rows of kColumns float16, in
// bytes: rows follow each other. Rows are 128 or 256 bytes long, whole turns of the 32 banks, so
// the eight rows that ldmatrix reads at one chunk begin in the same bank, and the reads go one
// after another.
template <int kColumns>
struct PlainLayout {
  __device__ __forceinline__ static uint32_t offset(int row, int chunk) {
    return static_cast<uint32_t>((row * (kColumns / 8) + chunk) * 16);
  }
};

// Copies a tile of kRows x kColumns float16 from global memory (row_pitch elements from row to row)
// into shared memory. All loads are under way before the first store waits for one.
template <int kRows, int kColumns, class Layout>
__device__ __forceinline__ void copy_tile(uint32_t to, const uint16_t* from, int64_t row_pitch) {
  constexpr int kChunksPerRow = kColumns / 8;
  constexpr int kChunks = kRows * kChunksPerRow / kThreads;
  static_assert(kRows * kChunksPerRow % kThreads == 0);
  constexpr int kBatch = kChunks < 8 ? kChunks : 8;
#pragma unroll
  for (int first = 0; first < kChunks; first += kBatch) {
    uint32_t data[kBatch][4];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = (first + i) * kThreads + static_cast<int>(threadIdx.x);
      ptx::ld_global_v4(data[i], from + at / kChunksPerRow * row_pitch + at % kChunksPerRow * 8);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = (first + i) * kThreads + static_cast<int>(threadIdx.x);
      ptx::st_shared_v4(to + Layout::offset(at / kChunksPerRow, at % kChunksPerRow), data[i]);
    }
  }
}

// rS = Q K^T for the warp's rows [row, row + kRowsPerWarp) of sQ and keys [key, key + 8 kNTiles) of
// sK.
template <int kHeadDim, int kNTiles, class QLayout, class KLayout>
__device__ __forceinline__ void compute_scores(float (&rS)[kMTiles][kNTiles][4], uint32_t sQ,
                                               int row, uint32_t sK, int key) {
  const int lane = threadIdx.x % 32;
  const int matrix = lane / 8;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) rS[m][n][r] = 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t rQ[kMTiles][4];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      ptx::ldmatrix_x4(rQ[m], sQ + QLayout::offset(row + 16 * m + matrix % 2 * 8 + lane % 8,
                                                   2 * k + matrix / 2));
    }
#pragma unroll
    for (int n = 0; n < kNTiles; n += 2) {
      uint32_t rK[4];
      ptx::ldmatrix_x4(
          rK, sK + KLayout::offset(key + 8 * n + matrix / 2 * 8 + lane % 8, 2 * k + matrix % 2));
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        ptx::mma_m16n8k16_f16(rS[m][n], rQ[m], rK[0], rK[1]);
        ptx::mma_m16n8k16_f16(rS[m][n + 1], rQ[m], rK[2], rK[3]);
      }
    }
  }
}

// rO += P V for keys [key, key + 8 kNTiles) of sV. Two accumulator tiles of scores side by side
// are, rounded to float16, the A operand of one k16 step: P never leaves the registers.
template <int kHeadDim, int kNTiles, class Layout>
__device__ __forceinline__ void accumulate_output(float (&rO)[kMTiles][kHeadDim / 8][4],
                                                  const float (&rP)[kMTiles][kNTiles][4],
                                                  uint32_t sV, int key) {
  const int lane = threadIdx.x % 32;
  const int matrix = lane / 8;
#pragma unroll
  for (int k = 0; k < kNTiles / 2; ++k) {
    uint32_t a[kMTiles][4];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      a[m][0] = ptx::cvt_f16x2(rP[m][2 * k][0], rP[m][2 * k][1]);
      a[m][1] = ptx::cvt_f16x2(rP[m][2 * k][2], rP[m][2 * k][3]);
      a[m][2] = ptx::cvt_f16x2(rP[m][2 * k + 1][0], rP[m][2 * k + 1][1]);
      a[m][3] = ptx::cvt_f16x2(rP[m][2 * k + 1][2], rP[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n += 2) {
      uint32_t rV[4];
      ptx::ldmatrix_x4_trans(
          rV, sV + Layout::offset(key + 16 * k + matrix % 2 * 8 + lane % 8, n + matrix / 2));
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        ptx::mma_m16n8k16_f16(rO[m][n], a[m], rV[0], rV[1]);
        ptx::mma_m16n8k16_f16(rO[m][n + 1], a[m], rV[2], rV[3]);
      }
    }
  }
}

// Over the four lanes that hold a row.
__device__ __forceinline__ float row_all_max(float value) {
  value = ptx::max_f32(value, ptx::shfl_xor(value, 1));
  return ptx::max_f32(value, ptx::shfl_xor(value, 2));
}
__device__ __forceinline__ float row_all_sum(float value) {
  value += ptx::shfl_xor(value, 1);
  return value + ptx::shfl_xor(value, 2);
}

// The running state of a warp's rows: row `half` (0: l / 4, 1: l / 4 + 8) of each m16 tile.
template <int kHeadDim>
struct RowState {
  float rO[kMTiles][kHeadDim / 8][4];
  float row_max[kMTiles][2];  // of the scores, unscaled
  float row_sum[kMTiles][2];  // of this lane's columns alone, until the end

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max[m][half] = -FLT_MAX;
        row_sum[m][half] = 0.0f;
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int r = 0; r < 4; ++r) rO[m][n][r] = 0.0f;
      }
    }
  }

  // FA2 Algorithm 1, lines 9-10: scores become probabilities relative to the new maximum; what was
  // summed relative to the old one is scaled to match. Division waits until the end.
  template <int kNTiles>
  __device__ __forceinline__ void online_softmax(float (&rS)[kMTiles][kNTiles][4],
                                                 float scale_log2) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float tile_max = row_max[m][half];
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
          tile_max =
              ptx::max_f32(tile_max, ptx::max_f32(rS[m][n][2 * half], rS[m][n][2 * half + 1]));
        }
        const float new_max = row_all_max(tile_max);
        const float rescale = ptx::ex2_approx_ftz((row_max[m][half] - new_max) * scale_log2);
        row_max[m][half] = new_max;
        float sum = row_sum[m][half] * rescale;
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
          for (int c = 2 * half; c < 2 * half + 2; ++c) {
            rS[m][n][c] =
                ptx::ex2_approx_ftz(ptx::fma_rn(rS[m][n][c], scale_log2, -new_max * scale_log2));
            sum += rS[m][n][c];
          }
        }
        row_sum[m][half] = sum;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          rO[m][n][2 * half] *= rescale;
          rO[m][n][2 * half + 1] *= rescale;
        }
      }
    }
  }

  // Normalises and writes the warp's rows of O and LSE; `o` and `lse` point at its first row.
  __device__ __forceinline__ void write(uint16_t* o, float* lse, float scale) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + 8 * half + lane / 4;
        const float sum = row_all_sum(row_sum[m][half]);
        const float inverse = 1.0f / sum;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          *reinterpret_cast<uint32_t*>(o + row * kHeadDim + 8 * n + 2 * (lane % 4)) =
              ptx::cvt_f16x2(rO[m][n][2 * half] * inverse, rO[m][n][2 * half + 1] * inverse);
        }
        if (lane % 4 == 0) {
          lse[row] = row_max[m][half] * scale + ptx::lg2_approx_ftz(sum) * kLn2;
        }
      }
    }
  }
};

// Raises the kernel's shared-memory limit and launches it.
template <typename Kernel, typename... Arguments>
cudaError_t launch(Kernel kernel, dim3 grid, int smem_bytes, cudaStream_t stream,
                   const Arguments&... arguments) {
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
  if (error != cudaSuccess) return error;
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kThreads), pointers,
                          smem_bytes, stream);
}

}  // namespace tilefold::ladder
