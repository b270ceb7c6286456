// A consumer warpgroup of the Hopper kernel: 64 query rows from scores to O.
#pragma once

#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/forward_config.h"
#include "cuda/sm90/forward_params.h"
#include "cuda/sm90/pipeline.cuh"
#include "cuda/sm90/repair.cuh"
#include "cuda/sm90/softmax.cuh"
#include "layout/hopper.h"

namespace tilefold::sm90 {

enum class MaskSides { kNone, kRight, kBoth };

__device__ __forceinline__ uint64_t descriptor(uint32_t low) {
  return static_cast<uint64_t>(layout::descriptor_high()) << 32 | low;
}

// What one consumer warpgroup carries: its 64 rows of the current tile, and its place in the rings.
template <ForwardConfig kConfig>
struct Consumer {
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kDimV = kConfig.dim_v();
  static constexpr int kBlockN = kConfig.block_n;
  static constexpr DType kDType = kConfig.dtype;

  const ForwardParams& params;
  uint32_t smem;
  int warpgroup;
  int thread;  // of the warpgroup
  int lane;

  PipelineState<kConfig.stages> k_position;
  PipelineState<kConfig.stages> v_position;
  PipelineState<kConfig.q_stages> q_position;

  int32_t row;  // this thread's first row; the second is row + 8
  float rS[kBlockN / 2];
  uint32_t rP[kBlockN / 16][4];
  float rO[kDimV / 2];
  RowStats stats;

  // rS = sQ sK^T, not waited for
  __device__ __forceinline__ void issue_qk() {
    const uint32_t q = layout::descriptor_low(smem + kConfig.q_offset(q_position.stage, warpgroup),
                                              layout::kLeadingUnused);
    const uint32_t k =
        layout::descriptor_low(smem + kConfig.k_offset(k_position.stage), layout::kLeadingUnused);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / layout::kWgmmaK; ++step) {
      ptx::wgmma_ss<kBlockN, kDType>(rS, descriptor(q + layout::k_major_step(step, kWarpgroupRows)),
                                     descriptor(k + layout::k_major_step(step, kBlockN)),
                                     step != 0);
    }
    ptx::wgmma_commit();
  }

  // rO += rP sV, not waited for
  __device__ __forceinline__ void issue_pv() {
    const uint32_t v = layout::descriptor_low(smem + kConfig.v_offset(v_position.stage),
                                              kBlockN * layout::kSwizzleRowBytes);
    ptx::pin_registers(rO);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockN / layout::kWgmmaK; ++step) {
      ptx::wgmma_rs<kDimV, kDType>(rO, rP[step], descriptor(v + layout::mn_major_step(step)));
    }
    ptx::wgmma_commit();
  }

  __device__ __forceinline__ void wait_q() {
    ptx::mbarrier_wait(smem + kConfig.full_q(q_position.stage, warpgroup), q_position.phase);
  }
  __device__ __forceinline__ void wait_k() {
    ptx::mbarrier_wait(smem + kConfig.full_k(k_position.stage), k_position.phase);
  }
  __device__ __forceinline__ void wait_v() {
    ptx::mbarrier_wait(smem + kConfig.full_v(v_position.stage), v_position.phase);
  }
  // Where O does not leave over it: after this warp's last Q K^T of the tile.
  __device__ __forceinline__ void release_q() {
    release(smem + kConfig.empty_q(q_position.stage, warpgroup), lane);
  }
  __device__ __forceinline__ void release_k() {
    release(smem + kConfig.empty_k(k_position.stage), lane);
    k_position.advance();
  }
  __device__ __forceinline__ void release_v() {
    release(smem + kConfig.empty_v(v_position.stage), lane);
    v_position.advance();
  }

  template <MaskSides kSides>
  __device__ __forceinline__ void mask_scores(int32_t n_block) {
    if constexpr (kSides == MaskSides::kNone) return;
    const int32_t first_key = n_block * kBlockN + 2 * (lane % 4);
    int32_t begin[2];
    int32_t end[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      begin[h] = mask_of(params).key_begin(query_of<kConfig>(params, row + 8 * h)) - first_key;
      end[h] = mask_of(params).key_end(query_of<kConfig>(params, row + 8 * h)) - first_key;
    }
    if constexpr (kSides == MaskSides::kBoth) {
      if (params.apply_factor) multiply_scores(rS, params.score_factor);
      mask_both(rS, begin, end);
    } else {
      mask_right(rS, end);
    }
  }

  // Turns at the tensor cores, FlashAttention-3's ping-pong scheduling: a warpgroup has one for
  // each block of a tile but the last key block, with which the tile begins.
  __device__ __forceinline__ void take_turn() {
    if (takes_turns<kConfig>(params)) {
      ptx::barrier_sync(turn_barrier<kConfig>(warpgroup), 2 * kWarpgroupThreads);
    }
  }
  __device__ __forceinline__ void give_turn() {
    if (takes_turns<kConfig>(params)) {
      const int next = warpgroup + 1 == kConfig.warpgroups ? 0 : warpgroup + 1;
      ptx::barrier_arrive(turn_barrier<kConfig>(next), 2 * kWarpgroupThreads);
    }
  }

  // The first block of a tile: S and its softmax, with nothing to overlap.
  __device__ __forceinline__ void first_block(int32_t n_block, const BlockRange& range,
                                              bool in_turn) {
    wait_k();
    if (kConfig.skip_blocks && in_turn) {
      take_turn();
      give_turn();
    }
    wait_q();
    issue_qk();
    ptx::wgmma_wait<0>();
    ptx::pin_registers(rS);
    release_k();
    if (n_block < range.full_begin) {
      mask_scores<MaskSides::kBoth>(n_block);
    } else if (n_block >= range.full_end) {
      mask_scores<MaskSides::kRight>(n_block);
    }
    float rescale[2];
    online_softmax<false>(rS, stats, params.scale_log2, rescale);
    convert_p<kDType>(rP, rS);
  }

  // One step: S of `n_block` on the tensor cores, then O of the block before, then the softmax of
  // `n_block` while O is computed. (FlashAttention-3's intra-warpgroup pipelining, two stages.)
  template <MaskSides kSides>
  __device__ __forceinline__ void step(int32_t n_block) {
    wait_k();
    take_turn();
    issue_qk();
    wait_v();
    issue_pv();
    give_turn();
    ptx::wgmma_wait<1>();
    ptx::pin_registers(rS);
    release_k();
    mask_scores<kSides>(n_block);
    float rescale[2];
    const bool grown = online_softmax<true>(rS, stats, params.scale_log2, rescale);
    ptx::wgmma_wait<0>();
    ptx::pin_registers(rO);
    release_v();
    convert_p<kDType>(rP, rS);
    if (grown) scale_rows(rO, rescale);
  }

  __device__ __forceinline__ void pass_over_v() {
    wait_v();
    ptx::sync_warp();  // all lanes have seen the phase before one gives the stage back
    release_v();
  }
  // Blocks [begin, end), the last one first, that this warpgroup has nothing to do with.
  // `last_has_turn`: the last one is not the tile's last. `v_later`: V of the first is left to
  // pass_over_v(), since it comes behind K of the block before it.
  __device__ __forceinline__ void pass_over(int32_t begin, int32_t end, bool last_has_turn,
                                            bool v_later) {
#pragma unroll 1
    for (int32_t n_block = end - 1; n_block >= begin; --n_block) {
      if (last_has_turn || n_block != end - 1) {
        take_turn();
        give_turn();
      }
      wait_k();
      ptx::sync_warp();
      release_k();
      if (!v_later || n_block != begin) pass_over_v();
    }
  }

  // All blocks of a tile: rO and stats, whose sums are then whole rows'. `after_first` runs once
  // the first softmax is done.
  template <typename AfterFirst>
  __device__ __forceinline__ void attend(const BlockRange& range, int32_t tile_end,
                                         AfterFirst&& after_first) {
    int32_t n_block = range.end - 1;
    first_block(n_block, range, range.end != tile_end);
    if (kConfig.skip_blocks && range.end != tile_end) pass_over_v();
    after_first();
    --n_block;
    if constexpr (kConfig.masked) {
      const int32_t right_end =
          range.full_begin > range.full_end ? range.full_begin : range.full_end;
#pragma unroll 1
      for (; n_block >= right_end; --n_block) step<MaskSides::kRight>(n_block);
#pragma unroll 1
      for (; n_block >= range.full_begin; --n_block) step<MaskSides::kNone>(n_block);
#pragma unroll 1
      for (; n_block >= range.begin; --n_block) step<MaskSides::kBoth>(n_block);
    } else {
#pragma unroll 1
      for (; n_block >= range.begin; --n_block) step<MaskSides::kNone>(n_block);
    }
    if constexpr (kConfig.o_stages > 0) release_q();
    wait_v();
    issue_pv();
#pragma unroll
    for (int h = 0; h < 2; ++h) stats.row_sum[h] = quad_sum(stats.row_sum[h]);
    ptx::wgmma_wait<0>();
    ptx::pin_registers(rO);
    release_v();
  }

  // ---- epilogue

  // Gives back a Q stage over which O leaves, once TMA has read O.
  __device__ __forceinline__ void release_stored_q(int stage) {
    if (thread != 0) return;
    ptx::tma_store_wait_read<0>();
    ptx::mbarrier_arrive(smem + kConfig.empty_q(stage, warpgroup));
  }

  __device__ __forceinline__ void sync_warpgroup() {
    ptx::barrier_sync(warpgroup_barrier<kConfig>(warpgroup), kWarpgroupThreads);
  }

  // rO /= row_sum, 0 in rows without a key; the LSE straight to memory.
  __device__ __forceinline__ void normalize(const BlockRange& range, int32_t batch, int32_t head) {
    float inverse[2];
    bool empty[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      inverse[h] = ptx::rcp_approx_ftz(stats.row_sum[h]);
      empty[h] =
          range.empty() ||
          (kConfig.masked && mask_of(params).row_is_empty(query_of<kConfig>(params, row + 8 * h)));
      if (params.lse != nullptr && lane % 4 == 0 && row_exists<kConfig>(params, row + 8 * h)) {
        const float lse = (stats.row_max[h] + ptx::lg2_approx_ftz(stats.row_sum[h])) * kLn2;
        ptx::st_global_f32(
            params.lse + batch * params.lse_strides.batch +
                head_q_of<kConfig>(params, head, row + 8 * h) * params.lse_strides.head +
                query_of<kConfig>(params, row + 8 * h) * params.lse_strides.row,
            empty[h] ? params.empty_row_lse : lse);
      }
    }
    scale_rows(rO, inverse);
    if (ptx::vote_any(empty[0] || empty[1])) {
#pragma unroll
      for (int i = 0; i < kDimV / 2; ++i) rO[i] = empty[i / 2 % 2] ? 0.0f : rO[i];
    }
  }

  // 16 columns of O to shared memory.
  __device__ __forceinline__ void stage_columns(int step) {
    constexpr int kStepsOfChunk = layout::kChunkColumns / 16;
    uint32_t packed[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = layout::accumulator_of_a(step, r);
      packed[r] = ptx::cvt_pack<kDType>(rO[i], rO[i + 1]);
    }
    const layout::Coord in_chunk = layout::stmatrix_address(thread, step % kStepsOfChunk);
    ptx::stmatrix_x4(smem + kConfig.o_offset(q_position.stage, warpgroup, step / kStepsOfChunk) +
                         layout::swizzle128(in_chunk.row, in_chunk.column, kWarpgroupRows),
                     packed);
  }

  // Chunks [begin, end) of O from shared memory to memory, once all have written them.
  __device__ __forceinline__ void store_chunks(int begin, int end, int32_t batch, int32_t head,
                                               int32_t first_row) {
    ptx::fence_proxy_async();  // the stores to shared memory, before TMA reads them
    sync_warpgroup();
    if (thread != 0) return;
    if (!kConfig.masked || first_row >= 0) {  // before row 0 there is no query
#pragma unroll
      for (int chunk = begin; chunk < end; ++chunk) {
        const uint32_t source = smem + kConfig.o_offset(q_position.stage, warpgroup, chunk);
        if constexpr (kConfig.pack_heads) {
          ptx::tma_store_5d<ptx::CacheUse::kOnce>(&params.map_o, source,
                                                  chunk * layout::kChunkColumns, 0,
                                                  params.packed.head(first_row), head, batch);
        } else {
          ptx::tma_store_4d<ptx::CacheUse::kOnce>(
              &params.map_o, source, chunk * layout::kChunkColumns, first_row, head, batch);
        }
      }
    }
    ptx::tma_store_commit();  // of nothing too: the ring counts groups
  }

  // All of O at once over this warpgroup's spent Q tile. Rows that are computed again change there,
  // before O leaves.
  __device__ __forceinline__ void store_over_q(const BlockRange& range, int32_t batch, int32_t head,
                                               int32_t first_row) {
    sync_warpgroup();  // all warps have left the last Q K^T: no more Q
#pragma unroll
    for (int step = 0; step < kDimV / 16; ++step) stage_columns(step);
    const RowFaults faults = row_faults<kConfig>(rO, stats);
    if (ptx::vote_any(faults.any())) {
      ptx::sync_warp();  // the rows' stores, before other lanes store over them
      const uint32_t sO = smem + kConfig.o_offset(q_position.stage, warpgroup, 0);
      repair_rows<kConfig>(params, range, faults, thread, first_row, batch, head,
                           [&](int32_t row, int column, uint16_t value) {
                             ptx::st_shared_u16(
                                 sO + layout::swizzle128(row - first_row, column, kWarpgroupRows),
                                 value);
                           });
    }
    store_chunks(0, kConfig.o_chunks(), batch, head, first_row);
  }

  // O chunk by chunk through this warpgroup's ring. Out of it O has left when rows are computed
  // again: they follow it to memory.
  __device__ __forceinline__ void store_through_ring(const BlockRange& range, int32_t batch,
                                                     int32_t head, int32_t first_row) {
    constexpr int kStepsOfChunk = layout::kChunkColumns / 16;
#pragma unroll
    for (int step = 0; step < kDimV / 16; ++step) {
      if (step % kStepsOfChunk == 0) {
        // TMA has read what left through this stage before.
        if (thread == 0) ptx::tma_store_wait_read<kConfig.o_stages - 1>();
        sync_warpgroup();
      }
      stage_columns(step);
      if ((step + 1) % kStepsOfChunk == 0) {
        const int chunk = step / kStepsOfChunk;
        store_chunks(chunk, chunk + 1, batch, head, first_row);
      }
    }
    const RowFaults faults = row_faults<kConfig>(rO, stats);
    if (ptx::barrier_red_or(warpgroup_barrier<kConfig>(warpgroup), kWarpgroupThreads,
                            faults.any())) {
      if (thread == 0) ptx::tma_store_wait();  // O is in memory and may be stored over
      sync_warpgroup();
      repair_rows<kConfig>(params, range, faults, thread, first_row, batch, head,
                           [&](int32_t row, int column, uint16_t value) {
                             if (column >= params.head_dim_v) return;
                             ptx::st_global_u16(static_cast<char*>(params.o) +
                                                    2 * (batch * params.o_strides.batch +
                                                         head * params.o_strides.head +
                                                         row * params.o_strides.row + column),
                                                value);
                           });
    }
    // Orders nothing. Where the warps need not go on together the compiler moves the descriptors
    // of every block from vector registers: 50 R2UR instead of 14 in the masked row's loops.
    sync_warpgroup();
  }

  // From rO and stats to O and LSE in memory.
  __device__ __forceinline__ void finish(const BlockRange& range, int32_t batch, int32_t head,
                                         int32_t first_row) {
    normalize(range, batch, head);
    if constexpr (kConfig.o_stages > 0) {
      store_through_ring(range, batch, head, first_row);
    } else {
      store_over_q(range, batch, head, first_row);
    }
  }
};

template <ForwardConfig kConfig>
__device__ __forceinline__ void consume(const ForwardParams& params, uint32_t smem, int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const int lane = thread % 32;
  Consumer<kConfig> consumer{params, smem, warpgroup, thread, lane};
  if (takes_turns<kConfig>(params)) {
    // The first turn is warpgroup 0's.
    if (warpgroup + 1 == kConfig.warpgroups) {
      ptx::barrier_arrive(turn_barrier<kConfig>(0), 2 * kWarpgroupThreads);
    }
  }
  int32_t index = static_cast<int32_t>(blockIdx.x);
#pragma unroll 1
  for (int32_t use = 0; index < params.num_tiles; ++use) {
    const Tile tile = tile_at<kConfig>(params, index);
    const int32_t first_row = tile.row + warpgroup * kWarpgroupRows;
    const BlockRange tile_range = blocks_of<kConfig>(params, tile.row, kConfig.block_m());
    BlockRange range = tile_range;
    if constexpr (kConfig.skip_blocks) {
      range = blocks_of<kConfig>(params, first_row, kWarpgroupRows);
      if (range.empty()) range.begin = range.end = tile_range.begin;
    }
    consumer.row = first_row + layout::wgmma_accumulator(thread, 0).row;
    consumer.stats = RowStats{};
#pragma unroll
    for (int i = 0; i < kConfig.dim_v() / 2; ++i) consumer.rO[i] = 0.0f;

    const auto after_first = [&] {
      if (kConfig.q_stages == 2 && use > 0) {
        consumer.release_stored_q(consumer.q_position.stage ^ 1);  // the tile before left from it
      }
    };
    if constexpr (kConfig.skip_blocks) {
      consumer.pass_over(range.end, tile_range.end, false, !range.empty());
    }
    if (!range.empty()) {
      consumer.attend(range, tile_range.end, after_first);
    } else {
      consumer.wait_q();
      after_first();
    }
    consumer.finish(range, tile.batch, tile.head, first_row);
    if (kConfig.o_stages > 0 && range.empty()) consumer.release_q();  // else attend() has
    if constexpr (kConfig.skip_blocks) {
      consumer.pass_over(tile_range.begin, range.begin, true, false);
    }
    if constexpr (kConfig.q_stages == 1 && kConfig.o_stages == 0) consumer.release_stored_q(0);
    consumer.q_position.advance();

    index += static_cast<int32_t>(gridDim.x);
    if constexpr (kConfig.counts_tiles()) {
      // One lane reads, the one that gives the slot back. The index is uniform then: what follows
      // from it needs no vector registers.
      wait_tile<kConfig>(smem, use);
      int32_t next = 0;
      if (lane == 0) next = read_tile<kConfig>(smem, use);
      index = ptx::shfl_idx(next, 0);
      release(smem + kConfig.empty_tile(tile_slot(use)), lane);
    }
  }
  // Shared memory stays until the last O has been read from it.
  if (thread == 0) ptx::tma_store_wait_read();
}

}  // namespace tilefold::sm90
