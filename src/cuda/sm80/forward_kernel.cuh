// The FlashAttention-2 forward kernel on Ampere's instructions: one CTA computes one tile of query
// rows of one head, over all keys or, where these are split, over a part of them.
//
// Paper: Dao, "FlashAttention-2" (2023), Algorithm 1. The loop runs over key blocks (line 6), the
// rows are split over warps (section 3.3), and O is normalised once at the end (section 3.1).
// DEVIATION: a running maximum may lag behind the true one (softmax.cuh), so that most blocks
// rescale nothing; and where a tile is wide two warps share their rows: each computes half of the
// scores and half of O's columns, and they exchange P. docs/sm80-kernel.md goes through the kernel
// lane by lane.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/sm80/config.h"
#include "cuda/sm80/coordinates.cuh"
#include "cuda/sm80/epilogue.cuh"
#include "cuda/sm80/lane_addresses.h"
#include "cuda/sm80/load.cuh"
#include "cuda/sm80/params.h"
#include "cuda/sm80/products.cuh"
#include "cuda/sm80/repair.cuh"
#include "cuda/sm80/softmax.cuh"
#include "layout/block_range.h"

namespace tilefold::sm80 {

// Takes the block's maxima into the running maximum if any row of the warp (pair: of both warps)
// outgrew it by more than the threshold. The vote looks at lane-local maxima; those of whole rows
// are only formed on the rare path.
template <ForwardConfig kConfig>
__device__ __forceinline__ void update_row_max(OnlineSoftmax<kConfig.m16()>& softmax,
                                               float (&rS)[kConfig.m16()][2 * kConfig.n16()][4],
                                               float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
                                               const ForwardParams& params, uint32_t shared,
                                               const WarpContext& warp) {
  float tile_max[kConfig.m16()][2];
  softmax.lane_max(tile_max, rS);
  bool exceeds = softmax.exceeds(tile_max);
  if constexpr (kConfig.pair) {
    // Also says that the partner has read the P of the block before.
    exceeds = ptx::barrier_red_or(kFirstPairBarrier + warp.row_group, 64, exceeds);
  } else {
    exceeds = ptx::vote_any(exceeds);
  }
  if (!exceeds) return;
  softmax.quad_max(tile_max);
  if constexpr (kConfig.pair) {
    combine_pair<kConfig>(tile_max, shared, warp,
                          [](float a, float b) { return ptx::max_f32(a, b); });
  }
  // Beyond 2^20 the rounding of a row's maximum would show in P: from here on this warp multiplies
  // its scores by the scale first (softmax.cuh, kLargeScore). row_max is in these units already.
  if (!softmax.prescale && ptx::vote_any(softmax.large(tile_max))) {
    softmax.prescale_scores(rS, params.softmax_scale);
#pragma unroll
    for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        tile_max[m][r] = softmax.prescaled(tile_max[m][r], params.softmax_scale);
      }
    }
    softmax.prescale = true;
    softmax.exponent_scale = 1.0f;
  }
  softmax.rescale(tile_max, rO);
}

// Normalises O and stores it with the LSE; or its partial sums, where K/V is split.
template <ForwardConfig kConfig>
__device__ __forceinline__ void finish_tile(float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
                                            OnlineSoftmax<kConfig.m16()>& softmax,
                                            const ForwardParams& params,
                                            const Coordinates<kConfig>& at, uint32_t shared) {
  softmax.finish();
  if constexpr (kConfig.pair) {
    // The partner last read the exchange buffer before the barrier behind P: it may be written.
    combine_pair<kConfig>(softmax.row_sum, shared, at.warp, [](float a, float b) { return a + b; });
  }
  if (must_repair<kConfig>(rO, softmax, params, at)) {
    repair_output<kConfig>(softmax, params, at, shared);
    return;
  }
  if (params.grid.num_splits > 1) {
    store_partial<kConfig>(rO, softmax, params, at.coord, at.warp);
    return;
  }
  normalize<kConfig>(rO, softmax, params, at.tile, at.warp);
  sync_row_group<kConfig>(at.warp);  // the rows of Q that O replaces have been read
  stage_output<kConfig>(rO, shared, at.warp);
  sync_row_group<kConfig>(at.warp);  // O is in shared memory
  store_output<kConfig>(params, at.tile, shared, at.warp);
}

// `Row::kConfig` is the kernel's ForwardConfig. (A type carries it, since nvcc 13.0 writes host
// code that does not compile for a __global__ template over a value of class type.)
template <typename Row>
__global__ void __launch_bounds__(Row::kConfig.threads(), Row::kConfig.min_ctas)
    forward_kernel(const __grid_constant__ ForwardParams params) {
  constexpr ForwardConfig kConfig = Row::kConfig;
  static_assert(kConfig.valid());
  constexpr int kM16 = kConfig.m16();
  constexpr int kN16 = kConfig.n16();
  constexpr int kD16 = kConfig.d16();
  constexpr int kBlockN = kConfig.block_n;
  constexpr int kGroup = kConfig.warps_per_row_group();
  constexpr layout::Tile kTile = kConfig.kv_tile();
  using Pipeline = std::conditional_t<kConfig.load == LoadPath::kTma, TmaPipeline<kConfig>,
                                      CpAsyncPipeline<kConfig>>;

  // ---- Tile coordinates ----
  const Coordinates<kConfig> at(params);
  const layout::BlockRange cta_range = at.cta_range(params);
  const layout::BlockRange warp_range = at.warp_range(params);

  // ---- Shared memory ----
  const uint32_t shared = ptx::shared_address(ptx::dynamic_shared_memory());
  const LaneAddresses<kConfig> lane(shared, at.warp.row_group, at.warp.half, at.warp.lane);

  // ---- Prologue ----
  float rO[kM16][2 * kD16][4];
#pragma unroll
  for (int m = 0; m < kM16; ++m) {
#pragma unroll
    for (int d = 0; d < 2 * kD16; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rO[m][d][i] = 0.0f;
    }
  }
  OnlineSoftmax<kM16> softmax;
  softmax.init(params.softmax_scale_log2, params.prescale != 0);

  if (!cta_range.empty()) {
    // ---- Barriers, first loads ----
    Pipeline pipeline(params, at.tile, cta_range, shared);
    pipeline.start(at.tile, cta_range.begin, shared);
    uint32_t rQ[kM16][kConfig.q_in_registers ? kConfig.head_dim / 16 : 1][4];  // else unused
    if constexpr (kConfig.q_in_registers) {
      pipeline.await_q();
      load_q_fragments<kConfig>(rQ, lane);
    }

    // ---- Main loop over key blocks ----
    // Votes on what a warp's lanes agree on anyway tell the compiler so: no convergence barriers.
#pragma unroll 1
    for (int32_t n_block = cta_range.begin; n_block < cta_range.end; ++n_block) {
      pipeline.before_scores(n_block);
      // A warp whose rows see nothing of the block takes part in its loads and in the CTA's
      // barriers alone. (A pair has the same rows: both of its warps pass over theirs.)
      if (!ptx::vote_any(warp_range.visits(n_block))) {
        pipeline.after_scores(n_block);
        pipeline.before_values(n_block);
        pipeline.after_values();
        continue;
      }
      const uint32_t stage_bytes = static_cast<uint32_t>(pipeline.stage() * kTile.bytes());

      // rS = sQ sK^T
      float rS[kM16][2 * kN16][4];
      compute_scores<kConfig>(rS, rQ, lane, stage_bytes);
      if (ptx::vote_any(softmax.prescale)) softmax.prescale_scores(rS, params.softmax_scale);
      if (ptx::vote_any(warp_range.masks(n_block))) {
        // This lane's first key; the warps of a pair have every other block of 16 keys.
        const int32_t key = n_block * kBlockN + at.warp.half * 16 + at.warp.lane % 4 * 2;
        mask_scores<kM16, kN16, 16 * kGroup>(rS, params.mask, at.warp.lane_row(), key);
      }
      pipeline.after_scores(n_block);

      // row_max, row_sum, rO; then rS becomes rP = exp2(rS c - row_max)
      update_row_max<kConfig>(softmax, rS, rO, params, shared, at.warp);
      softmax.exponentiate(rS);
      if constexpr (kConfig.pair) {
        store_probabilities<kConfig>(rS, lane);
        sync_row_group<kConfig>(at.warp);  // both halves of P are there
      }
      pipeline.before_values(n_block);

      // rO += rP sV; rS holds rP
      accumulate_values<kConfig>(rO, rS, lane, stage_bytes);
      pipeline.after_values();
    }
  }

  // ---- Epilogue ----
  const Coordinates<kConfig> again(params);  // anew: kept through the loop they would spill
  finish_tile<kConfig>(rO, softmax, params, again, shared);
}

}  // namespace tilefold::sm80
