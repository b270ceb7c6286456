// Runs a row of the sm80 family on the lane machine.
#pragma once

#include <algorithm>
#include <cfloat>

#include "cuda/sm80/forward_kernel.cuh"
#include "forward_run.h"

namespace tilefold::lane_machine {

inline sm80::ForwardParams sm80_params(const sm80::ForwardConfig& config,
                                       const ForwardProblem& problem) {
  sm80::ForwardParams params{};
  const auto bytes = [](const Strides& strides, int64_t element) {
    return sm80::ByteStrides{strides.batch * element, strides.head * element,
                             strides.row * element};
  };
  params.q = static_cast<const char*>(problem.q);
  params.k = static_cast<const char*>(problem.k);
  params.v = static_cast<const char*>(problem.v);
  params.o = static_cast<char*>(problem.o);
  params.lse = reinterpret_cast<char*>(problem.lse);
  params.q_strides = bytes(problem.q_strides, 2);
  params.k_strides = bytes(problem.k_strides, 2);
  params.v_strides = bytes(problem.v_strides, 2);
  params.o_strides = bytes(problem.o_strides, 2);
  params.lse_strides = bytes(problem.lse_strides, 4);
  params.grid.num_batch_heads = static_cast<int32_t>(problem.batch * problem.num_heads);
  params.grid.num_m_blocks =
      static_cast<int32_t>((problem.seqlen_q + config.block_m - 1) / config.block_m);
  params.grid.num_splits = 1;
  params.mask = {static_cast<int32_t>(problem.seqlen_k),
                 static_cast<int32_t>(problem.diagonal_left),
                 static_cast<int32_t>(problem.diagonal_right)};
  params.seqlen_q = static_cast<int32_t>(problem.seqlen_q);
  params.num_heads = static_cast<int32_t>(problem.num_heads);
  params.heads_per_group = static_cast<int32_t>(problem.heads_per_group());
  params.head_dim = static_cast<int32_t>(problem.head_dim);
  params.head_dim_v = static_cast<int32_t>(problem.head_dim_v);
  params.softmax_scale = problem.scale;
  params.softmax_scale_log2 = problem.scale * sm80::kLog2E;
  params.prescale = !(params.softmax_scale_log2 >= FLT_MIN && params.softmax_scale_log2 <= FLT_MAX);
  params.empty_row_lse = problem.empty_row_lse;
  if (config.load == sm80::LoadPath::kTma) {
    const auto map = [&](const char* name, const void* data, const Strides& strides, int64_t heads,
                         int64_t rows, int64_t columns, const layout::Tile& tile) {
      return host_tensor_map({name, problem.dtype, data, strides, problem.batch, heads, rows,
                              columns, tile.rows, tile.page_columns()});
    };
    params.q_map = map("q", problem.q, problem.q_strides, problem.num_heads, problem.seqlen_q,
                       problem.head_dim, config.q_tile());
    params.k_map = map("k", problem.k, problem.k_strides, problem.num_heads_kv, problem.seqlen_k,
                       problem.head_dim, config.kv_tile());
    params.v_map = map("v", problem.v, problem.v_strides, problem.num_heads_kv, problem.seqlen_k,
                       problem.head_dim_v, config.kv_tile());
  }
  return params;
}

// The mma instructions that the tiles imply: every warp, every block that its rows see.
inline uint64_t sm80_expected_mma(const sm80::ForwardConfig& config,
                                  const sm80::ForwardParams& params) {
  const uint64_t scores =
      static_cast<uint64_t>(config.head_dim / 16 * config.m16() * config.n16() * 2);
  const uint64_t values =
      static_cast<uint64_t>(config.block_n / 16 * config.m16() * config.d16() * 2);
  uint64_t visits = 0;
  const int num_groups = config.num_warps / config.warps_per_row_group();
  for (int32_t row = 0; row < params.seqlen_q; row += config.block_m) {
    for (int group = 0; group < num_groups; ++group) {
      const int32_t first = row + group * config.rows_per_warp();
      const layout::BlockRange range = layout::block_range(
          params.mask, first, std::min(first + config.rows_per_warp(), params.seqlen_q),
          config.block_n);
      if (!range.empty()) visits += static_cast<uint64_t>(range.end - range.begin);
    }
  }
  return visits * static_cast<uint64_t>(config.warps_per_row_group()) *
         static_cast<uint64_t>(params.grid.num_batch_heads) * (scores + values);
}

template <class Row>
ForwardKernel sm80_kernel(const char* name) {
  ForwardKernel kernel;
  kernel.name = name;
  kernel.dtype = Row::kConfig.dtype;
  kernel.head_dim = Row::kConfig.head_dim;
  kernel.masked = true;
  kernel.block_m = Row::kConfig.block_m;
  kernel.block_n = Row::kConfig.block_n;
  kernel.run = [kernel_name = kernel.name](ForwardSetup& setup, uint64_t seed,
                                           const std::function<void(Launch&)>& adjust) {
    setup.poison_outputs();
    const sm80::ForwardParams params = sm80_params(Row::kConfig, setup.problem);
    Launch launch;
    launch.kernel = kernel_name.c_str();
    launch.grid.x = static_cast<unsigned>(params.grid.num_batch_heads * params.grid.num_m_blocks);
    launch.block.x = static_cast<unsigned>(Row::kConfig.threads());
    launch.shared_bytes = static_cast<uint32_t>(Row::kConfig.smem_bytes());
    launch.seed = seed;
    if (adjust) adjust(launch);
    ForwardOutcome outcome;
    outcome.report = run(launch, setup.memory, [&] { sm80::forward_kernel<Row>(params); });
    outcome.comparison = setup.compare();
    outcome.expected_mma = sm80_expected_mma(Row::kConfig, params);
    return outcome;
  };
  return kernel;
}

}  // namespace tilefold::lane_machine
