// Rows of O that the tile loop cannot get right, computed again key by key. Two kinds, neither of
// which ordinary data brings about:
// - A value of V that is not finite, at a position that the row does not see, has made O NaN: the
//   tensor cores multiply it with P = 0.
// - The row's maximum is so large that its rounding shows in every exponent.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/scalar.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/sm90/forward_config.h"
#include "cuda/sm90/forward_params.h"
#include "cuda/sm90/pipeline.cuh"
#include "cuda/sm90/softmax.cuh"
#include "layout/block_range.h"
#include "layout/hopper.h"

namespace tilefold::sm90 {

// Of log2-scaled maxima. Below it rounding changes P by at most 2^(1/4), and row sum and O alike.
inline constexpr float kLargestMax = 4194304.0f;  // 2^22

// Neither infinite nor NaN.
__device__ __forceinline__ bool is_finite(float x) { return x - x == 0.0f; }

// Sum over the warp, the same in every lane.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += ptx::shfl_xor(value, mask);
  return value;
}

// One row, by a whole warp: a lane has every 32nd column.
template <ForwardConfig kConfig>
struct RowRepair {
  static constexpr DType kDType = kConfig.dtype;
  static constexpr int kColumns = (kConfig.dim_v() + 31) / 32;  // of O, a lane

  const ForwardParams& params;
  const char* q;  // the row
  const char* k;  // the head
  const char* v;
  int lane;

  // q[i] . k[j] * score_factor
  __device__ __forceinline__ float score(int32_t key) const {
    const char* row = k + key * params.k_strides.row * 2;
    float sum = 0.0f;
#pragma unroll 1
    for (int32_t d = lane; d < params.head_dim; d += 32) {
      sum = ptx::fma_rn(ptx::cvt_f32<kDType>(ptx::ld_global_u16(q + 2 * d)),
                        ptx::cvt_f32<kDType>(ptx::ld_global_u16(row + 2 * d)), sum);
    }
    return warp_sum(sum) * params.score_factor;
  }

  __device__ __forceinline__ float value(int32_t key, int32_t column) const {
    const char* row = v + key * params.v_strides.row * 2;
    return ptx::cvt_f32<kDType>(ptx::ld_global_u16(row + 2 * column));
  }

  // Whether V has a value that is not finite in rows [begin, end).
  __device__ __forceinline__ bool poisoned(int32_t begin, int32_t end) const {
#pragma unroll 1
    for (int32_t key = begin; key < end; ++key) {
      bool bad = false;
#pragma unroll 1
      for (int32_t d = lane; d < params.head_dim_v; d += 32) bad |= !is_finite(value(key, d));
      if (ptx::vote_any(bad)) return true;
    }
    return false;
  }

  // O to `rO` (this lane's columns) and the LSE. Where `lse_wanted` is false, stops as soon as no
  // finite column is left.
  __device__ __forceinline__ float attend(const layout::Mask& mask, int32_t row, bool lse_wanted,
                                          float (&rO)[kColumns]) const {
    const int32_t begin = mask.key_begin(row);
    const int32_t end = mask.key_end(row);
    float row_max = kInitialMax;
#pragma unroll 1
    for (int32_t key = begin; key < end; ++key) row_max = ptx::max_f32(row_max, score(key));
#pragma unroll
    for (int i = 0; i < kColumns; ++i) rO[i] = 0.0f;
    float row_sum = 0.0f;
#pragma unroll 1
    for (int32_t key = begin; key < end; ++key) {
      const float p = ptx::ex2_approx_ftz((score(key) - row_max) * params.scale_log2);
      row_sum += p;
      bool all_lost = true;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int32_t column = lane + 32 * i;
        if (column >= params.head_dim_v) continue;
        rO[i] = ptx::fma_rn(p, value(key, column), rO[i]);
        all_lost &= !is_finite(rO[i]);
      }
      if (!lse_wanted && ptx::vote_all(all_lost)) break;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) rO[i] *= ptx::rcp_approx_ftz(row_sum);
    return (row_max * params.scale_log2 + ptx::lg2_approx_ftz(row_sum)) * kLn2;
  }
};

// Which of a thread's two rows need repair, and why.
struct RowFaults {
  bool large[2] = {false, false};  // the maximum
  bool lost[2] = {false, false};   // O, where nothing in the scores explains it

  __device__ __forceinline__ bool any() const { return large[0] || large[1] || lost[0] || lost[1]; }
};

template <ForwardConfig kConfig>
__device__ __forceinline__ RowFaults row_faults(const float (&rO)[kConfig.dim_v() / 2],
                                                const RowStats& stats) {
  RowFaults faults;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float row_max = stats.row_max[h];
    faults.large[h] = (row_max > kLargestMax || row_max < -kLargestMax) && is_finite(row_max) &&
                      row_max != kInitialMax;
  }
  if constexpr (kConfig.masked) {
    constexpr int kChains = 4;     // of a row, so that none of them waits for itself
    float probe[2][kChains] = {};  // NaN if an element is not finite
#pragma unroll
    for (int i = 0; i < kConfig.dim_v() / 2; ++i) {
      float& chain = probe[i / 2 % 2][(i / 4 * 2 + i % 2) % kChains];
      chain = ptx::fma_rn(rO[i], 0.0f, chain);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum((probe[h][0] + probe[h][1]) + (probe[h][2] + probe[h][3]));
      // Where the scores themselves are not finite, the row is right as it is.
      faults.lost[h] = sum != 0.0f && is_finite(stats.row_max[h]) && is_finite(stats.row_sum[h]) &&
                       stats.row_sum[h] > 0.0f;
    }
  }
  return faults;
}

// Computes those rows of this warp again, writes their O by write_o(row of the tiles, column,
// value) and their LSE. `tile_row` is the warpgroup's first row. What the lanes have written of O
// before may be written over.
template <ForwardConfig kConfig, typename WriteO>
__device__ __forceinline__ void repair_rows(const ForwardParams& params,
                                            const layout::BlockRange& range,
                                            const RowFaults& faults, int thread, int32_t tile_row,
                                            int32_t batch, int32_t head, const WriteO& write_o) {
  const int lane = thread % 32;
  const layout::Mask mask = mask_of(params);
  const int32_t head_kv = head_kv_of<kConfig>(params, head);
#pragma unroll 1
  for (int r = 0; r < 16; ++r) {
    const int owner = r % 8 * 4;
    const bool row_large =
        ptx::shfl_idx(static_cast<int>(r < 8 ? faults.large[0] : faults.large[1]), owner) != 0;
    const bool row_lost =
        ptx::shfl_idx(static_cast<int>(r < 8 ? faults.lost[0] : faults.lost[1]), owner) != 0;
    const int in_tile = 16 * (thread / 32) + r;
    const int32_t row = query_of<kConfig>(params, tile_row + in_tile);
    if (!(row_large || row_lost) || !row_exists<kConfig>(params, tile_row + in_tile) ||
        mask.row_is_empty(row)) {
      continue;
    }
    const int32_t head_q = head_q_of<kConfig>(params, head, tile_row + in_tile);
    const RowRepair<kConfig> repair{
        params,
        static_cast<const char*>(params.q) +
            2 * (batch * params.q_strides.batch + head_q * params.q_strides.head +
                 row * params.q_strides.row),
        static_cast<const char*>(params.k) +
            2 * (batch * params.k_strides.batch + head_kv * params.k_strides.head),
        static_cast<const char*>(params.v) +
            2 * (batch * params.v_strides.batch + head_kv * params.v_strides.head),
        lane};
    if (!row_large) {
      // Only what lies hidden in the visited blocks can have done harm.
      const int32_t visited_end = range.end * kConfig.block_n < params.seqlen_k
                                      ? range.end * kConfig.block_n
                                      : params.seqlen_k;
      if (!repair.poisoned(range.begin * kConfig.block_n, mask.key_begin(row)) &&
          !repair.poisoned(mask.key_end(row), visited_end)) {
        continue;
      }
    }
    float row_o[RowRepair<kConfig>::kColumns];
    const float lse = repair.attend(mask, row, row_large, row_o);
#pragma unroll
    for (int i = 0; i < RowRepair<kConfig>::kColumns; ++i) {
      const int column = lane + 32 * i;
      if (column < kConfig.dim_v()) {
        const uint32_t packed = ptx::cvt_pack<kConfig.dtype>(row_o[i], 0.0f);
        write_o(tile_row + in_tile, column, static_cast<uint16_t>(packed));
      }
    }
    if (row_large && params.lse != nullptr && lane == 0) {
      ptx::st_global_f32(params.lse + batch * params.lse_strides.batch +
                             head_q * params.lse_strides.head + row * params.lse_strides.row,
                         lse);
    }
  }
}

}  // namespace tilefold::sm90
