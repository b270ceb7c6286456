// What an sm80 kernel is given at launch.
#pragma once

#include <cstdint>

#include "cuda/tensor_map.h"
#include "layout/block_range.h"
#include "layout/divisor.h"
#include "layout/schedule.h"

namespace tilefold::sm80 {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

// Byte strides of a [batch, head, row] tensor whose last axis is contiguous.
struct ByteStrides {
  int64_t batch;
  int64_t head;
  int64_t row;
};

struct ForwardParams {
  const char* q;  // [B, Hq, Nq, D]
  const char* k;  // [B, Hkv, Nk, D]
  const char* v;  // [B, Hkv, Nk, Dv]
  char* o;        // [B, Hq, Nq, Dv]
  char* lse;      // [B, Hq, Nq] float32, or null
  ByteStrides q_strides;
  ByteStrides k_strides;
  ByteStrides v_strides;
  ByteStrides o_strides;
  ByteStrides lse_strides;

  layout::TileGrid grid;
  layout::Mask mask;  // seqlen_k and the two diagonals
  int32_t seqlen_q;
  int32_t num_heads;
  layout::Divisor by_num_heads;
  layout::Divisor by_heads_per_group;  // Hq / Hkv
  int32_t head_dim;
  int32_t head_dim_v;

  float softmax_scale;
  float softmax_scale_log2;  // softmax_scale * log2(e), the factor inside the exponent
  int32_t prescale;          // the scores are multiplied up front (softmax.cuh says when)
  float empty_row_lse;

  // Split K/V (grid.num_splits > 1): O before normalisation [split][B, Hq, Nq, head_dim_v] and
  // (row_max, row_sum) [split][B, Hq, Nq], float32, in the workspace.
  float* partial_o;
  float* partial_ml;

  // TMA kernels only. At an address that is a multiple of 64.
  TensorMap q_map;
  TensorMap k_map;
  TensorMap v_map;
};

}  // namespace tilefold::sm80
