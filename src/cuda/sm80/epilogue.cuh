// What becomes of O and the row statistics after the last key block.
#pragma once

#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/sm80/config.h"
#include "cuda/sm80/coordinates.cuh"
#include "cuda/sm80/lane_addresses.h"
#include "cuda/sm80/params.h"
#include "cuda/sm80/softmax.cuh"
#include "layout/tile.h"

namespace tilefold::sm80 {

constexpr int kFirstPairBarrier = 1;  // named barriers 1 .. num_warps / 2; 0 is the CTA's

// The two warps of a pair meet (flat: the warp's lanes do).
template <ForwardConfig kConfig>
__device__ __forceinline__ void sync_row_group(const WarpContext& warp) {
  if constexpr (kConfig.pair) {
    ptx::barrier_sync(kFirstPairBarrier + warp.row_group, 64);
  } else {
    ptx::sync_warp();
  }
}

// Pair: each warp's numbers per row, valid in all lanes of a quad, are combined with the partner's.
// Between two calls the pair has to meet once more (in the loop: behind P), or a write could
// overtake the partner's read.
template <ForwardConfig kConfig, typename Combine>
__device__ __forceinline__ void combine_pair(float (&x)[kConfig.m16()][2], uint32_t shared,
                                             const WarpContext& warp, const Combine& combine) {
  const uint32_t rows = shared + kConfig.shared_plan().exchange;
  const uint32_t mine = rows + (warp.warp * 32 + warp.lane / 4) * 4;
  const uint32_t other = rows + ((warp.warp ^ 1) * 32 + warp.lane / 4) * 4;
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (warp.lane % 4 == 0) ptx::st_shared_f32(mine + (16 * m + 8 * r) * 4, x[m][r]);
    }
  }
  sync_row_group<kConfig>(warp);
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      x[m][r] = combine(x[m][r], ptx::ld_shared_f32(other + (16 * m + 8 * r) * 4));
    }
  }
}

// The column of this lane's elements 0, 2 of n8 block `d` of rO.
template <ForwardConfig kConfig>
__device__ __forceinline__ int lane_column(const WarpContext& warp, int d) {
  return 16 * (d / 2 * kConfig.warps_per_row_group() + warp.half) + d % 2 * 8 + warp.lane % 4 * 2;
}

__device__ __forceinline__ int64_t partial_row(const ForwardParams& params,
                                               const layout::TileCoord& coord, int32_t row) {
  return (static_cast<int64_t>(coord.split) * params.grid.num_batch_heads + coord.batch_head) *
             params.seqlen_q +
         row;
}

// Split K/V: O before normalisation with its (row_max, row_sum), for combine_kernel.cuh.
template <ForwardConfig kConfig>
__device__ __forceinline__ void store_partial(
    const float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
    const OnlineSoftmax<kConfig.m16()>& softmax, const ForwardParams& params,
    const layout::TileCoord& coord, const WarpContext& warp) {
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t row = warp.lane_row() + 16 * m + 8 * r;
      if (row >= params.seqlen_q) continue;
      const int64_t at = partial_row(params, coord, row);
      float* o = params.partial_o + at * params.head_dim_v;
#pragma unroll
      for (int d = 0; d < 2 * kConfig.d16(); ++d) {
        const int column = lane_column<kConfig>(warp, d);
        if (column < params.head_dim_v) {
          ptx::st_global_f32_v2(o + column, rO[m][d][2 * r], rO[m][d][2 * r + 1]);
        }
      }
      if (warp.lane % 4 == 0 && warp.half == 0) {
        ptx::st_global_f32_v2(params.partial_ml + at * 2, softmax.row_max[m][r],
                              softmax.row_sum[m][r]);
      }
    }
  }
}

// The same of one row, of which lane c holds chunk c.
__device__ __forceinline__ void store_partial_row(const float (&o)[layout::kChunkElems],
                                                  float row_max, float row_sum,
                                                  const ForwardParams& params,
                                                  const layout::TileCoord& coord, int32_t row,
                                                  int32_t lane) {
  const int64_t at = partial_row(params, coord, row);
  const int column = lane * layout::kChunkElems;
  if (column < params.head_dim_v) {
#pragma unroll
    for (int i = 0; i < layout::kChunkElems; i += 2) {
      ptx::st_global_f32_v2(params.partial_o + at * params.head_dim_v + column + i, o[i], o[i + 1]);
    }
  }
  if (lane == 0) ptx::st_global_f32_v2(params.partial_ml + at * 2, row_max, row_sum);
}

// LSE of one row, natural logarithm: log of the sum of exp(logit). A row that sees only logits of
// -inf has row_sum 0 and gives -inf.
__device__ __forceinline__ void store_lse(const ForwardParams& params, const TileContext& tile,
                                          int32_t row, bool empty, float row_max, float row_sum) {
  const float lse = (row_max + ptx::lg2_approx_ftz(row_sum)) * kLn2;
  ptx::st_global_f32(params.lse + tile.batch * params.lse_strides.batch +
                         tile.head * params.lse_strides.head + row * params.lse_strides.row,
                     empty ? params.empty_row_lse : lse);
}

// O / row_sum of one row, of which lane c holds chunk c, rounded, and its LSE; 0 if it sees no key.
template <DType kDType>
__device__ __forceinline__ void store_output_row(const float (&o)[layout::kChunkElems],
                                                 float row_max, float row_sum,
                                                 const ForwardParams& params,
                                                 const TileContext& tile, int32_t row,
                                                 int32_t lane) {
  const bool empty = params.mask.row_is_empty(row);
  const float inverse = ptx::rcp_approx_ftz(row_sum);
  uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    packed[i] = ptx::cvt_pack<kDType>(empty ? 0.0f : o[2 * i] * inverse,
                                      empty ? 0.0f : o[2 * i + 1] * inverse);
  }
  const int column = lane * layout::kChunkElems;
  if (column < params.head_dim_v) {
    ptx::st_global_v4(params.o + tile.batch * params.o_strides.batch +
                          tile.head * params.o_strides.head + row * params.o_strides.row +
                          column * layout::kElementBytes,
                      packed);
  }
  if (params.lse != nullptr && lane == 0) store_lse(params, tile, row, empty, row_max, row_sum);
}

// rO = rO / row_sum (FA2 Algorithm 1, line 12), 0 in rows that see no key; LSE to memory (line 13).
template <ForwardConfig kConfig>
__device__ __forceinline__ void normalize(float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
                                          const OnlineSoftmax<kConfig.m16()>& softmax,
                                          const ForwardParams& params, const TileContext& tile,
                                          const WarpContext& warp) {
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t row = warp.lane_row() + 16 * m + 8 * r;
      const bool empty = params.mask.row_is_empty(row);
      const float inverse = ptx::rcp_approx_ftz(softmax.row_sum[m][r]);
#pragma unroll
      for (int d = 0; d < 2 * kConfig.d16(); ++d) {
        rO[m][d][2 * r] = empty ? 0.0f : rO[m][d][2 * r] * inverse;
        rO[m][d][2 * r + 1] = empty ? 0.0f : rO[m][d][2 * r + 1] * inverse;
      }
      if (params.lse != nullptr && warp.lane % 4 == 0 && warp.half == 0 && row < params.seqlen_q) {
        store_lse(params, tile, row, empty, softmax.row_max[m][r], softmax.row_sum[m][r]);
      }
    }
  }
}

// rO, rounded, over this row group's own rows of the Q tile, which nobody reads any more.
template <ForwardConfig kConfig>
__device__ __forceinline__ void stage_output(const float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
                                             uint32_t shared, const WarpContext& warp) {
  const uint32_t lane_address =
      output_lane_address<kConfig>(shared, warp.row_group, warp.half, warp.lane);
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int d = 0; d < 2 * kConfig.d16(); ++d) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        ptx::st_shared_u32(output_store_address<kConfig>(lane_address, m, d, r),
                           ptx::cvt_pack<kConfig.dtype>(rO[m][d][2 * r], rO[m][d][2 * r + 1]));
      }
    }
  }
}

// From there to memory, 16 bytes a lane, whole rows at a time. Pair: each warp takes half of the
// rows.
template <ForwardConfig kConfig>
__device__ __forceinline__ void store_output(const ForwardParams& params, const TileContext& tile,
                                             uint32_t shared, const WarpContext& warp) {
  constexpr layout::Tile kTile = kConfig.q_tile();
  constexpr int kChunks = kTile.chunks_per_page();
  constexpr int kRowStep = output_row_step<kConfig>();
  constexpr int kRows = kConfig.rows_per_warp() / kConfig.warps_per_row_group();
  const layout::Coord first = output_first_chunk<kConfig>(warp.half, warp.lane);
  char* o = params.o + tile.batch * params.o_strides.batch + tile.head * params.o_strides.head;
#pragma unroll
  for (int i = 0; i < kRows / kRowStep; ++i) {
    const int row = first.row + i * kRowStep;
    if (warp.row_begin + row >= params.seqlen_q) break;
    char* o_row = o + (warp.row_begin + row) * params.o_strides.row;
#pragma unroll
    for (int page = 0; page < kTile.num_pages(); ++page) {
      const int column = page * kTile.page_columns() + first.column * layout::kChunkElems;
      if (column >= params.head_dim_v) break;
      uint32_t x[4];
      ptx::ld_shared_v4(x, shared + kConfig.shared_plan().q +
                               kTile.offset_bytes(warp.row_group * kConfig.rows_per_warp() + row,
                                                  page * kChunks + first.column));
      ptx::st_global_v4(o_row + column * layout::kElementBytes, x);
    }
  }
}

}  // namespace tilefold::sm80
