// Which part of the problem a CTA and a warp work on.
#pragma once

#include <cstdint>

#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/sm80/config.h"
#include "cuda/sm80/params.h"
#include "layout/block_range.h"
#include "layout/schedule.h"

namespace tilefold::sm80 {

struct TileContext {
  int32_t row_begin;  // first query row
  int32_t head;
  int32_t head_kv;
  int32_t batch;
};

struct WarpContext {
  int32_t lane;
  int32_t warp;
  int32_t row_group;  // flat: the warp; pair: the pair
  int32_t half;       // pair: which of the two
  int32_t row_begin;  // first query row

  // The query row of this lane's accumulator elements 0, 1 (block 0 of 16 rows); elements 2, 3 are
  // 8 rows further.
  __device__ __forceinline__ int32_t lane_row() const { return row_begin + lane / 4; }
};

template <ForwardConfig kConfig>
struct Coordinates {
  layout::TileCoord coord;
  TileContext tile;
  WarpContext warp;

  __device__ __forceinline__ explicit Coordinates(const ForwardParams& params) {
    const int32_t thread = ptx::thread_index_x();
    coord = layout::tile_of(params.grid, ptx::cta_index_x());
    tile.row_begin = coord.m_block * kConfig.block_m;
    tile.batch =
        static_cast<int32_t>(params.by_num_heads.quotient(static_cast<uint32_t>(coord.batch_head)));
    tile.head = coord.batch_head - tile.batch * params.num_heads;
    tile.head_kv =
        static_cast<int32_t>(params.by_heads_per_group.quotient(static_cast<uint32_t>(tile.head)));
    warp.lane = thread % 32;
    warp.warp = ptx::shfl_idx(thread / 32, 0);
    warp.row_group = warp.warp / kConfig.warps_per_row_group();
    warp.half = warp.warp % kConfig.warps_per_row_group();
    warp.row_begin = tile.row_begin + warp.row_group * kConfig.rows_per_warp();
  }

  // One past the last row of this warp's that exists.
  __device__ __forceinline__ int32_t warp_row_end(const ForwardParams& params) const {
    return min(warp.row_begin + kConfig.rows_per_warp(), params.seqlen_q);
  }
  // The key blocks that the CTA visits, and those of them that this warp needs.
  __device__ __forceinline__ layout::BlockRange cta_range(const ForwardParams& params) const {
    const int32_t row_end = min(tile.row_begin + kConfig.block_m, params.seqlen_q);
    return layout::split_of(
        layout::block_range(params.mask, tile.row_begin, row_end, kConfig.block_n), coord.split,
        params.grid.num_splits);
  }
  __device__ __forceinline__ layout::BlockRange warp_range(const ForwardParams& params) const {
    return layout::block_range(params.mask, warp.row_begin, warp_row_end(params), kConfig.block_n);
  }
};

}  // namespace tilefold::sm80
