// The online softmax of a block of scores in wgmma accumulator layout: masking, running maximum and
// sum, conversion of P. A thread owns two rows, `row` and `row + 8`; a row lives in one quad.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/warp.cuh"
#include "layout/hopper.h"

namespace tilefold::sm90 {

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kMaskedScore = -std::numeric_limits<float>::infinity();

// Where a row's maximum starts. Finite, so that fma(score, scale_log2, -row_max) is not NaN by the
// mask alone; and no finite logit lies below it, so a masked column (-inf) never wins over one.
inline constexpr float kInitialMax = -std::numeric_limits<float>::max();

// PERF: a row maximum may be stale by this much (base 2): P then reaches 2^8 and the row sum
// 2^8 * Nk, far from overflow in float16 and float32, and rO is seldom rescaled.
inline constexpr float kStaleMaxLog2 = 8.0f;

// Per thread: of its two rows, the maximum of the logits times log2 e (over the quad), and the sum
// of this thread's columns of P.
struct RowStats {
  float row_max[2] = {kInitialMax, kInitialMax};
  float row_sum[2] = {0.0f, 0.0f};
};

template <int kCount>
__device__ __forceinline__ void multiply_scores(float (&rS)[kCount], float factor) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) rS[i] *= factor;
}

// Hides the keys at or after `end[h]` from row h; the ends count from this thread's first column.
template <int kCount>
__device__ __forceinline__ void mask_right(float (&rS)[kCount], const int32_t (&end)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int column = layout::wgmma_accumulator(0, i).column;
    if (column >= end[i / 2 % 2]) rS[i] = kMaskedScore;
  }
}

// Hides the keys before `begin[h]` as well.
template <int kCount>
__device__ __forceinline__ void mask_both(float (&rS)[kCount], const int32_t (&begin)[2],
                                          const int32_t (&end)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int column = layout::wgmma_accumulator(0, i).column;
    if (column < begin[i / 2 % 2] || column >= end[i / 2 % 2]) rS[i] = kMaskedScore;
  }
}

// Maximum over a row's quad.
__device__ __forceinline__ float quad_max(float value) {
  value = ptx::max_f32(value, ptx::shfl_xor(value, 1));
  return ptx::max_f32(value, ptx::shfl_xor(value, 2));
}

__device__ __forceinline__ float quad_sum(float value) {
  value += ptx::shfl_xor(value, 1);
  return value + ptx::shfl_xor(value, 2);
}

// Folds a block of scores in: rS becomes P = exp2(rS * scale_log2 - row_max), stats follow. Returns
// whether (uniformly over the warp) rO is to be multiplied by `rescale`. (FA2, Algorithm 1, lines 8
// to 10; the stale maximum is ours to undo in the end, as any maximum is.)
//
// PERF: whether a maximum is too stale each lane says of its own columns; maxima of whole rows,
// with their shuffles, are only formed where one is. On an H200 4 to 8 % at D = 64, 2 to 8 % at
// D = 128, nothing at D = 256 (docs/devlog.md, "A counter that opens itself ...").
template <bool kMayBeStale, int kCount>
__device__ __forceinline__ bool online_softmax(float (&rS)[kCount], RowStats& stats,
                                               float scale_log2, float (&rescale)[2]) {
  float row_max[2][2] = {{rS[0], rS[1]}, {rS[2], rS[3]}};  // two chains a row
#pragma unroll
  for (int i = 4; i < kCount; ++i) {
    row_max[i / 2 % 2][i % 2] = ptx::max_f32(row_max[i / 2 % 2][i % 2], rS[i]);
  }
  float lane_max[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) lane_max[h] = ptx::max_f32(row_max[h][0], row_max[h][1]);
  bool grown = true;
  if constexpr (kMayBeStale) {
    grown = ptx::vote_any(ptx::fma_rn(lane_max[0], scale_log2, -stats.row_max[0]) > kStaleMaxLog2 ||
                          ptx::fma_rn(lane_max[1], scale_log2, -stats.row_max[1]) > kStaleMaxLog2);
  }
  if (grown) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float new_max = ptx::max_f32(stats.row_max[h], quad_max(lane_max[h]) * scale_log2);
      rescale[h] = ptx::ex2_approx_ftz(stats.row_max[h] - new_max);
      stats.row_max[h] = new_max;
    }
  } else {
    rescale[0] = rescale[1] = 1.0f;
  }
  float row_sum[2][2] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int h = i / 2 % 2;
    rS[i] = ptx::ex2_approx_ftz(ptx::fma_rn(rS[i], scale_log2, -stats.row_max[h]));
    row_sum[h][i % 2] += rS[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    stats.row_sum[h] = ptx::fma_rn(stats.row_sum[h], rescale[h], row_sum[h][0] + row_sum[h][1]);
  }
  return grown;
}

// P in the input type: accumulator registers become A registers without an exchange.
template <DType kDType, int kCount>
__device__ __forceinline__ void convert_p(uint32_t (&rP)[kCount / 8][4],
                                          const float (&rS)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount / 8; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = layout::accumulator_of_a(k, r);
      rP[k][r] = ptx::cvt_pack<kDType>(rS[i], rS[i + 1]);
    }
  }
}

// Multiplies each row of an accumulator by its factor.
template <int kCount>
__device__ __forceinline__ void scale_rows(float (&rO)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) rO[i] *= factor[i / 2 % 2];
}

}  // namespace tilefold::sm90
