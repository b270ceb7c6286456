// A forward problem as the sm80 kernels take it.
#pragma once

#include <cfloat>
#include <cstdint>

#include "core/problem.h"
#include "cuda/sm80/config.h"
#include "cuda/sm80/params.h"

namespace tilefold::sm80 {

inline ByteStrides byte_strides(const Strides& strides, int64_t element_bytes) {
  return {strides.batch * element_bytes, strides.head * element_bytes, strides.row * element_bytes};
}

inline int64_t num_m_blocks(const ForwardConfig& config, const ForwardProblem& problem) {
  return (problem.seqlen_q + config.block_m - 1) / config.block_m;
}

// Everything but the tensor maps and the workspace. `section_heads` as in layout::TileGrid; 0: all.
inline ForwardParams make_params(const ForwardConfig& config, const ForwardProblem& problem,
                                 int32_t num_splits, int32_t section_heads = 0) {
  const auto batch_heads = static_cast<int32_t>(problem.batch * problem.num_heads);
  ForwardParams p{};
  p.q = static_cast<const char*>(problem.q);
  p.k = static_cast<const char*>(problem.k);
  p.v = static_cast<const char*>(problem.v);
  p.o = static_cast<char*>(problem.o);
  p.lse = reinterpret_cast<char*>(problem.lse);
  p.q_strides = byte_strides(problem.q_strides, dtype_bytes(problem.dtype));
  p.k_strides = byte_strides(problem.k_strides, dtype_bytes(problem.dtype));
  p.v_strides = byte_strides(problem.v_strides, dtype_bytes(problem.dtype));
  p.o_strides = byte_strides(problem.o_strides, dtype_bytes(problem.dtype));
  p.lse_strides = byte_strides(problem.lse_strides, sizeof(float));
  p.grid = layout::TileGrid(batch_heads, static_cast<int32_t>(num_m_blocks(config, problem)),
                            num_splits, section_heads == 0 ? batch_heads : section_heads);
  p.mask.seqlen_k = static_cast<int32_t>(problem.seqlen_k);
  p.mask.diagonal_left = static_cast<int32_t>(problem.diagonal_left);
  p.mask.diagonal_right = static_cast<int32_t>(problem.diagonal_right);
  p.seqlen_q = static_cast<int32_t>(problem.seqlen_q);
  p.num_heads = static_cast<int32_t>(problem.num_heads);
  p.by_num_heads = layout::Divisor(static_cast<uint32_t>(problem.num_heads));
  p.by_heads_per_group = layout::Divisor(static_cast<uint32_t>(problem.heads_per_group()));
  p.head_dim = static_cast<int32_t>(problem.head_dim);
  p.head_dim_v = static_cast<int32_t>(problem.head_dim_v);
  p.softmax_scale = problem.scale;
  p.softmax_scale_log2 = problem.scale * kLog2E;
  // The factor inside the exponent must be a positive normal number.
  p.prescale = !(p.softmax_scale_log2 >= FLT_MIN && p.softmax_scale_log2 <= FLT_MAX);
  p.empty_row_lse = problem.empty_row_lse;
  return p;
}

}  // namespace tilefold::sm80
