// What the host hands to a Hopper kernel.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "cuda/tensor_map.h"
#include "layout/divisor.h"
#include "layout/hopper_schedule.h"
#include "layout/packed_rows.h"

namespace tilefold::sm90 {

// What CTAs count tiles with (tile_counter.cuh), in the workspace.
struct TileCounter {
  uint64_t state;
  uint32_t count;  // of the tiles handed out beyond the first of each CTA
};
inline constexpr uint64_t kTileCounterClosed = 0;

struct ForwardParams {
  TensorMap map_q;  // boxes of 64 rows; where heads are packed, of 64 / rows_of_head heads
  TensorMap map_k;  // boxes of block_n rows
  TensorMap map_v;
  TensorMap map_o;  // as map_q

  // Heads are those that have tiles: of Q, or of K and V where heads are packed.
  layout::LongestFirst order;  // where tiles are counted
  int32_t num_tiles;
  int32_t heads_per_group;
  layout::Divisor by_m_blocks;
  layout::Divisor by_num_heads;
  layout::Divisor by_heads_per_group;
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t first_tile_row;  // layout::first_tile_row
  int32_t diagonal_left;   // row i sees key j: i + diagonal_left <= j <= i + diagonal_right
  int32_t diagonal_right;

  // A logit is score * score_factor; its exponent in base 2 is logit * scale_log2, scale_log2 > 0.
  // Where the scale is positive and ordinary, score_factor is 1 (and apply_factor false).
  float scale_log2;
  float score_factor;
  bool apply_factor;
  float empty_row_lse;

  float* lse;  // null: not wanted
  Strides lse_strides;
  TileCounter* tile_counter;  // masked; null: no CTA has more than one tile
  uint64_t ticket;            // the launch's: even, not 0, another launch's by chance only

  // For the rows that have to be computed again one by one (repair.cuh).
  const void* q;
  const void* k;
  const void* v;
  void* o;
  Strides q_strides;
  Strides k_strides;
  Strides v_strides;
  Strides o_strides;
  int32_t head_dim;
  int32_t head_dim_v;

  layout::PackedRows packed;  // pack_heads: the rows of a group
};

}  // namespace tilefold::sm90
