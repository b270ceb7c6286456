// What producer and consumers of the Hopper kernel agree on: tiles and their key blocks, and the
// barriers between them.
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/sm90/forward_config.h"
#include "cuda/sm90/forward_params.h"
#include "layout/block_range.h"
#include "layout/hopper_schedule.h"
#include "layout/pipeline_state.h"
#include "layout/schedule.h"

namespace tilefold::sm90 {

using layout::BlockRange;
using layout::Mask;
using layout::PipelineState;
using layout::TileCoord;

// ---- tile coordinates

struct Tile {
  int32_t batch;
  int32_t head;
  int32_t row;  // its first one; masked: may be before row 0
};

template <ForwardConfig kConfig>
__device__ __forceinline__ Tile tile_at(const ForwardParams& params, int32_t index) {
  const TileCoord at = kConfig.counts_tiles()
                           ? layout::tile_of(params.order, static_cast<uint32_t>(index))
                           : layout::tile_in_head_order(index, params.by_m_blocks);
  const layout::Divisor& by_heads = params.by_num_heads;
  const auto batch = static_cast<int32_t>(by_heads.quotient(static_cast<uint32_t>(at.batch_head)));
  const int32_t first_row = kConfig.counts_tiles() ? params.first_tile_row : 0;
  return {batch, at.batch_head - batch * static_cast<int32_t>(by_heads.divisor),
          at.m_block * kConfig.block_m() + first_row};
}

// The K/V head of a tile's head.
template <ForwardConfig kConfig>
__device__ __forceinline__ int32_t head_kv_of(const ForwardParams& params, int32_t head) {
  if constexpr (kConfig.pack_heads) return head;
  return static_cast<int32_t>(params.by_heads_per_group.quotient(static_cast<uint32_t>(head)));
}

// The query of a tile's row.
template <ForwardConfig kConfig>
__device__ __forceinline__ int32_t query_of(const ForwardParams& params, int32_t row) {
  return kConfig.pack_heads ? params.packed.query(row) : row;
}

// Its head in Q and O.
template <ForwardConfig kConfig>
__device__ __forceinline__ int32_t head_q_of(const ForwardParams& params, int32_t head,
                                             int32_t row) {
  return kConfig.pack_heads ? head * params.heads_per_group + params.packed.head(row) : head;
}

// A tile's rows before the first query and after the last are computed, and go nowhere.
template <ForwardConfig kConfig>
__device__ __forceinline__ bool row_exists(const ForwardParams& params, int32_t row) {
  if constexpr (kConfig.pack_heads) return params.packed.exists(row);
  return static_cast<uint32_t>(row) < static_cast<uint32_t>(params.seqlen_q);
}

__device__ __forceinline__ Mask mask_of(const ForwardParams& params) {
  return {params.seqlen_k, params.diagonal_left, params.diagonal_right};
}

// Whether warpgroups take turns at the tensor cores. Of packed rows, where one has all rows of a
// tile, the others pass over its blocks instead; else those without rows take their turns too.
template <ForwardConfig kConfig>
__device__ __forceinline__ bool takes_turns(const ForwardParams& params) {
  if constexpr (kConfig.pack_heads) return params.packed.head(kWarpgroupRows) < params.packed.heads;
  return kConfig.order_barrier;
}

// The key blocks of rows [row_begin, row_begin + rows), as far as these exist.
template <ForwardConfig kConfig>
__device__ __forceinline__ BlockRange blocks_of(const ForwardParams& params, int32_t row_begin,
                                                int32_t rows) {
  if constexpr (!kConfig.masked) {
    return {0, 0, params.seqlen_k / kConfig.block_n,
            (params.seqlen_k + kConfig.block_n - 1) / kConfig.block_n};
  }
  if constexpr (kConfig.pack_heads) {  // the queries of any head are all of them
    if (!takes_turns<kConfig>(params) && row_begin > 0) return {};
    row_begin = 0;
    rows = params.seqlen_q;
  }
  const int32_t begin = row_begin > 0 ? row_begin : 0;
  const int32_t end = row_begin + rows < params.seqlen_q ? row_begin + rows : params.seqlen_q;
  BlockRange range = layout::block_range(mask_of(params), begin, end, kConfig.block_n);
  // The factor is applied where both sides are masked.
  if (params.apply_factor) range.full_begin = range.end;
  return range;
}

// ---- barriers
//
// full_x[stage]: one arrival, the producer's, and the bytes of the tile; then the stage belongs to
// the consumers. empty_x[stage]: one arrival of every consumer warp (K, V), of every warp of the
// warpgroup (Q) or, where O leaves over Q, of the thread that stored it; then it belongs to the
// producer. full_tile[slot]: one arrival, that of the thread that counted the tile;
// empty_tile[slot]: one of every consumer warp. All run on across tiles.

// Named barriers; 0 is the whole CTA's.
template <ForwardConfig kConfig>
__device__ __forceinline__ int turn_barrier(int warpgroup) {
  return 1 + warpgroup;
}
template <ForwardConfig kConfig>
__device__ __forceinline__ int warpgroup_barrier(int warpgroup) {
  return 1 + kConfig.warpgroups + warpgroup;
}

template <ForwardConfig kConfig>
__device__ __forceinline__ void init_barriers(uint32_t smem) {
  constexpr int kConsumerWarps = kConfig.consumer_threads() / 32;
  for (int stage = 0; stage < kConfig.stages; ++stage) {
    ptx::mbarrier_init(smem + kConfig.full_k(stage), 1);
    ptx::mbarrier_init(smem + kConfig.full_v(stage), 1);
    ptx::mbarrier_init(smem + kConfig.empty_k(stage), kConsumerWarps);
    ptx::mbarrier_init(smem + kConfig.empty_v(stage), kConsumerWarps);
  }
  for (int stage = 0; stage < kConfig.q_stages; ++stage) {
    for (int warpgroup = 0; warpgroup < kConfig.warpgroups; ++warpgroup) {
      ptx::mbarrier_init(smem + kConfig.full_q(stage, warpgroup), 1);
      ptx::mbarrier_init(smem + kConfig.empty_q(stage, warpgroup),
                         kConfig.o_stages == 0 ? 1 : kWarpgroupThreads / 32);
    }
  }
  for (int slot = 0; slot < kTileRingSlots; ++slot) {
    ptx::mbarrier_init(smem + kConfig.full_tile(slot), 1);
    ptx::mbarrier_init(smem + kConfig.empty_tile(slot), kConsumerWarps);
  }
  ptx::fence_mbarrier_init();
}

// One arrival a warp: what its lanes read before is theirs no longer.
__device__ __forceinline__ void release(uint32_t barrier, int lane) {
  if (lane == 0) ptx::mbarrier_arrive(barrier);
}

// The ring of tiles of a dynamic schedule: use n of the ring carries the tile after the n-th.
__device__ __forceinline__ int32_t tile_slot(int32_t use) { return use % kTileRingSlots; }
__device__ __forceinline__ uint32_t tile_parity(int32_t use) { return use / kTileRingSlots & 1; }

template <ForwardConfig kConfig>
__device__ __forceinline__ void wait_tile(uint32_t smem, int32_t use) {
  ptx::mbarrier_wait(smem + kConfig.full_tile(tile_slot(use)), tile_parity(use));
}
template <ForwardConfig kConfig>
__device__ __forceinline__ int32_t read_tile(uint32_t smem, int32_t use) {
  return static_cast<int32_t>(ptx::ld_shared_u32(smem + kConfig.tile_ring(tile_slot(use))));
}

}  // namespace tilefold::sm90
