// Merges the partial results of split K/V: every row's O, maximum and sum of each split.
#pragma once

#include <cfloat>
#include <cstdint>

#include "cuda/ptx/global.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/sm80/epilogue.cuh"
#include "cuda/sm80/params.h"
#include "layout/tile.h"

namespace tilefold::sm80 {

constexpr int kCombineWarps = 4;  // rows of a CTA

// O = sum_s exp2(m_s - m) O_s / sum_s exp2(m_s - m) l_s with m = max_s m_s. A warp per row, a chunk
// of 8 columns per lane. A split that saw no key of the row has m_s = -FLT_MAX and zeros.
template <DType kDType>
__global__ void __launch_bounds__(32 * kCombineWarps)
    combine_kernel(const __grid_constant__ ForwardParams params) {
  const int64_t num_rows = static_cast<int64_t>(params.grid.num_batch_heads) * params.seqlen_q;
  const int64_t row_of_all =
      static_cast<int64_t>(blockIdx.x) * kCombineWarps + static_cast<int64_t>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row_of_all >= num_rows) return;
  const int32_t batch_head = static_cast<int32_t>(row_of_all / params.seqlen_q);
  const int32_t row =
      static_cast<int32_t>(row_of_all - static_cast<int64_t>(batch_head) * params.seqlen_q);
  TileContext tile{};
  tile.batch =
      static_cast<int32_t>(params.by_num_heads.quotient(static_cast<uint32_t>(batch_head)));
  tile.head = batch_head - tile.batch * params.num_heads;

  const float* ml = params.partial_ml + row_of_all * 2;
  float row_max = -FLT_MAX;
  for (int split = 0; split < params.grid.num_splits; ++split) {
    row_max = ptx::max_f32(row_max, ptx::ld_global_f32(ml + split * num_rows * 2));
  }
  float row_sum = 0.0f;
  float o[layout::kChunkElems] = {};
  const int column = lane * layout::kChunkElems;
  const bool has_columns = column < params.head_dim_v;
  for (int split = 0; split < params.grid.num_splits; ++split) {
    const float weight =
        ptx::ex2_approx_ftz(ptx::ld_global_f32(ml + split * num_rows * 2) - row_max);
    row_sum = ptx::fma_rn(weight, ptx::ld_global_f32(ml + split * num_rows * 2 + 1), row_sum);
    if (!has_columns) continue;
    const float* partial =
        params.partial_o + (split * num_rows + row_of_all) * params.head_dim_v + column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x[4];
      ptx::ld_global_f32_v4(x, partial + 4 * half);
#pragma unroll
      for (int i = 0; i < 4; ++i) o[4 * half + i] = ptx::fma_rn(weight, x[i], o[4 * half + i]);
    }
  }

  store_output_row<kDType>(o, row_max, row_sum, params, tile, row, lane);
}

}  // namespace tilefold::sm80
