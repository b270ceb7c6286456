// The Hopper forward kernel: a TMA producer warpgroup and two to four wgmma consumer warpgroups in
// a persistent CTA. FlashAttention-2's Algorithm 1 with FlashAttention-3's overlap: the scores of
// the next block are computed while the softmax of the current one runs. docs/hopper.md tells the
// story with its timeline.
#pragma once

#include <cstdint>

#include "cuda/ptx/atomic.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/forward_config.h"
#include "cuda/sm90/forward_params.h"
#include "cuda/sm90/repair.cuh"
#include "cuda/sm90/softmax.cuh"
#include "layout/block_range.h"
#include "layout/hopper.h"
#include "layout/hopper_schedule.h"
#include "layout/pipeline_state.h"
#include "layout/schedule.h"

namespace tilefold::sm90 {

using layout::BlockRange;
using layout::Mask;
using layout::PipelineState;
using layout::TileCoord;

// ---- tile coordinates

template <ForwardConfig kConfig>
__device__ __forceinline__ TileCoord tile_at(const ForwardParams& params, int32_t index) {
  return kConfig.masked ? layout::tile_longest_first(index, params.num_m_blocks,
                                                     params.num_batch_heads, params.section_heads)
                        : layout::tile_in_head_order(index, params.num_m_blocks);
}

__device__ __forceinline__ Mask mask_of(const ForwardParams& params) {
  return {params.seqlen_k, params.diagonal_left, params.diagonal_right};
}

// The key blocks of rows [row_begin, row_begin + rows), as far as these exist.
template <ForwardConfig kConfig>
__device__ __forceinline__ BlockRange blocks_of(const ForwardParams& params, int32_t row_begin,
                                                int32_t rows) {
  if constexpr (!kConfig.masked) {
    return {0, 0, params.seqlen_k / kConfig.block_n,
            (params.seqlen_k + kConfig.block_n - 1) / kConfig.block_n};
  }
  const int32_t row_end = row_begin + rows < params.seqlen_q ? row_begin + rows : params.seqlen_q;
  BlockRange range = layout::block_range(mask_of(params), row_begin, row_end, kConfig.block_n);
  // The factor is applied where both sides are masked.
  if (params.apply_factor) range.full_begin = range.end;
  return range;
}

// ---- barriers
//
// full_x[stage]: one arrival, the producer's, and the bytes of the tile; then the stage belongs to
// the consumers. empty_x[stage]: one arrival of every consumer warp (K, V) or of the thread that
// stored O over Q (Q); then it belongs to the producer. All run on across tiles.

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
      ptx::mbarrier_init(smem + kConfig.empty_q(stage, warpgroup), 1);
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

// ---- producer loop

// Loads `rows` rows of all columns, a chunk of 64 columns at a time.
template <int kColumns, int kRows>
__device__ __forceinline__ void load_tile(uint32_t destination, const TensorMap* map,
                                          uint32_t barrier, int32_t row, int32_t head,
                                          int32_t batch) {
  constexpr int kChunkBytes = kRows * layout::kSwizzleRowBytes;
  constexpr int kChunks = layout::padded_columns(kColumns) / layout::kChunkColumns;
  ptx::mbarrier_arrive_expect_tx(barrier, kChunks * kChunkBytes);
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    ptx::tma_load_4d(destination + chunk * kChunkBytes, map, barrier, chunk * layout::kChunkColumns,
                     row, head, batch);
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
    load_tile<kConfig.head_dim, kConfig.block_n>(smem + kConfig.k_offset(stage), &params.map_k,
                                                 smem + kConfig.full_k(stage),
                                                 n_block * kConfig.block_n, head, batch);
    k_position.advance();
  }

  __device__ __forceinline__ void load_v(int32_t n_block, int32_t head, int32_t batch) {
    const int stage = v_position.stage;
    ptx::mbarrier_wait(smem + kConfig.empty_v(stage), v_position.phase ^ 1);
    load_tile<kConfig.dim_v(), kConfig.block_n>(smem + kConfig.v_offset(stage), &params.map_v,
                                                smem + kConfig.full_v(stage),
                                                n_block * kConfig.block_n, head, batch);
    v_position.advance();
  }
};

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
    const TileCoord tile = tile_at<kConfig>(params, index);
    const int32_t batch = tile.batch_head / params.num_heads;
    const int32_t head = tile.batch_head - batch * params.num_heads;
    const int32_t head_kv = head / params.heads_per_group;
    const int32_t row = tile.m_block * kConfig.block_m();
    const BlockRange range = blocks_of<kConfig>(params, row, kConfig.block_m());

    index += static_cast<int32_t>(gridDim.x);
    if constexpr (kConfig.masked) {
      if (use == 0) ptx::wait_for_prior_grids();  // tile_counter.cu has set the counter to 0
      index = static_cast<int32_t>(gridDim.x + ptx::atomic_add_relaxed(params.tile_counter, 1));
    }
    if (!range.empty()) producer.load_k(range.end - 1, head_kv, batch);
#pragma unroll 1
    for (int warpgroup = 0; warpgroup < kConfig.warpgroups; ++warpgroup) {
      const int stage = q_position.stage;
      ptx::mbarrier_wait(smem + kConfig.empty_q(stage, warpgroup), q_position.phase ^ 1);
      load_tile<kConfig.head_dim, kWarpgroupRows>(
          smem + kConfig.q_offset(stage, warpgroup), &params.map_q,
          smem + kConfig.full_q(stage, warpgroup), row + warpgroup * kWarpgroupRows, head, batch);
    }
    q_position.advance();
#pragma unroll 1
    for (int32_t n_block = range.end - 1; n_block >= range.begin; --n_block) {
      if (n_block > range.begin) producer.load_k(n_block - 1, head_kv, batch);
      producer.load_v(n_block, head_kv, batch);
    }
    if constexpr (kConfig.masked) {
      const int32_t slot = tile_slot(use);
      ptx::mbarrier_wait(smem + kConfig.empty_tile(slot), tile_parity(use) ^ 1);
      ptx::st_shared_u32(smem + kConfig.tile_ring(slot), static_cast<uint32_t>(index));
      ptx::mbarrier_arrive(smem + kConfig.full_tile(slot));
    }
  }
}

// ---- consumer main loop

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

  __device__ __forceinline__ void wait_k() {
    ptx::mbarrier_wait(smem + kConfig.full_k(k_position.stage), k_position.phase);
  }
  __device__ __forceinline__ void wait_v() {
    ptx::mbarrier_wait(smem + kConfig.full_v(v_position.stage), v_position.phase);
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
      begin[h] = mask_of(params).key_begin(row + 8 * h) - first_key;
      end[h] = mask_of(params).key_end(row + 8 * h) - first_key;
    }
    if constexpr (kSides == MaskSides::kBoth) {
      if (params.apply_factor) multiply_scores(rS, params.score_factor);
      mask_both(rS, begin, end);
    } else {
      mask_right(rS, end);
    }
  }

  // The first block of a tile: S and its softmax, with nothing to overlap.
  __device__ __forceinline__ void first_block(int32_t n_block, const BlockRange& range) {
    wait_k();
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
  // `n_block` while O is computed.
  template <MaskSides kSides>
  __device__ __forceinline__ void step(int32_t n_block) {
    wait_k();
    if constexpr (kConfig.order_barrier) {
      ptx::barrier_sync(turn_barrier<kConfig>(warpgroup), 2 * kWarpgroupThreads);
    }
    issue_qk();
    wait_v();
    issue_pv();
    if constexpr (kConfig.order_barrier) {
      const int next = warpgroup + 1 == kConfig.warpgroups ? 0 : warpgroup + 1;
      ptx::barrier_arrive(turn_barrier<kConfig>(next), 2 * kWarpgroupThreads);
    }
    ptx::wgmma_wait<1>();
    ptx::pin_registers(rS);
    release_k();
    mask_scores<kSides>(n_block);
    float rescale[2];
    const bool grown = online_softmax<kConfig.skip_rescale>(rS, stats, params.scale_log2, rescale);
    ptx::wgmma_wait<0>();
    ptx::pin_registers(rO);
    release_v();
    convert_p<kDType>(rP, rS);
    if (grown) scale_rows(rO, rescale);
  }

  // Blocks [begin, end), the last one first, that this warpgroup has nothing to do with.
  __device__ __forceinline__ void pass_over(int32_t begin, int32_t end) {
#pragma unroll 1
    for (int32_t n_block = begin; n_block < end; ++n_block) {
      wait_k();
      release_k();
      wait_v();
      release_v();
    }
  }

  // All blocks of a tile: rO and stats, whose sums are then whole rows'. `after_first` runs once
  // the first softmax is done.
  template <typename AfterFirst>
  __device__ __forceinline__ void attend(const BlockRange& range, AfterFirst&& after_first) {
    int32_t n_block = range.end - 1;
    first_block(n_block, range);
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
    wait_v();
    issue_pv();
#pragma unroll
    for (int h = 0; h < 2; ++h) stats.row_sum[h] = quad_sum(stats.row_sum[h]);
    ptx::wgmma_wait<0>();
    ptx::pin_registers(rO);
    release_v();
  }

  // ---- epilogue

  // rO / row_sum to O, through this warpgroup's spent Q tile; LSE straight to memory.
  __device__ __forceinline__ void finish(const BlockRange& range, int32_t batch, int32_t head,
                                         int32_t first_row) {
    float inverse[2];
    bool empty[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      inverse[h] = ptx::rcp_approx_ftz(stats.row_sum[h]);
      empty[h] = range.empty() || (kConfig.masked && mask_of(params).row_is_empty(row + 8 * h));
      if (params.lse != nullptr && lane % 4 == 0 && row + 8 * h < params.seqlen_q) {
        const float lse = (stats.row_max[h] + ptx::lg2_approx_ftz(stats.row_sum[h])) * kLn2;
        ptx::st_global_f32(params.lse + batch * params.lse_strides.batch +
                               head * params.lse_strides.head +
                               (row + 8 * h) * params.lse_strides.row,
                           empty[h] ? params.empty_row_lse : lse);
      }
    }
    scale_rows(rO, inverse);
#pragma unroll
    for (int i = 0; i < kDimV / 2; ++i) rO[i] = empty[i / 2 % 2] ? 0.0f : rO[i];

    // All four warps have left their last Q K^T: Q may be overwritten.
    const uint32_t sO = smem + kConfig.q_offset(q_position.stage, warpgroup);
    ptx::barrier_sync(warpgroup_barrier<kConfig>(warpgroup), kWarpgroupThreads);
#pragma unroll
    for (int step = 0; step < kDimV / 16; ++step) {
      uint32_t packed[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int i = layout::accumulator_of_a(step, r);
        packed[r] = ptx::cvt_pack<kDType>(rO[i], rO[i + 1]);
      }
      const layout::RowColumn at = layout::stmatrix_address(thread, step);
      ptx::stmatrix_x4(sO + layout::swizzle128(at.row, at.column, kWarpgroupRows), packed);
    }
    repair_rows<kConfig>(params, mask_of(params), range, rO, stats, sO, thread, first_row, batch,
                         head);
    // The stores above, before TMA reads them.
    ptx::fence_proxy_async();
    ptx::barrier_sync(warpgroup_barrier<kConfig>(warpgroup), kWarpgroupThreads);
    if (thread == 0) {
#pragma unroll
      for (int chunk = 0; chunk < layout::padded_columns(kDimV) / layout::kChunkColumns; ++chunk) {
        ptx::tma_store_4d(&params.map_o, sO + chunk * kWarpgroupRows * layout::kSwizzleRowBytes,
                          chunk * layout::kChunkColumns, first_row, head, batch);
      }
      ptx::tma_store_commit();
    }
  }
};

template <ForwardConfig kConfig>
__device__ __forceinline__ void consume(const ForwardParams& params, uint32_t smem, int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const int lane = thread % 32;
  Consumer<kConfig> consumer{params, smem, warpgroup, thread, lane};
  if constexpr (kConfig.order_barrier) {
    // The first turn is warpgroup 0's.
    if (warpgroup + 1 == kConfig.warpgroups) {
      ptx::barrier_arrive(turn_barrier<kConfig>(0), 2 * kWarpgroupThreads);
    }
  }
  // Gives back the Q stage that the tile before was stored from.
  const auto release_q = [&](int stage) {
    if (thread == 0) {
      ptx::tma_store_wait_read();
      ptx::mbarrier_arrive(smem + kConfig.empty_q(stage, warpgroup));
    }
  };

  int32_t index = static_cast<int32_t>(blockIdx.x);
#pragma unroll 1
  for (int32_t use = 0; index < params.num_tiles; ++use) {
    const TileCoord tile = tile_at<kConfig>(params, index);
    const int32_t batch = tile.batch_head / params.num_heads;
    const int32_t head = tile.batch_head - batch * params.num_heads;
    const int32_t tile_row = tile.m_block * kConfig.block_m();
    const int32_t first_row = tile_row + warpgroup * kWarpgroupRows;
    const BlockRange tile_range = blocks_of<kConfig>(params, tile_row, kConfig.block_m());
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
      if (kConfig.q_stages == 2 && use > 0) release_q(consumer.q_position.stage ^ 1);
    };
    ptx::mbarrier_wait(smem + kConfig.full_q(consumer.q_position.stage, warpgroup),
                       consumer.q_position.phase);
    if constexpr (kConfig.skip_blocks) consumer.pass_over(range.end, tile_range.end);
    if (!range.empty()) {
      consumer.attend(range, after_first);
    } else {
      after_first();
    }
    consumer.finish(range, batch, head, first_row);
    if constexpr (kConfig.skip_blocks) consumer.pass_over(tile_range.begin, range.begin);
    if constexpr (kConfig.q_stages == 1) release_q(0);
    consumer.q_position.advance();

    index += static_cast<int32_t>(gridDim.x);
    if constexpr (kConfig.masked) {
      const int32_t slot = tile_slot(use);
      ptx::mbarrier_wait(smem + kConfig.full_tile(slot), tile_parity(use));
      index = static_cast<int32_t>(ptx::ld_shared_u32(smem + kConfig.tile_ring(slot)));
      ptx::sync_warp();  // all lanes have read the slot before one gives it back
      release(smem + kConfig.empty_tile(slot), lane);
    }
  }
  // Shared memory stays until the last O has been read from it.
  if (thread == 0) ptx::tma_store_wait_read();
}

// ---- launch

// The body of a kernel; instantiate.cuh gives it its name. `params` is the kernel's
// __grid_constant__ parameter itself.
template <ForwardConfig kConfig>
__device__ __forceinline__ void forward(const ForwardParams& params) {
  static_assert(kConfig.valid());
  const uint32_t smem = ptx::shared_address(ptx::dynamic_shared_memory());
  if (threadIdx.x == 0) init_barriers<kConfig>(smem);
  ptx::barrier_sync_cta();
  const int warpgroup = ptx::shfl_idx(static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  if (warpgroup == kConfig.warpgroups) {
    ptx::setmaxnreg_dec<kConfig.producer_registers()>();
    if (threadIdx.x % kWarpgroupThreads < 32 && ptx::elect_one()) produce<kConfig>(params, smem);
  } else {
    ptx::setmaxnreg_inc<kConfig.consumer_registers()>();
    consume<kConfig>(params, smem, warpgroup);
  }
}

}  // namespace tilefold::sm90
