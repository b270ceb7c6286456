// The producer of the Hopper kernel: one thread that loads all tiles by TMA, and one that opens the
// tile counter.
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/forward_config.h"
#include "cuda/sm90/forward_params.h"
#include "cuda/sm90/pipeline.cuh"
#include "cuda/sm90/tile_counter.cuh"
#include "layout/hopper.h"

namespace tilefold::sm90 {

// Loads kRows rows, in chunks of 64 columns. Of packed heads `head` is the K/V head and `row` the
// first head of its group.
template <int kColumns, int kRows, ptx::CacheUse kUse, bool kPacked = false>
__device__ __forceinline__ void load_tile(uint32_t destination, const TensorMap* map,
                                          uint32_t barrier, int32_t row, int32_t head,
                                          int32_t batch) {
  constexpr int kChunks = layout::padded_columns(kColumns) / layout::kChunkColumns;
  constexpr int kChunkBytes = kRows * layout::kSwizzleRowBytes;
  ptx::mbarrier_arrive_expect_tx(barrier, kChunks * kChunkBytes);
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    if constexpr (kPacked) {
      ptx::tma_load_5d<kUse>(destination + chunk * kChunkBytes, map, barrier,
                             chunk * layout::kChunkColumns, 0, row, head, batch);
    } else {
      ptx::tma_load_4d<kUse>(destination + chunk * kChunkBytes, map, barrier,
                             chunk * layout::kChunkColumns, row, head, batch);
    }
  }
}

template <ForwardConfig kConfig>
struct Producer {
  const ForwardParams& params;
  uint32_t smem;
  PipelineState<kConfig.stages> k_position;
  PipelineState<kConfig.stages> v_position;

  __device__ __forceinline__ void load_k(int32_t n_block, int32_t head, int32_t batch) {
    const int stage = k_position.stage;
    ptx::mbarrier_wait(smem + kConfig.empty_k(stage), k_position.phase ^ 1);
    load_tile<kConfig.head_dim, kConfig.block_n, ptx::CacheUse::kAgain>(
        smem + kConfig.k_offset(stage), &params.map_k, smem + kConfig.full_k(stage),
        n_block * kConfig.block_n, head, batch);
    k_position.advance();
  }

  __device__ __forceinline__ void load_v(int32_t n_block, int32_t head, int32_t batch) {
    const int stage = v_position.stage;
    ptx::mbarrier_wait(smem + kConfig.empty_v(stage), v_position.phase ^ 1);
    load_tile<kConfig.dim_v(), kConfig.block_n, ptx::CacheUse::kAgain>(
        smem + kConfig.v_offset(stage), &params.map_v, smem + kConfig.full_v(stage),
        n_block * kConfig.block_n, head, batch);
    v_position.advance();
  }
};

// Use `use` of the ring of tiles.
template <ForwardConfig kConfig>
__device__ __forceinline__ void hand_out_tile(uint32_t smem, int32_t use, int32_t index) {
  const int32_t slot = tile_slot(use);
  ptx::mbarrier_wait(smem + kConfig.empty_tile(slot), tile_parity(use) ^ 1);
  ptx::st_shared_u32(smem + kConfig.tile_ring(slot), static_cast<uint32_t>(index));
  ptx::mbarrier_arrive(smem + kConfig.full_tile(slot));
}

// One thread, not the one that loads: to open the counter takes microseconds.
template <ForwardConfig kConfig>
__device__ __forceinline__ void count_first_tile(const ForwardParams& params, uint32_t smem) {
  int32_t index = params.num_tiles;
  if (params.tile_counter != nullptr) {
    open_tile_counter(params.tile_counter, params.ticket);
    index = count_tile(params.tile_counter, static_cast<int32_t>(gridDim.x), params.num_tiles);
  }
  hand_out_tile<kConfig>(smem, 0, index);
}

// One thread. K runs one block ahead of V, and from the last block to the first: the ragged block
// comes first, where the loop has not begun.
template <ForwardConfig kConfig>
__device__ __forceinline__ void produce(const ForwardParams& params, uint32_t smem) {
  ptx::prefetch_tensor_map(&params.map_q);
  ptx::prefetch_tensor_map(&params.map_k);
  ptx::prefetch_tensor_map(&params.map_v);
  ptx::prefetch_tensor_map(&params.map_o);
  Producer<kConfig> producer{params, smem, {}, {}};
  PipelineState<kConfig.q_stages> q_position;
  int32_t index = static_cast<int32_t>(blockIdx.x);
#pragma unroll 1
  for (int32_t use = 0; index < params.num_tiles; ++use) {
    const Tile tile = tile_at<kConfig>(params, index);
    const int32_t head_kv = head_kv_of<kConfig>(params, tile.head);
    const BlockRange range = blocks_of<kConfig>(params, tile.row, kConfig.block_m());

    if constexpr (!kConfig.counts_tiles()) {
      index += static_cast<int32_t>(gridDim.x);
    } else if (use > 0) {
      index = count_tile(params.tile_counter, static_cast<int32_t>(gridDim.x), params.num_tiles);
    }
    const auto load_q = [&] {
      const int stage = q_position.stage;
#pragma unroll 1
      for (int warpgroup = 0; warpgroup < kConfig.warpgroups; ++warpgroup) {
        ptx::mbarrier_wait(smem + kConfig.empty_q(stage, warpgroup), q_position.phase ^ 1);
        const int32_t first_row = tile.row + warpgroup * kWarpgroupRows;
        load_tile<kConfig.head_dim, kWarpgroupRows, ptx::CacheUse::kOnce, kConfig.pack_heads>(
            smem + kConfig.q_offset(stage, warpgroup), &params.map_q,
            smem + kConfig.full_q(stage, warpgroup),
            kConfig.pack_heads ? params.packed.head(first_row) : first_row, tile.head, tile.batch);
      }
      q_position.advance();
    };
    // Where there is one stage of Q and O leaves over it, the first blocks of K and V come before
    // it: it has to wait for O of the tile before, they don't.
    const bool q_late = kConfig.q_stages == 1 && kConfig.o_stages == 0 && use > 0 && !range.empty();
    const int32_t q_block = q_late ? range.end - 1 : range.end;
#pragma unroll 1
    for (int32_t n_block = range.end; n_block >= range.begin; --n_block) {
      if (n_block > range.begin) producer.load_k(n_block - 1, head_kv, tile.batch);
      if (n_block < range.end) producer.load_v(n_block, head_kv, tile.batch);
      if (n_block == q_block) load_q();
    }
    if constexpr (kConfig.counts_tiles()) {
      if (use == 0) {
        // Counted by count_first_tile(). Not given back: this thread alone fills the slot again.
        wait_tile<kConfig>(smem, 0);
        index = read_tile<kConfig>(smem, 0);
      } else {
        hand_out_tile<kConfig>(smem, use, index);
      }
    }
  }
}

}  // namespace tilefold::sm90
