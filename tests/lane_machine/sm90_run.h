// Runs a row of the sm90 family on the lane machine.
#pragma once

#include <algorithm>
#include <cfloat>

#include "cuda/sm90/forward_kernel.cuh"
#include "forward_run.h"

namespace tilefold::lane_machine {

inline sm90::ForwardParams sm90_params(const sm90::ForwardConfig& config,
                                       const ForwardProblem& problem, uint32_t* tile_counter) {
  constexpr float kLog2e = 1.4426950408889634f;
  sm90::ForwardParams params{};
  params.num_heads = static_cast<int32_t>(problem.num_heads);
  params.heads_per_group = static_cast<int32_t>(problem.heads_per_group());
  params.seqlen_q = static_cast<int32_t>(problem.seqlen_q);
  params.seqlen_k = static_cast<int32_t>(problem.seqlen_k);
  params.num_m_blocks =
      static_cast<int32_t>((problem.seqlen_q + config.block_m() - 1) / config.block_m());
  params.num_batch_heads = static_cast<int32_t>(problem.batch * problem.num_heads);
  params.num_tiles = params.num_batch_heads * params.num_m_blocks;
  params.section_heads = layout::heads_per_section(params.num_batch_heads);
  params.diagonal_left = static_cast<int32_t>(problem.diagonal_left);
  params.diagonal_right = static_cast<int32_t>(problem.diagonal_right);
  const float scale_log2 = problem.scale * kLog2e;
  params.apply_factor = !(scale_log2 >= FLT_MIN && scale_log2 <= FLT_MAX);
  params.score_factor = params.apply_factor ? problem.scale : 1.0f;
  params.scale_log2 = params.apply_factor ? kLog2e : scale_log2;
  params.empty_row_lse = problem.empty_row_lse;
  params.lse = problem.lse;
  params.lse_strides = problem.lse_strides;
  params.tile_counter = tile_counter;
  params.q = problem.q;
  params.k = problem.k;
  params.v = problem.v;
  params.q_strides = problem.q_strides;
  params.k_strides = problem.k_strides;
  params.v_strides = problem.v_strides;
  params.head_dim = static_cast<int32_t>(problem.head_dim);
  params.head_dim_v = static_cast<int32_t>(problem.head_dim_v);
  const auto map = [&](const char* name, const void* data, const Strides& strides, int64_t heads,
                       int64_t rows, int64_t columns, int32_t box_rows) {
    return host_tensor_map(
        {name, problem.dtype, data, strides, problem.batch, heads, rows, columns, box_rows});
  };
  params.map_q = map("q", problem.q, problem.q_strides, problem.num_heads, problem.seqlen_q,
                     problem.head_dim, layout::kWarpgroupRows);
  params.map_k = map("k", problem.k, problem.k_strides, problem.num_heads_kv, problem.seqlen_k,
                     problem.head_dim, config.block_n);
  params.map_v = map("v", problem.v, problem.v_strides, problem.num_heads_kv, problem.seqlen_k,
                     problem.head_dim_v, config.block_n);
  params.map_o = map("o", problem.o, problem.o_strides, problem.num_heads, problem.seqlen_q,
                     problem.head_dim_v, layout::kWarpgroupRows);
  return params;
}

template <class Row>
ForwardKernel sm90_kernel(const char* name) {
  ForwardKernel kernel;
  kernel.name = name;
  kernel.dtype = Row::kConfig.dtype;
  kernel.head_dim = Row::kConfig.head_dim;
  kernel.masked = Row::kConfig.masked;
  kernel.block_m = Row::kConfig.block_m();
  kernel.block_n = Row::kConfig.block_n;
  kernel.run = [kernel_name = kernel.name](ForwardSetup& setup, uint64_t seed,
                                           const std::function<void(Launch&)>& adjust) {
    setup.poison_outputs();
    alignas(16) uint32_t tile_counter = 0;
    GlobalMemory memory = setup.memory;
    memory.add("tile counter", &tile_counter, sizeof tile_counter, true);
    const sm90::ForwardParams params = sm90_params(Row::kConfig, setup.problem, &tile_counter);
    Launch launch;
    launch.kernel = kernel_name.c_str();
    // A persistent grid: two CTAs, so that each takes several tiles.
    launch.grid.x = static_cast<unsigned>(std::min(params.num_tiles, 2));
    launch.block.x = static_cast<unsigned>(Row::kConfig.threads());
    launch.shared_bytes = static_cast<uint32_t>(Row::kConfig.smem_bytes());
    launch.seed = seed;
    if (adjust) adjust(launch);
    ForwardOutcome outcome;
    outcome.report = run(launch, memory, [&] { sm90::forward<Row::kConfig>(params); });
    outcome.comparison = setup.compare();
    return outcome;
  };
  return kernel;
}

}  // namespace tilefold::lane_machine
