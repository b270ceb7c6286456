// How a forward call is cut into work items for the CPU, and the scratch memory of one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/problem.h"

namespace tilefold::cpu {

// Keys of a K/V tile: a multiple of every kernel's key block.
constexpr int64_t kMaxBlockN = 256;

constexpr int64_t kScratchAlignment = 64;

// A group is what shares K and V: one head, or all query heads of one K/V head where there are so
// few queries that a tile holds several heads. Its rows are numbered head by head: row r is query
// r % seqlen_q of head r / seqlen_q of the group.
struct ForwardPlan {
  const ForwardProblem* problem = nullptr;
  int64_t num_groups = 0;
  int64_t heads_of_group = 1;
  int64_t rows = 0;  // of a group
  int64_t block_m = 0;
  int64_t block_n = 0;
  int64_t num_m_blocks = 0;

  // Keys are split among items where there are too few row tiles to keep a machine busy. A function
  // of the problem alone, so that the bits do not depend on the number of threads.
  int64_t num_splits = 1;
  int64_t split_keys = 0;

  // Scores are multiplied by both, which makes them logits in units of log 2. The second is 1
  // unless scale * log2(e) is not a normal number.
  float scale_1 = 1.0f;
  float scale_2 = 1.0f;

  // Partial results, if num_splits > 1: [group, row, split] of {row_max, row_sum, output[Dv]}.
  float* partials = nullptr;
  int64_t partial_floats = 0;

  int64_t num_items() const { return num_groups * num_m_blocks * num_splits; }
  float* partial(int64_t group, int64_t row, int64_t split) const {
    return partials + ((group * rows + row) * num_splits + split) * partial_floats;
  }
};

// Where the row of a group lies.
struct RowPlace {
  int64_t batch;
  int64_t head;
  int64_t query;
};

inline int64_t batch_of(const ForwardPlan& plan, int64_t group) {
  return group / (plan.problem->num_heads / plan.heads_of_group);
}

inline int64_t kv_head_of(const ForwardPlan& plan, int64_t group) {
  const int64_t groups_per_batch = plan.problem->num_heads / plan.heads_of_group;
  return group % groups_per_batch * plan.heads_of_group / plan.problem->heads_per_group();
}

inline RowPlace place_of(const ForwardPlan& plan, int64_t group, int64_t row) {
  const int64_t groups_per_batch = plan.problem->num_heads / plan.heads_of_group;
  return {group / groups_per_batch,
          group % groups_per_batch * plan.heads_of_group + row / plan.problem->seqlen_q,
          row % plan.problem->seqlen_q};
}

// Keys [begin, end) that a query sees; empty if end <= begin.
struct KeyRange {
  int64_t begin;
  int64_t end;
};

inline KeyRange visible_keys(const ForwardProblem& problem, int64_t query) {
  const int64_t begin = query + problem.diagonal_left;
  const int64_t end = query + problem.diagonal_right + 1;
  return {begin > 0 ? begin : 0, end < problem.seqlen_k ? end : problem.seqlen_k};
}

// What a SIMD target brings: its shape and its code.
struct ForwardTarget {
  const char* name;
  int64_t panel_rows;  // rows that its innermost code works on
  bool (*supported)();
  // Whether it computes such problems (on a processor that supports it).
  bool (*serves)(const ForwardPlan& plan);
  // Bytes of scratch that a thread needs, aligned to kScratchAlignment.
  int64_t (*scratch_bytes)(const ForwardPlan& plan);
  // Computes rows [m_block * block_m, ...) of a group over the keys of one split.
  void (*run_item)(const ForwardPlan& plan, int64_t group, int64_t m_block, int64_t split,
                   std::byte* scratch);
};

// The compiled targets, best first. The last one is supported and serves everything.
int num_forward_targets();
const ForwardTarget& forward_target(int index);

}  // namespace tilefold::cpu
