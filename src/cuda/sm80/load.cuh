// The two ways in which tiles of Q, K and V come to shared memory, behind one set of hooks.
#pragma once

#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/sm80/config.h"
#include "cuda/sm80/coordinates.cuh"
#include "cuda/sm80/params.h"
#include "layout/pipeline_state.h"
#include "layout/tile.h"

namespace tilefold::sm80 {

// Both pipelines have these hooks, which every warp of the CTA calls for every key block, in order:
//   before_scores  K(j) has landed when it returns (so has Q, the first time)
//   after_scores   this warp has read K(j); called before the softmax, so that with cp.async
//   nothing
//                  of this waits between the exponentials and P V (PERF: what a barrier there costs
//                  is in docs/devlog.md, "What the prototype showed")
//   before_values  V(j) has landed when it returns
//   after_values   this warp has read V(j)
// stage() names the buffers of block j in between.

// cp.async: all threads copy; wait_group makes a thread's own copies visible to it, the CTA barrier
// makes everyone's visible to all and frees the buffer that was read before it.
//   stages >= 2: K(j) and V(j) are one commit group, stages - 1 groups are in flight, and the one
//                barrier at the top both publishes block j and frees the stage of block j - 1.
//   stages == 1: FA2's order. V(j) loads during Q K(j)^T, K(j+1) during softmax and P V(j).
template <ForwardConfig kConfig>
struct CpAsyncPipeline {
  static constexpr layout::Tile kTile = kConfig.kv_tile();
  static constexpr layout::Tile kQTile = kConfig.q_tile();
  static constexpr int kStages = kConfig.stages;
  static constexpr int kRowStep = kConfig.threads() / kTile.chunks_per_page();

  const ForwardParams& params;
  uint32_t target_k;     // this thread's chunk of row `row0` in stage 0
  const char* source_k;  // the same place in the next block to load
  const char* source_v;
  int32_t block_end;
  int32_t read_stage = 0;

  __device__ __forceinline__ CpAsyncPipeline(const ForwardParams& p, const TileContext& tile,
                                             const layout::BlockRange& range, uint32_t shared)
      : params(p), block_end(range.end) {
    const int32_t thread = ptx::thread_index_x();
    const int32_t row0 = first_row(thread);
    const int32_t chunk = first_chunk(thread);
    target_k = shared + kConfig.shared_plan().k + kConfig.kv_tile().offset_bytes(row0, chunk);
    const int64_t key = static_cast<int64_t>(range.begin) * kConfig.block_n + row0;
    source_k = p.k + tile.batch * p.k_strides.batch + tile.head_kv * p.k_strides.head +
               key * p.k_strides.row + chunk * layout::kChunkBytes;
    source_v = p.v + tile.batch * p.v_strides.batch + tile.head_kv * p.v_strides.head +
               key * p.v_strides.row + chunk * layout::kChunkBytes;
  }

  __device__ __forceinline__ static int32_t first_row(int32_t thread) {
    return thread / kTile.chunks_per_page();
  }
  __device__ __forceinline__ static int32_t first_chunk(int32_t thread) {
    return thread % kTile.chunks_per_page();
  }

  // Copies this thread's chunks of a tile whose first `rows` rows and `columns` columns exist; what
  // lies beyond is filled with zeros and not read from memory (0 * NaN in P V would be NaN).
  template <layout::Tile kCopied>
  __device__ __forceinline__ void copy(uint32_t target, const char* source, int64_t row_stride,
                                       int32_t rows, int32_t columns) {
    const int64_t step = row_stride * kRowStep;
    if (rows >= kCopied.rows && columns == kCopied.columns) {
#pragma unroll
      for (int i = 0; i < kCopied.rows / kRowStep; ++i) {
#pragma unroll
        for (int page = 0; page < kCopied.num_pages(); ++page) {
          ptx::cp_async_16(
              target + i * kRowStep * kCopied.row_bytes() + page * kCopied.page_bytes(),
              source + page * kCopied.row_bytes());
        }
        source += step;
      }
    } else {
      const int32_t thread = ptx::thread_index_x();  // rare: not kept in registers for it
      const int32_t row0 = first_row(thread);
      const int32_t column0 = first_chunk(thread) * layout::kChunkElems;
#pragma unroll
      for (int i = 0; i < kCopied.rows / kRowStep; ++i) {
#pragma unroll
        for (int page = 0; page < kCopied.num_pages(); ++page) {
          const bool exists =
              row0 + i * kRowStep < rows && column0 + page * kCopied.page_columns() < columns;
          ptx::cp_async_16_zero_fill(
              target + i * kRowStep * kCopied.row_bytes() + page * kCopied.page_bytes(),
              source + page * kCopied.row_bytes(), exists ? layout::kChunkBytes : 0);
        }
        source += step;
      }
    }
  }

  // Block `block` into stage `stage`; blocks are loaded in order.
  __device__ __forceinline__ void load_k(int32_t block, int32_t stage) {
    copy<kTile>(target_k + stage * kTile.bytes(), source_k, params.k_strides.row,
                params.mask.seqlen_k - block * kConfig.block_n, params.head_dim);
    source_k += kConfig.block_n * params.k_strides.row;
  }
  __device__ __forceinline__ void load_v(int32_t block, int32_t stage) {
    // V's stages follow K's, so target_k and a constant reach both.
    static_assert(kConfig.shared_plan().v == kConfig.shared_plan().k + kStages * kTile.bytes());
    copy<kTile>(target_k + (kStages + stage) * kTile.bytes(), source_v, params.v_strides.row,
                params.mask.seqlen_k - block * kConfig.block_n, params.head_dim_v);
    source_v += kConfig.block_n * params.v_strides.row;
  }
  // K and V of a block, if there is such a block, as one commit group, which may be empty.
  __device__ __forceinline__ void load_group(int32_t block, int32_t stage) {
    if (block < block_end) {
      load_k(block, stage);
      load_v(block, stage);
    }
    ptx::cp_async_commit_group();
  }

  // Q is in the first group.
  __device__ __forceinline__ void start(const TileContext& tile, int32_t first_block,
                                        uint32_t shared) {
    const int32_t thread = ptx::thread_index_x();
    const int32_t row0 = first_row(thread);
    const int32_t chunk = first_chunk(thread);
    const char* source = params.q + tile.batch * params.q_strides.batch +
                         tile.head * params.q_strides.head +
                         (tile.row_begin + static_cast<int64_t>(row0)) * params.q_strides.row +
                         chunk * layout::kChunkBytes;
    copy<kQTile>(shared + kConfig.shared_plan().q + kConfig.q_tile().offset_bytes(row0, chunk),
                 source, params.q_strides.row, params.seqlen_q - tile.row_begin, params.head_dim);
    if constexpr (kStages == 1) {
      load_k(first_block, 0);
      ptx::cp_async_commit_group();
    } else {
#pragma unroll
      for (int i = 0; i < kStages - 1; ++i) load_group(first_block + i, i);
    }
  }
  __device__ __forceinline__ void await_q() {
    ptx::cp_async_wait_group<kStages == 1 ? 0 : kStages - 2>();
    ptx::barrier_sync_cta();
  }

  __device__ __forceinline__ void before_scores(int32_t block) {
    if constexpr (kStages == 1) {
      ptx::cp_async_wait_group<0>();
      ptx::barrier_sync_cta();  // K(j) is there; V(j-1) has been read by all
      load_v(block, 0);
      ptx::cp_async_commit_group();
    } else {
      ptx::cp_async_wait_group<kStages - 2>();
      ptx::barrier_sync_cta();  // K(j), V(j) are there; block j - 1 has been read by all
      load_group(block + kStages - 1, read_stage == 0 ? kStages - 1 : read_stage - 1);
    }
  }
  __device__ __forceinline__ void after_scores(int32_t block) {
    if constexpr (kStages == 1) {
      ptx::cp_async_wait_group<0>();
      ptx::barrier_sync_cta();  // V(j) is there; K(j) has been read by all
      if (block + 1 < block_end) load_k(block + 1, 0);
      ptx::cp_async_commit_group();
    }
  }
  __device__ __forceinline__ void before_values(int32_t) {}
  __device__ __forceinline__ void after_values() {
    if constexpr (kStages > 1) read_stage = read_stage + 1 == kStages ? 0 : read_stage + 1;
  }
  __device__ __forceinline__ int32_t stage() const { return read_stage; }
};

// TMA: thread 0 issues copies of whole tiles, which count their bytes against an mbarrier. A warp
// takes a tile when its `full` barrier flips and gives it back by one arrival at `empty`; no CTA
// barrier stands in the loop, so warps drift apart. Rows and columns past a tensor's end arrive as
// zeros.
//   stages >= 2: `full` and `empty` of a stage stand for K and V together; block j + stages - 1 is
//                issued at the top of block j.
//   stages == 1: K and V have barriers of their own; V(j) is issued at the top of block j, K(j+1)
//                before P V(j).
template <ForwardConfig kConfig>
struct TmaPipeline {
  static constexpr layout::Tile kTile = kConfig.kv_tile();
  static constexpr layout::Tile kQTile = kConfig.q_tile();
  static constexpr int kStages = kConfig.stages;
  static constexpr bool kSeparate = kStages == 1;

  const ForwardParams& params;
  const TileContext& tile;
  uint32_t shared;
  int32_t next_block;  // to issue
  int32_t block_end;
  layout::PipelineState<kStages> load_state;  // of next_block
  layout::PipelineState<kStages> read_state;  // of block j

  // full_k[stage], empty_k[stage], full_v[stage], empty_v[stage]; with several stages the first two
  // serve K and V together.
  __device__ __forceinline__ uint32_t barrier(int which, int32_t stage) const {
    return shared + kConfig.shared_plan().barriers + (which * kStages + stage) * 8;
  }
  __device__ __forceinline__ uint32_t full_k(int32_t stage) const { return barrier(0, stage); }
  __device__ __forceinline__ uint32_t empty_k(int32_t stage) const { return barrier(1, stage); }
  __device__ __forceinline__ uint32_t full_v(int32_t stage) const { return barrier(2, stage); }
  __device__ __forceinline__ uint32_t empty_v(int32_t stage) const { return barrier(3, stage); }

  __device__ __forceinline__ TmaPipeline(const ForwardParams& p, const TileContext& t,
                                         const layout::BlockRange& range, uint32_t shared_base)
      : params(p), tile(t), shared(shared_base), next_block(range.begin), block_end(range.end) {}

  template <layout::Tile kLoaded>
  __device__ __forceinline__ void load(uint32_t target, const TensorMap* map, uint32_t full,
                                       int32_t row, int32_t head) {
#pragma unroll
    for (int page = 0; page < kLoaded.num_pages(); ++page) {
      ptx::tma_load_4d(target + page * kLoaded.page_bytes(), map, full,
                       page * kLoaded.page_columns(), row, head, tile.batch);
    }
  }
  __device__ __forceinline__ void load_q() {
    load<kQTile>(shared + kConfig.shared_plan().q, &params.q_map, full_k(0), tile.row_begin,
                 tile.head);
  }
  __device__ __forceinline__ void load_k() {
    load<kTile>(shared + kConfig.shared_plan().k + load_state.stage * kTile.bytes(), &params.k_map,
                full_k(load_state.stage), next_block * kConfig.block_n, tile.head_kv);
  }
  __device__ __forceinline__ void load_v(int32_t block) {
    load<kTile>(shared + kConfig.shared_plan().v + load_state.stage * kTile.bytes(), &params.v_map,
                kSeparate ? full_v(0) : full_k(load_state.stage), block * kConfig.block_n,
                tile.head_kv);
  }

  // Thread 0, stages >= 2. Waits until all warps have given the stage back: block j - 1 when block
  // j + stages - 1 is issued. Q travels with the first block.
  template <bool kWithQ>
  __device__ __forceinline__ void load_next() {
    if (next_block < block_end) {
      ptx::mbarrier_wait(empty_k(load_state.stage), load_state.phase ^ 1);
      ptx::mbarrier_arrive_expect_tx(full_k(load_state.stage),
                                     2 * kTile.bytes() + (kWithQ ? kQTile.bytes() : 0));
      if constexpr (kWithQ) load_q();
      load_k();
      load_v(next_block);
      ++next_block;
      load_state.advance();
    }
  }
  // Thread 0, one stage. K runs one block ahead of V.
  template <bool kWithQ>
  __device__ __forceinline__ void load_next_k() {
    if (next_block < block_end) {
      ptx::mbarrier_wait(empty_k(0), load_state.phase ^ 1);
      ptx::mbarrier_arrive_expect_tx(full_k(0), kTile.bytes() + (kWithQ ? kQTile.bytes() : 0));
      if constexpr (kWithQ) load_q();
      load_k();
      ++next_block;
      load_state.advance();
    }
  }
  __device__ __forceinline__ void load_next_v() {
    ptx::mbarrier_wait(empty_v(0), read_state.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(full_v(0), kTile.bytes());
    load_v(next_block - 1);
  }

  // Thread 0 may issue as soon as it has initialised the barriers; the others wait for that before
  // they wait at one.
  __device__ __forceinline__ void start(const TileContext&, int32_t, uint32_t) {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        ptx::mbarrier_init(full_k(stage), 1);
        ptx::mbarrier_init(empty_k(stage), kConfig.num_warps);
        if constexpr (kSeparate) {
          ptx::mbarrier_init(full_v(stage), 1);
          ptx::mbarrier_init(empty_v(stage), kConfig.num_warps);
        }
      }
      ptx::fence_mbarrier_init();
      if constexpr (kSeparate) {
        load_next_k<true>();
      } else {
        load_next<true>();
#pragma unroll
        for (int i = 1; i < kStages - 1; ++i) load_next<false>();
      }
    }
    ptx::barrier_sync_cta();
  }
  // Q's bytes count against the first block's barrier.
  __device__ __forceinline__ void await_q() { ptx::mbarrier_wait(full_k(0), 0); }

  __device__ __forceinline__ void before_scores(int32_t) {
    if (threadIdx.x == 0) {
      if constexpr (kSeparate) {
        load_next_v();
      } else {
        load_next<false>();
      }
    }
    ptx::sync_warp();
    ptx::mbarrier_wait(full_k(read_state.stage), read_state.phase);
  }
  __device__ __forceinline__ void after_scores(int32_t) {
    if constexpr (kSeparate) arrive(empty_k(0));
  }
  __device__ __forceinline__ void before_values(int32_t) {
    if constexpr (kSeparate) {
      if (threadIdx.x == 0) load_next_k<false>();
      ptx::sync_warp();
      ptx::mbarrier_wait(full_v(0), read_state.phase);
    }
  }
  __device__ __forceinline__ void after_values() {
    arrive(kSeparate ? empty_v(0) : empty_k(read_state.stage));
    read_state.advance();
  }
  // One arrival for the warp, after all its lanes have read.
  __device__ __forceinline__ void arrive(uint32_t empty) {
    ptx::sync_warp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
  }
  __device__ __forceinline__ int32_t stage() const { return read_state.stage; }
};

}  // namespace tilefold::sm80
