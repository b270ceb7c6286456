// Rows of O into which an infinity or a NaN of V leaked from a key that they do not see.
//
// P V multiplies whole blocks: in a block that a row sees only in part, the probability of an
// unseen key is 0, and 0 * inf or 0 * NaN is NaN. That V holds such a value there is rare, so the
// loop takes no notice; the epilogue notices that O is not finite, and a warp whose rows are
// concerned computes them again, key by key, from global memory. Slow (CUDA cores, no tiles), and
// right.
#pragma once

#include <cfloat>
#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/sm80/config.h"
#include "cuda/sm80/epilogue.cuh"
#include "cuda/sm80/params.h"
#include "cuda/sm80/softmax.cuh"

namespace tilefold::sm80 {

// Whether V holds an infinity or a NaN in keys [begin, end). Lane c reads chunk c of each row;
// x * 0 + sum stays 0 for finite x.
template <ForwardConfig kConfig>
__device__ __forceinline__ bool values_not_finite(const char* v, const ForwardParams& params,
                                                  int32_t begin, int32_t end, int32_t lane) {
  uint32_t sum = 0;
  if (lane * layout::kChunkElems < params.head_dim_v) {
#pragma unroll 1
    for (int32_t key = begin; key < end; ++key) {
      uint32_t x[4];
      ptx::ld_global_v4(x, v + key * params.v_strides.row + lane * layout::kChunkBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum = ptx::fma_rn_x2<kConfig.dtype>(x[i], 0, sum);
    }
  }
  return (sum & 0x7fff7fffu) != 0;
}

// Whether any row of this warp (pair: of both warps) must be computed again: one has a finite
// row_sum, yet a value of O that is not finite, and a key in the blocks that the warp visited,
// unseen by some row, has a value that is not finite. Uniform.
template <ForwardConfig kConfig>
__device__ __forceinline__ bool must_repair(const float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
                                            const OnlineSoftmax<kConfig.m16()>& softmax,
                                            const ForwardParams& params,
                                            const Coordinates<kConfig>& at) {
  const WarpContext& warp = at.warp;
  const TileContext& tile = at.tile;
  const layout::BlockRange range = at.warp_range(params);
  const int32_t last_row = at.warp_row_end(params) - 1;
  // Keys [0, seen_begin) and [seen_end, seqlen_k) are unseen by some row.
  const int32_t seen_begin = last_row + params.mask.diagonal_left;
  const int32_t seen_end = warp.row_begin + params.mask.diagonal_right + 1;
  const bool all_seen = seen_begin <= 0 && seen_end >= params.mask.seqlen_k;
  if (range.empty() || all_seen) return false;
  bool suspicious = false;
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float zero = 0.0f;
#pragma unroll
      for (int d = 0; d < 2 * kConfig.d16(); ++d) {
        zero = ptx::fma_rn(rO[m][d][2 * r], 0.0f, zero);
        zero = ptx::fma_rn(rO[m][d][2 * r + 1], 0.0f, zero);
      }
      suspicious = suspicious || (zero != 0.0f && softmax.row_sum[m][r] <= FLT_MAX);
    }
  }
  if constexpr (kConfig.pair) {
    suspicious = ptx::barrier_red_or(kFirstPairBarrier + warp.row_group, 64, suspicious);
  } else {
    suspicious = ptx::vote_any(suspicious);
  }
  if (!suspicious) return false;
  const char* v =
      params.v + tile.batch * params.v_strides.batch + tile.head_kv * params.v_strides.head;
  const int32_t visited_begin = range.begin * kConfig.block_n;
  const int32_t visited_end = min(range.end * kConfig.block_n, params.mask.seqlen_k);
  const bool left =
      values_not_finite<kConfig>(v, params, visited_begin, min(seen_begin, visited_end), warp.lane);
  const bool right =
      values_not_finite<kConfig>(v, params, max(seen_end, visited_begin), visited_end, warp.lane);
  return ptx::vote_any(left || right);
}

// Eight products of 16-bit numbers added to `sum`.
template <DType kDType>
__device__ __forceinline__ float dot_chunk(const uint32_t (&a)[4], const uint32_t (&b)[4],
                                           float sum) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = ptx::fma_rn(ptx::cvt_f32<kDType>(a[i] & 0xffffu), ptx::cvt_f32<kDType>(b[i] & 0xffffu),
                      sum);
    sum = ptx::fma_rn(ptx::cvt_f32<kDType>(a[i] >> 16), ptx::cvt_f32<kDType>(b[i] >> 16), sum);
  }
  return sum;
}

// o = sum of P V over keys [key_begin, key_end) of one row: lane t forms the probabilities of every
// 32nd key, then lane c accumulates chunk c of the columns. row_max stands: V does not enter it.
template <ForwardConfig kConfig>
__device__ __forceinline__ void repair_row(const ForwardParams& params, const TileContext& tile,
                                           int32_t row, int32_t lane, int32_t key_begin,
                                           int32_t key_end, float row_max, bool prescale,
                                           float (&o)[layout::kChunkElems]) {
  const char* q = params.q + tile.batch * params.q_strides.batch +
                  tile.head * params.q_strides.head + row * params.q_strides.row;
  const char* k =
      params.k + tile.batch * params.k_strides.batch + tile.head_kv * params.k_strides.head;
  const char* v =
      params.v + tile.batch * params.v_strides.batch + tile.head_kv * params.v_strides.head;
  const bool has_columns = lane * layout::kChunkElems < params.head_dim_v;
#pragma unroll
  for (int i = 0; i < layout::kChunkElems; ++i) o[i] = 0.0f;
#pragma unroll 1
  for (int32_t first = key_begin; first < key_end; first += 32) {
    float probability = 0.0f;
    if (first + lane < key_end) {
      const char* k_row = k + (first + lane) * params.k_strides.row;
      float score = 0.0f;
#pragma unroll 1
      for (int32_t byte = 0; byte < params.head_dim * layout::kElementBytes;
           byte += layout::kChunkBytes) {
        uint32_t a[4];
        uint32_t b[4];
        ptx::ld_global_v4(a, q + byte);
        ptx::ld_global_v4(b, k_row + byte);
        score = dot_chunk<kConfig.dtype>(a, b, score);
      }
      const float exponent =
          prescale ? OnlineSoftmax<kConfig.m16()>::prescaled(score, params.softmax_scale) - row_max
                   : ptx::fma_rn(score, params.softmax_scale_log2, -row_max);
      probability = ptx::ex2_approx_ftz(exponent);
    }
#pragma unroll 1
    for (int32_t t = 0; t < min(32, key_end - first); ++t) {
      const float p = ptx::shfl_idx(probability, t);
      if (has_columns) {
        uint32_t x[4];
        ptx::ld_global_v4(x, v + (first + t) * params.v_strides.row + lane * layout::kChunkBytes);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          o[2 * i] = ptx::fma_rn(p, ptx::cvt_f32<kConfig.dtype>(x[i] & 0xffffu), o[2 * i]);
          o[2 * i + 1] = ptx::fma_rn(p, ptx::cvt_f32<kConfig.dtype>(x[i] >> 16), o[2 * i + 1]);
        }
      }
    }
  }
}

// Computes O of this warp's rows (pair: of half of them each) again and stores it, with the LSE; or
// the partial sums where K/V is split.
template <ForwardConfig kConfig>
__device__ __forceinline__ void repair_output(const OnlineSoftmax<kConfig.m16()>& softmax,
                                              const ForwardParams& params,
                                              const Coordinates<kConfig>& at, uint32_t shared) {
  const WarpContext& warp = at.warp;
  const TileContext& tile = at.tile;
  const layout::BlockRange cta_range = at.cta_range(params);
  constexpr int kRows = kConfig.rows_per_warp() / kConfig.warps_per_row_group();
  const bool split = params.grid.num_splits > 1;
  // row_max and row_sum by row, in this row group's own rows of the Q tile.
  const uint32_t rows = shared + kConfig.shared_plan().q +
                        kConfig.q_tile().offset_bytes(warp.row_group * kConfig.rows_per_warp(), 0);
  sync_row_group<kConfig>(warp);  // Q has been read
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t place = rows + (warp.lane / 4 + 16 * m + 8 * r) * 8;
      if (warp.lane % 4 == 0 && warp.half == 0) {
        ptx::st_shared_f32(place, softmax.row_max[m][r]);
        ptx::st_shared_f32(place + 4, softmax.row_sum[m][r]);
      }
    }
  }
  sync_row_group<kConfig>(warp);  // they are there
#pragma unroll 1
  for (int i = warp.half * kRows; i < (warp.half + 1) * kRows; ++i) {
    const int32_t row = warp.row_begin + i;
    const float row_max = ptx::ld_shared_f32(rows + i * 8);
    const float row_sum = ptx::ld_shared_f32(rows + i * 8 + 4);
    if (row >= params.seqlen_q) break;
    float o[layout::kChunkElems];
    repair_row<kConfig>(params, tile, row, warp.lane,
                        max(params.mask.key_begin(row), cta_range.begin * kConfig.block_n),
                        min(params.mask.key_end(row), cta_range.end * kConfig.block_n), row_max,
                        softmax.prescale, o);
    if (split) {
      store_partial_row(o, row_max, row_sum, params, at.coord, row, warp.lane);
    } else {
      store_output_row<kConfig.dtype>(o, row_max, row_sum, params, tile, row, warp.lane);
    }
  }
}

}  // namespace tilefold::sm80
