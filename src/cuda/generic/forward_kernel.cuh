// The plain CUDA forward kernel: CUDA cores only, any head dim, stride and alignment.
//
// A CTA owns kBlockM query rows of one head and one slab of columns of O. Scores are a
// blocked matrix product over chunks of the head dim, so D is unbounded; Dv is unbounded because
// each slab of columns is a CTA of its own, which computes the scores again (they come out bit for
// bit the same).
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "core/problem.h"
#include "cuda/generic/element.cuh"
#include "cuda/generic/forward_config.h"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/warp.cuh"

namespace tilefold::generic {

// The work of a grid: CTAs per head and in all.
struct ForwardGrid {
  int64_t num_m_blocks;
  int64_t num_slabs;
  int64_t num_tiles;  // over the whole problem; a CTA takes blockIdx.x, + gridDim.x, ...
};

TILEFOLD_HOST_DEVICE inline ForwardGrid forward_grid(const ForwardProblem& problem, int block_m,
                                                     int slab) {
  ForwardGrid grid;
  grid.num_m_blocks = (problem.seqlen_q + block_m - 1) / block_m;
  grid.num_slabs = (problem.head_dim_v + slab - 1) / slab;
  grid.num_tiles = grid.num_m_blocks * grid.num_slabs * problem.num_heads * problem.batch;
  return grid;
}

// kCount floats that shared memory holds side by side, moved in one access.
template <int kCount>
struct alignas(4 * kCount) Pack {
  float value[kCount];
};

template <int kCount>
__device__ __forceinline__ Pack<kCount> load_pack(const float* from) {
  return *reinterpret_cast<const Pack<kCount>*>(from);
}

// A [rows, columns] matrix of one head in global memory.
struct Matrix {
  const void* data;
  int64_t row_stride;
  int64_t column_stride;
};

// Copies rows [row, row + kRows) x columns [column, column + kColumns) into shared memory as float,
// zeros beyond [num_rows, num_columns): memory past the end is never read. kTransposed stores
// column-major. Neighbouring threads take neighbours along the axis of the smaller stride.
template <DType kDType, int kRows, int kColumns, int kPitch, bool kTransposed>
__device__ __forceinline__ void load_tile(const Matrix& matrix, int64_t row, int64_t column,
                                          int64_t num_rows, int64_t num_columns, float* to) {
  const int64_t row_step = matrix.row_stride < 0 ? -matrix.row_stride : matrix.row_stride;
  const int64_t column_step =
      matrix.column_stride < 0 ? -matrix.column_stride : matrix.column_stride;
  const bool rows_first = row_step < column_step;
#pragma unroll 2  // more copies in flight take registers that the accumulators need
  for (int i = threadIdx.x; i < kRows * kColumns; i += ForwardConfig::kThreads) {
    const int r = rows_first ? i % kRows : i / kColumns;
    const int c = rows_first ? i / kRows : i % kColumns;
    float value = 0.0f;
    if (row + r < num_rows && column + c < num_columns) {
      value = load_element<kDType>(
          matrix.data, (row + r) * matrix.row_stride + (column + c) * matrix.column_stride);
    }
    to[kTransposed ? c * kPitch + r : r * kPitch + c] = value;
  }
}

// Which keys of a tile a thread's rows see, counted from the tile's first: row r sees
// [first[r], last[r]], nothing if first > last.
template <int kRows>
struct VisibleKeys {
  int first[kRows];
  int last[kRows];
  __device__ __forceinline__ bool sees(int r, int key) const {
    return key >= first[r] && key <= last[r];
  }
};

template <int kRows>
__device__ __forceinline__ VisibleKeys<kRows> visible_keys(const ForwardProblem& problem,
                                                           int64_t row, int64_t n_start) {
  const auto clamp = [](int64_t key) {
    const int64_t at_least = key > -1 ? key : -1;
    return static_cast<int>(at_least < ForwardConfig::kBlockN ? at_least : ForwardConfig::kBlockN);
  };
  VisibleKeys<kRows> visible;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t last = row + r + problem.diagonal_right;
    visible.first[r] = clamp(row + r + problem.diagonal_left - n_start);
    visible.last[r] = clamp((last < problem.seqlen_k - 1 ? last : problem.seqlen_k - 1) - n_start);
  }
  return visible;
}

// rS[r][c] = Q[row] . K[key] for this thread's rows and keys.
template <ForwardConfig kConfig>
__device__ __forceinline__ void compute_scores(
    const Matrix& gQ, const Matrix& gK, const ForwardProblem& problem, int64_t m_start,
    int64_t n_start, float* sQ, float* sK,
    float (&rS)[kConfig.rows_per_thread][ForwardConfig::kVector]) {
  constexpr int kRows = kConfig.rows_per_thread;
  constexpr int kKeys = ForwardConfig::kVector;
  constexpr int kChunk = ForwardConfig::kChunk;
  const int thread_row = threadIdx.x / ForwardConfig::kThreadColumns;
  const int thread_column = threadIdx.x % ForwardConfig::kThreadColumns;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kKeys; ++c) rS[r][c] = 0.0f;
  }
  for (int64_t d_start = 0; d_start < problem.head_dim; d_start += kChunk) {
    ptx::barrier_sync_cta();  // the readers of what sQ and sK held are done
    load_tile<kConfig.dtype, kConfig.block_m(), kChunk, kConfig.q_pitch(), true>(
        gQ, m_start, d_start, problem.seqlen_q, problem.head_dim, sQ);
    load_tile<kConfig.dtype, ForwardConfig::kBlockN, kChunk, ForwardConfig::kKPitch, true>(
        gK, n_start, d_start, problem.seqlen_k, problem.head_dim, sK);
    ptx::barrier_sync_cta();  // sQ and sK are written
    const int64_t left = problem.head_dim - d_start;
    const int count = left < kChunk ? static_cast<int>(left) : kChunk;
#pragma unroll 4
    for (int d = 0; d < count; ++d) {
      const auto q = load_pack<kRows>(sQ + d * kConfig.q_pitch() + thread_row * kRows);
      const auto k = load_pack<kKeys>(sK + d * ForwardConfig::kKPitch + thread_column * kKeys);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kKeys; ++c) rS[r][c] = fmaf(q.value[r], k.value[c], rS[r][c]);
      }
    }
  }
}

// FA2 Algorithm 1, lines 9-10: the new row maximum, probabilities in place of scores, and what the
// running sum and output are to be multiplied by.
//
// The maximum is that of the scaled scores, and the exponent one FMA: rounding the product would
// cost accuracy where logits are large. row_max starts at -FLT_MAX, which no finite scaled score
// lies below; a row whose seen scores are all -inf thus ends with row_sum = 0 and O = 0 / 0 = NaN,
// as the formula says. NaN scores pass fmaxf by and enter through the sum.
template <int kRows, int kKeys>
__device__ __forceinline__ void online_softmax(float (&rS)[kRows][kKeys], float scale,
                                               const VisibleKeys<kRows>& visible, int first_key,
                                               float (&row_max)[kRows], float (&row_sum)[kRows],
                                               float (&scores_scale)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    bool seen[kKeys];
    float new_max = row_max[r];
#pragma unroll
    for (int c = 0; c < kKeys; ++c) {
      seen[c] = visible.sees(r, first_key + c);
      if (seen[c]) new_max = fmaxf(new_max, rS[r][c] * scale);
    }
#pragma unroll
    for (int lane_mask = ForwardConfig::kThreadColumns / 2; lane_mask > 0; lane_mask /= 2) {
      new_max = fmaxf(new_max, ptx::shfl_xor(new_max, lane_mask));
    }
    scores_scale[r] = expf(row_max[r] - new_max);
    row_max[r] = new_max;
    float tile_sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kKeys; ++c) {
      rS[r][c] = seen[c] ? expf(fmaf(rS[r][c], scale, -new_max)) : 0.0f;
      tile_sum += rS[r][c];
    }
    // This thread's keys only; the sums of a row's threads meet in the epilogue.
    row_sum[r] = row_sum[r] * scores_scale[r] + tile_sum;
  }
}

// rO += P V over the keys [0, num_keys) of the tile. With kMasked, a key that a row does not see is
// left out: its V may be Inf or NaN, and 0 * Inf is NaN.
template <ForwardConfig kConfig, bool kMasked>
__device__ __forceinline__ void accumulate_output(
    const float* sP, const float* sV, int num_keys, int first_key,
    const VisibleKeys<kConfig.rows_per_thread>& visible,
    float (&rO)[kConfig.rows_per_thread][kConfig.outputs_per_thread()]) {
  constexpr int kRows = kConfig.rows_per_thread;
  constexpr int kVector = ForwardConfig::kVector;
  constexpr int kStep = kVector * ForwardConfig::kThreadColumns;
  const int thread_row = threadIdx.x / ForwardConfig::kThreadColumns;
  const int thread_column = threadIdx.x % ForwardConfig::kThreadColumns;
#pragma unroll 2
  for (int key = 0; key < num_keys; ++key) {
    const auto p = load_pack<kRows>(sP + key * kConfig.q_pitch() + thread_row * kRows);
    bool seen[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      seen[r] = !kMasked || visible.sees(r, first_key + key);
    }
#pragma unroll
    for (int part = 0; part < kConfig.slab / kStep; ++part) {
      const auto v =
          load_pack<kVector>(sV + key * kConfig.slab + part * kStep + thread_column * kVector);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kVector; ++c) {
          float& o = rO[r][part * kVector + c];
          o = seen[r] ? fmaf(p.value[r], v.value[c], o) : o;
        }
      }
    }
  }
}

// One tile of the grid: query rows [m_start, m_start + kBlockM) of a head, one slab of O.
template <ForwardConfig kConfig>
__device__ __forceinline__ void forward_tile(const ForwardProblem& problem, int64_t batch_idx,
                                             int64_t head_idx, int64_t m_start, int64_t slab_start,
                                             float* smem) {
  constexpr int kRows = kConfig.rows_per_thread;
  constexpr int kVector = ForwardConfig::kVector;
  constexpr int kBlockN = ForwardConfig::kBlockN;
  constexpr int kOutputs = kConfig.outputs_per_thread();
  const int thread_row = threadIdx.x / ForwardConfig::kThreadColumns;
  const int thread_column = threadIdx.x % ForwardConfig::kThreadColumns;

  // Tile coordinates.
  const int64_t kv_head_idx = head_idx / (problem.num_heads / problem.num_heads_kv);
  const auto head = [](const void* data, const Strides& strides, int64_t b, int64_t h) {
    return Matrix{offset_elements<kConfig.dtype>(data, b * strides.batch + h * strides.head),
                  strides.row, strides.column};
  };
  const Matrix gQ = head(problem.q, problem.q_strides, batch_idx, head_idx);
  const Matrix gK = head(problem.k, problem.k_strides, batch_idx, kv_head_idx);
  const Matrix gV = head(problem.v, problem.v_strides, batch_idx, kv_head_idx);

  // The keys that some row of the tile sees, and those that all see.
  const int64_t m_last =
      (m_start + kConfig.block_m() < problem.seqlen_q ? m_start + kConfig.block_m()
                                                      : problem.seqlen_q) -
      1;
  const int64_t n_first = m_start + problem.diagonal_left > 0 ? m_start + problem.diagonal_left : 0;
  const int64_t n_last = m_last + problem.diagonal_right < problem.seqlen_k - 1
                             ? m_last + problem.diagonal_right
                             : problem.seqlen_k - 1;
  const int64_t all_first = m_last + problem.diagonal_left;
  const int64_t all_last = m_start + problem.diagonal_right;

  // Shared memory: sV takes the place of sQ and sK when the scores are done.
  float* const sQ = smem;
  float* const sK = sQ + ForwardConfig::kChunk * kConfig.q_pitch();
  float* const sV = smem;
  float* const sP = smem + kConfig.operand_floats();

  // Prologue.
  float rO[kRows][kOutputs];
  float row_max[kRows];
  float row_sum[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    row_max[r] = -FLT_MAX;
    row_sum[r] = 0.0f;
#pragma unroll
    for (int c = 0; c < kOutputs; ++c) rO[r][c] = 0.0f;
  }

  // Main loop.
  for (int64_t n_start = n_first / kBlockN * kBlockN; n_start <= n_last; n_start += kBlockN) {
    float rS[kRows][kVector];
    compute_scores<kConfig>(gQ, gK, problem, m_start, n_start, sQ, sK, rS);
    const auto visible = visible_keys<kRows>(problem, m_start + thread_row * kRows, n_start);
    float scores_scale[kRows];
    online_softmax(rS, problem.scale, visible, thread_column * kVector, row_max, row_sum,
                   scores_scale);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kOutputs; ++c) rO[r][c] *= scores_scale[r];
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        sP[(thread_column * kVector + c) * kConfig.q_pitch() + thread_row * kRows + r] = rS[r][c];
      }
    }
    const bool masked = n_start < all_first || n_start + kBlockN - 1 > all_last;
    for (int start = 0; start < kBlockN && n_start + start < problem.seqlen_k;
         start += ForwardConfig::kChunk) {
      ptx::barrier_sync_cta();  // the readers of what sV's place held are done; sP is written
      load_tile<kConfig.dtype, ForwardConfig::kChunk, kConfig.slab, kConfig.slab, false>(
          gV, n_start + start, slab_start, problem.seqlen_k, problem.head_dim_v, sV);
      ptx::barrier_sync_cta();  // sV is written
      const int64_t left = problem.seqlen_k - n_start - start;
      const int count =
          left < ForwardConfig::kChunk ? static_cast<int>(left) : ForwardConfig::kChunk;
      const float* sP_part = sP + start * kConfig.q_pitch();
      if (masked) {
        accumulate_output<kConfig, true>(sP_part, sV, count, start, visible, rO);
      } else {
        accumulate_output<kConfig, false>(sP_part, sV, count, start, visible, rO);
      }
    }
  }

  // Epilogue: normalise, write O and, from the first slab, LSE.
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = m_start + thread_row * kRows + r;
    float sum = row_sum[r];
#pragma unroll
    for (int lane_mask = ForwardConfig::kThreadColumns / 2; lane_mask > 0; lane_mask /= 2) {
      sum += ptx::shfl_xor(sum, lane_mask);
    }
    if (row >= problem.seqlen_q) continue;
    const int64_t last = row + problem.diagonal_right;
    const bool empty = row + problem.diagonal_left > last || last < 0 || problem.seqlen_k == 0 ||
                       row + problem.diagonal_left >= problem.seqlen_k;
    const int64_t o_row = batch_idx * problem.o_strides.batch + head_idx * problem.o_strides.head +
                          row * problem.o_strides.row;
#pragma unroll
    for (int c = 0; c < kOutputs; ++c) {
      const int64_t column = slab_start + c / kVector * (kVector * ForwardConfig::kThreadColumns) +
                             thread_column * kVector + c % kVector;
      if (column < problem.head_dim_v) {
        store_element<kConfig.dtype>(problem.o, o_row + column * problem.o_strides.column,
                                     empty ? 0.0f : rO[r][c] / sum);
      }
    }
    if (problem.lse != nullptr && slab_start == 0 && thread_column == 0) {
      problem.lse[batch_idx * problem.lse_strides.batch + head_idx * problem.lse_strides.head +
                  row * problem.lse_strides.row] =
          empty ? problem.empty_row_lse : row_max[r] + logf(sum);
    }
  }
}

// nvcc 13.0 cannot name a class-type template argument of a __global__ function in its host stub,
// so the configuration's members stand here one by one.
template <DType kDType, int kRowsPerThread, int kSlab>
__global__ __launch_bounds__(ForwardConfig::kThreads, ForwardConfig::kMinCtas) void forward_kernel(
    const __grid_constant__ ForwardProblem problem) {
  constexpr ForwardConfig kConfig{
      .dtype = kDType, .rows_per_thread = kRowsPerThread, .slab = kSlab};
  static_assert(kConfig.valid());
  float* const smem = reinterpret_cast<float*>(ptx::dynamic_shared_memory());
  const ForwardGrid grid = forward_grid(problem, kConfig.block_m(), kSlab);
  for (int64_t tile = blockIdx.x; tile < grid.num_tiles; tile += gridDim.x) {
    // Slabs of the same rows are neighbours: they read the same Q and K. Row tiles go from the last
    // to the first, because causal rows near the end have the most to do.
    const int64_t slab = tile % grid.num_slabs;
    const int64_t head = tile / grid.num_slabs % (problem.num_heads * problem.batch);
    const int64_t m_block = tile / grid.num_slabs / (problem.num_heads * problem.batch);
    forward_tile<kConfig>(problem, head / problem.num_heads, head % problem.num_heads,
                          (grid.num_m_blocks - 1 - m_block) * kConfig.block_m(), slab * kSlab,
                          smem);
  }
}

}  // namespace tilefold::generic
