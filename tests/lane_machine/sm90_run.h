// Runs a row of the sm90 family on the lane machine.
#pragma once

#include <algorithm>
#include <cfloat>

#include "cuda/sm90/forward_kernel.cuh"
#include "forward_run.h"

namespace tilefold::lane_machine {

inline sm90::ForwardParams sm90_params(const sm90::ForwardConfig& config,
                                       const ForwardProblem& problem,
                                       sm90::TileCounter* tile_counter) {
  constexpr float kLog2e = 1.4426950408889634f;
  sm90::ForwardParams params{};
  params.heads_per_group = static_cast<int32_t>(problem.heads_per_group());
  const layout::PackedRows packed{params.heads_per_group, static_cast<int32_t>(problem.seqlen_q)};
  if (config.pack_heads) params.packed = packed;
  const int64_t num_heads = config.pack_heads ? problem.num_heads_kv : problem.num_heads;
  const int64_t rows = config.pack_heads ? packed.rows() : problem.seqlen_q;
  const auto m_blocks = static_cast<int32_t>((rows + config.block_m() - 1) / config.block_m());
  const auto batch_heads = static_cast<int32_t>(problem.batch * num_heads);
  // Half of the heads a section, and a tail: small problems have more than one section then.
  params.order = layout::LongestFirst(batch_heads, m_blocks, (batch_heads + 1) / 2,
                                      m_blocks > 1 && batch_heads > 1 ? 1 : 0);
  params.num_tiles = batch_heads * m_blocks;
  params.first_tile_row = layout::first_tile_row(static_cast<int32_t>(problem.seqlen_q),
                                                 config.block_m(), problem.masks_right());
  params.by_m_blocks = layout::Divisor(static_cast<uint32_t>(m_blocks));
  params.by_num_heads = layout::Divisor(static_cast<uint32_t>(num_heads));
  params.by_heads_per_group = layout::Divisor(static_cast<uint32_t>(problem.heads_per_group()));
  params.seqlen_q = static_cast<int32_t>(problem.seqlen_q);
  params.seqlen_k = static_cast<int32_t>(problem.seqlen_k);
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
  params.ticket = 0x5469636b6574ed32;
  params.q = problem.q;
  params.k = problem.k;
  params.v = problem.v;
  params.o = problem.o;
  params.q_strides = problem.q_strides;
  params.k_strides = problem.k_strides;
  params.v_strides = problem.v_strides;
  params.o_strides = problem.o_strides;
  params.head_dim = static_cast<int32_t>(problem.head_dim);
  params.head_dim_v = static_cast<int32_t>(problem.head_dim_v);
  const auto map = [&](const char* name, const void* data, const Strides& strides, int64_t heads,
                       int64_t length, int64_t columns, int32_t box_rows, bool pack) {
    TensorMapOperand operand{name,  problem.dtype, data,    strides, problem.batch,
                             heads, length,        columns, box_rows};
    if (pack) {
      operand.group = params.heads_per_group;
      operand.box_rows = packed.rows_of_head();
      operand.box_heads = box_rows / operand.box_rows;
    }
    return host_tensor_map(operand);
  };
  params.map_q = map("q", problem.q, problem.q_strides, problem.num_heads, problem.seqlen_q,
                     problem.head_dim, layout::kWarpgroupRows, config.pack_heads);
  params.map_k = map("k", problem.k, problem.k_strides, problem.num_heads_kv, problem.seqlen_k,
                     problem.head_dim, config.block_n, false);
  params.map_v = map("v", problem.v, problem.v_strides, problem.num_heads_kv, problem.seqlen_k,
                     problem.head_dim_v, config.block_n, false);
  params.map_o = map("o", problem.o, problem.o_strides, problem.num_heads, problem.seqlen_q,
                     problem.head_dim_v, layout::kWarpgroupRows, config.pack_heads);
  return params;
}

template <class Row>
ForwardOutcome run_sm90(ForwardSetup& setup, const ForwardRun& how, const char* name) {
  constexpr sm90::ForwardConfig kConfig = Row::kConfig;
  setup.poison_outputs();
  sm90::TileCounter tile_counter = {0xdeadbeefdeadbeef, 0xdeadbeef};  // nobody has prepared it
  GlobalMemory memory = setup.memory;
  memory.add("tile counter", &tile_counter, sizeof tile_counter, true);
  const sm90::ForwardParams params = sm90_params(kConfig, setup.problem, &tile_counter);
  Launch launch;
  launch.kernel = name;
  // A persistent grid: a CTA for every three tiles, so that both stages of Q, and both slots of the
  // ring of tiles, are used a second time.
  launch.grid.x = static_cast<unsigned>((params.num_tiles + 2) / 3);
  launch.block.x = static_cast<unsigned>(kConfig.threads());
  launch.shared_bytes = static_cast<uint32_t>(kConfig.smem_bytes());
  launch.seed = how.seed;
  if (how.adjust) how.adjust(launch);
  ForwardOutcome outcome;
  outcome.report = run(launch, memory, [&] { sm90::forward<kConfig>(params); });
  outcome.comparison = setup.compare();
  return outcome;
}

}  // namespace tilefold::lane_machine

// Makes a line of kernels.def a kernel of the lane machine.
#define TILEFOLD_SM90_ROW(name, ...)                                                           \
  namespace tilefold::sm90 {                                                                   \
  namespace {                                                                                  \
  struct name##_row {                                                                          \
    static constexpr ForwardConfig kConfig = {__VA_ARGS__};                                    \
  };                                                                                           \
  const bool name##_registered = lane_machine::register_kernel(                                \
      {#name, "sm90", name##_row::kConfig.dtype, name##_row::kConfig.head_dim,                 \
       name##_row::kConfig.dim_v(), name##_row::kConfig.masked, name##_row::kConfig.block_m(), \
       name##_row::kConfig.block_n,                                                            \
       [](lane_machine::ForwardSetup& setup, const lane_machine::ForwardRun& how) {            \
         return lane_machine::run_sm90<name##_row>(setup, how, #name);                         \
       },                                                                                      \
       name##_row::kConfig.pack_heads ? int64_t{layout::kWarpgroupRows} : INT64_MAX});         \
  }                                                                                            \
  }
