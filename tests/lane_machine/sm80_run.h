// Runs a row of the sm80 family on the lane machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/sm80/combine_kernel.cuh"
#include "cuda/sm80/forward_kernel.cuh"
#include "cuda/sm80/make_params.h"
#include "forward_run.h"

namespace tilefold::lane_machine {

inline sm80::ForwardParams sm80_params(const sm80::ForwardConfig& config,
                                       const ForwardProblem& problem, int num_splits) {
  constexpr int32_t kSectionHeads = 2;  // so that problems of three heads have several sections
  sm80::ForwardParams params = sm80::make_params(config, problem, num_splits, kSectionHeads);
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

// The mma instructions that the tiles imply: every warp, every block from the first key that one of
// its rows sees to the last. Worked out here once more, not by the kernel's own functions.
inline uint64_t sm80_expected_mma(const sm80::ForwardConfig& config,
                                  const sm80::ForwardParams& params) {
  const uint64_t scores =
      static_cast<uint64_t>(config.head_dim / 16 * config.m16() * config.n16() * 2);
  const uint64_t values =
      static_cast<uint64_t>(config.block_n / 16 * config.m16() * config.d16() * 2);
  uint64_t visits = 0;
  for (int first = 0; first < params.seqlen_q; first += config.rows_per_warp()) {
    int begin = params.mask.seqlen_k, end = 0;
    for (int row = first; row < std::min(first + config.rows_per_warp(), params.seqlen_q); ++row) {
      const int row_begin = std::max(row + params.mask.diagonal_left, 0);
      const int row_end = std::min(row + params.mask.diagonal_right + 1, params.mask.seqlen_k);
      if (row_begin >= row_end) continue;
      begin = std::min(begin, row_begin);
      end = std::max(end, row_end);
    }
    if (begin < end)
      visits += static_cast<uint64_t>((end + config.block_n - 1) / config.block_n -
                                      begin / config.block_n);
  }
  return visits * static_cast<uint64_t>(config.warps_per_row_group()) *
         static_cast<uint64_t>(params.grid.num_batch_heads) * (scores + values);
}

template <class Row>
ForwardOutcome run_sm80(ForwardSetup& setup, const ForwardRun& how, const char* name) {
  constexpr sm80::ForwardConfig kConfig = Row::kConfig;
  setup.poison_outputs();
  sm80::ForwardParams params = sm80_params(kConfig, setup.problem, how.num_splits);
  GlobalMemory memory = setup.memory;
  const size_t rows = static_cast<size_t>(how.num_splits) *
                      static_cast<size_t>(params.grid.num_batch_heads * params.seqlen_q);
  std::vector<float> workspace;
  if (how.num_splits > 1) {
    const size_t columns = static_cast<size_t>(params.head_dim_v);
    workspace.assign(rows * (columns + 2) + 4, NAN);
    params.partial_o = workspace.data();
    params.partial_ml = workspace.data() + rows * columns;
    memory.add("partial O", params.partial_o, rows * columns * sizeof(float), true);
    memory.add("partial m, l", params.partial_ml, rows * 2 * sizeof(float), true);
  }
  Launch launch;
  launch.kernel = name;
  launch.grid.x = static_cast<unsigned>(params.grid.num_batch_heads * params.grid.num_m_blocks *
                                        how.num_splits);
  launch.block.x = static_cast<unsigned>(kConfig.threads());
  launch.shared_bytes = static_cast<uint32_t>(kConfig.smem_bytes());
  launch.seed = how.seed;
  if (how.adjust) how.adjust(launch);
  ForwardOutcome outcome;
  outcome.report = run(launch, memory, [&] { sm80::forward_kernel<Row>(params); });
  if (how.num_splits > 1) {
    Launch combine;
    combine.kernel = "combine_kernel";
    combine.grid.x = static_cast<unsigned>((params.grid.num_batch_heads * params.seqlen_q + 3) / 4);
    combine.block.x = 32 * sm80::kCombineWarps;
    combine.seed = how.seed;
    const RunReport report =
        run(combine, memory, [&] { sm80::combine_kernel<kConfig.dtype>(params); });
    outcome.report.hazards.insert(outcome.report.hazards.end(), report.hazards.begin(),
                                  report.hazards.end());
  }
  outcome.comparison = setup.compare();
  // Splits cut the visited blocks differently; those of every warp are counted without.
  outcome.expected_mma = how.num_splits > 1 ? 0 : sm80_expected_mma(kConfig, params);
  return outcome;
}

}  // namespace tilefold::lane_machine

// Makes a line of kernels.def a kernel of the lane machine.
#define TILEFOLD_SM80_ROW(name, ...)                                                \
  namespace tilefold::sm80 {                                                        \
  namespace {                                                                       \
  struct name##_row {                                                               \
    static constexpr ForwardConfig kConfig = {__VA_ARGS__};                         \
  };                                                                                \
  const bool name##_registered = lane_machine::register_kernel(                     \
      {#name, "sm80", name##_row::kConfig.dtype, name##_row::kConfig.head_dim,      \
       name##_row::kConfig.head_dim, true, name##_row::kConfig.block_m,             \
       name##_row::kConfig.block_n,                                                 \
       [](lane_machine::ForwardSetup& setup, const lane_machine::ForwardRun& how) { \
         return lane_machine::run_sm80<name##_row>(setup, how, #name);              \
       }});                                                                         \
  }                                                                                 \
  }
