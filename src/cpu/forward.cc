// Cuts a forward call into work items and runs them on OpenMP threads.
#include "cpu/forward.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "cpu/convert.h"
#include "cpu/processor.h"
#include "cpu/scratch.h"

namespace tilefold::cpu {
namespace {

std::atomic<const ForwardTarget*> forced_target{nullptr};

// One per thread; OpenMP keeps its threads, so these live from call to call.
thread_local ScratchBuffer thread_scratch;
thread_local ScratchBuffer caller_partials;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tiles that keep K, V, and the row tile's Q and O within three quarters of the L2 cache.
void choose_tiles(const ForwardTarget& target, int num_threads, ForwardPlan* plan) {
  const ForwardProblem& p = *plan->problem;
  constexpr int64_t kMaxL2 = 2 << 20;
  constexpr int64_t kKeyStep = 32;
  constexpr int64_t kMinBlockN = 32;
  const int64_t budget = std::min(processor().l2_bytes, kMaxL2) / 4 * 3 / 4;  // floats
  const int64_t widths = std::max<int64_t>(p.head_dim + p.head_dim_v, 1);

  // The scores of one panel live in L1: no more than half of it.
  const int64_t keys_l1 = processor().l1d_bytes / 2 / 4 / target.panel_rows;
  const int64_t keys_l2 = budget / 2 / widths;
  const int64_t keys = std::min({keys_l1, keys_l2, kMaxBlockN});
  plan->block_n = std::max(keys / kKeyStep * kKeyStep, kMinBlockN);

  const int64_t rows_l2 = (budget - plan->block_n * widths) / widths;
  constexpr int64_t kMaxPanels = 16;
  int64_t panels = std::clamp<int64_t>(rows_l2 / target.panel_rows, 1, kMaxPanels);
  // Enough tiles that threads finish together; rows do not depend on their tile, so the bits do
  // not change.
  constexpr int64_t kTilesPerThread = 4;
  const auto tiles = [&](int64_t n) {
    return plan->num_groups * ceil_div(plan->rows, n * target.panel_rows);
  };
  while (panels > 1 && tiles(panels) < kTilesPerThread * num_threads) --panels;
  plan->block_m = panels * target.panel_rows;
  plan->num_m_blocks = ceil_div(plan->rows, plan->block_m);
}

// Few rows and many keys (decoding): the keys are what there is to share out.
void choose_splits(const ForwardTarget& target, ForwardPlan* plan) {
  const ForwardProblem& p = *plan->problem;
  constexpr int64_t kEnoughItems = 64;
  constexpr int64_t kMinSplitKeys = 1024;
  plan->num_splits = 1;
  plan->split_keys = std::max<int64_t>(p.seqlen_k, 1);
  const int64_t units = plan->num_groups * ceil_div(plan->rows, target.panel_rows);
  if (units >= kEnoughItems / 2 || p.seqlen_k < 2 * kMinSplitKeys) return;
  const int64_t wanted = std::min(kEnoughItems / units, p.seqlen_k / kMinSplitKeys);
  plan->split_keys = ceil_div(ceil_div(p.seqlen_k, wanted), kMaxBlockN) * kMaxBlockN;
  plan->num_splits = ceil_div(p.seqlen_k, plan->split_keys);
}

// Everything of a plan that does not depend on the target.
ForwardPlan start_plan(const ForwardProblem& p) {
  ForwardPlan plan;
  plan.problem = &p;
  plan.partial_floats = p.head_dim_v + 2;
  constexpr double kLog2E = 1.44269504088896340736;
  plan.scale_1 = static_cast<float>(p.scale * kLog2E);
  plan.scale_2 = 1.0f;
  if (!std::isnormal(plan.scale_1) && p.scale != 0.0f) {
    plan.scale_1 = p.scale;
    plan.scale_2 = static_cast<float>(kLog2E);
  }
  return plan;
}

void finish_plan(const ForwardTarget& target, int num_threads, ForwardPlan* plan) {
  const ForwardProblem& p = *plan->problem;
  const bool share = p.heads_per_group() > 1 && p.seqlen_q < 2 * target.panel_rows;
  plan->heads_of_group = share ? p.heads_per_group() : 1;
  plan->num_groups = p.batch * (p.num_heads / plan->heads_of_group);
  plan->rows = plan->heads_of_group * p.seqlen_q;
  choose_splits(target, plan);
  choose_tiles(target, num_threads, plan);
}

const ForwardTarget& target_for(const ForwardPlan& plan) {
  if (const ForwardTarget* forced = forced_target.load(std::memory_order_relaxed)) return *forced;
  int index = 0;
  while (index + 1 < num_forward_targets() &&
         !(forward_target(index).supported() && forward_target(index).serves(plan))) {
    ++index;
  }
  return forward_target(index);
}

void store_number(void* base, DType dtype, int64_t at, float value) {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(base)[at] = value; break;
    case DType::kFloat16: static_cast<uint16_t*>(base)[at] = float16_from_float(value); break;
    case DType::kBFloat16: static_cast<uint16_t*>(base)[at] = bfloat16_from_float(value); break;
  }
}

// Joins the partial results of one row: the online softmax's rescaling, in the order of the keys.
void merge_row(const ForwardPlan& plan, int64_t group, int64_t row) {
  const ForwardProblem& p = *plan.problem;
  const RowPlace place = place_of(plan, group, row);
  const KeyRange keys = visible_keys(p, place.query);
  const bool empty = keys.begin >= keys.end;
  // The first split's slot is where the row is put together.
  float* total = plan.partial(group, row, 0);
  float maximum = total[0];
  for (int64_t split = 1; split < plan.num_splits; ++split) {
    maximum = std::max(maximum, plan.partial(group, row, split)[0]);
  }
  float sum = 0.0f;
  for (int64_t split = 0; split < plan.num_splits; ++split) {
    const float* part = plan.partial(group, row, split);
    const float weight = std::exp2(part[0] - maximum);
    sum += weight * part[1];
    for (int64_t d = 2; d < plan.partial_floats; ++d) {
      total[d] = split == 0 ? weight * part[d] : total[d] + weight * part[d];
    }
  }
  const float inverse = 1.0f / sum;
  const int64_t o = place.batch * p.o_strides.batch + place.head * p.o_strides.head +
                    place.query * p.o_strides.row;
  for (int64_t d = 0; d < p.head_dim_v; ++d) {
    const float value = empty ? 0.0f : total[2 + d] * inverse;
    store_number(p.o, p.dtype, o + d * p.o_strides.column, value);
  }
  if (p.lse == nullptr) return;
  constexpr double kLn2 = 0.693147180559945309417;
  p.lse[place.batch * p.lse_strides.batch + place.head * p.lse_strides.head +
        place.query * p.lse_strides.row] =
      empty ? p.empty_row_lse : static_cast<float>(maximum * kLn2 + std::log(double{sum}));
}

// OpenMP ends the process where it cannot start the threads that it is asked for, so a number
// beyond the machine's, and beyond what the process was set to, is cut here.
int most_threads() {
  return std::min(std::max(omp_get_num_procs(), omp_get_max_threads()), omp_get_thread_limit());
}

// A forked process has none of its parent's OpenMP threads, but OpenMP's account of them: it would
// wait for them for ever. Such a process does its work on the calling thread.
std::atomic<bool> lost_threads{false};

void watch_forks() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { lost_threads.store(true, std::memory_order_relaxed); });
}

// The caller's number, or OpenMP's, but no more than have enough to do: a call of a few rows is
// over before a second thread has woken up. (Bits do not depend on the number of threads.)
int threads_wanted(const ForwardProblem& p) {
  if (lost_threads.load(std::memory_order_relaxed)) return 1;
  if (p.num_threads > 0) return std::min(p.num_threads, most_threads());
  constexpr double kMinProductsPerThread = 250e3;
  const double products = static_cast<double>(p.batch * p.num_heads) * p.seqlen_q *
                          std::max<int64_t>(p.seqlen_k, 1) * (p.head_dim + p.head_dim_v);
  const double enough = std::max(products / kMinProductsPerThread, 1.0);
  const int allowed = std::min(omp_get_max_threads(), most_threads());
  return static_cast<int>(std::min<double>(allowed, enough));
}

}  // namespace

const ForwardTarget& general_target() {
  ForwardProblem problem;  // float32
  return target_for(start_plan(problem));
}

const char* targets_in_use() {
  static const std::string text = [] {
    std::string names = general_target().name;
    ForwardProblem problem;
    problem.dtype = DType::kBFloat16;
    const ForwardPlan plan = start_plan(problem);
    const ForwardTarget& half = target_for(plan);
    if (&half != &general_target()) names += std::string(", ") + half.name + " for 16-bit inputs";
    return names;
  }();
  return text.c_str();
}

void force_target(const ForwardTarget* target) {
  forced_target.store(target, std::memory_order_relaxed);
}

tilefold_status forward(const ForwardProblem& problem) {
  watch_forks();
  ForwardPlan plan = start_plan(problem);
  const ForwardTarget& target = target_for(plan);
  finish_plan(target, threads_wanted(problem), &plan);
  const size_t scratch_bytes = target.scratch_bytes(plan);
  const int64_t num_rows = plan.num_groups * plan.rows;
  if (plan.num_splits > 1) {
    const size_t bytes = sizeof(float) * num_rows * plan.num_splits * plan.partial_floats;
    plan.partials = reinterpret_cast<float*>(caller_partials.reserve(bytes));
    if (plan.partials == nullptr) {
      return fail(TILEFOLD_ERROR_OUT_OF_MEMORY, "%zu bytes for partial results could not be had",
                  bytes);
    }
  }
  const int64_t num_items = plan.num_items();
  [[maybe_unused]] const int num_threads =  // used by the pragma, which analysers may not see
      static_cast<int>(std::min<int64_t>(threads_wanted(problem), std::max<int64_t>(num_items, 1)));

  // No thread writes a result before every thread has its scratch.
  std::atomic<bool> out_of_memory{false};
#pragma omp parallel num_threads(num_threads)
  {
    std::byte* scratch = thread_scratch.reserve(scratch_bytes);
    if (scratch == nullptr) out_of_memory = true;
#pragma omp barrier
    if (!out_of_memory) {
#pragma omp for schedule(dynamic, 1)
      for (int64_t index = 0; index < num_items; ++index) {
        // Row tiles from the last to the first: under a causal mask the last have the most keys.
        const int64_t unit = index / plan.num_splits;
        target.run_item(plan, unit / plan.num_m_blocks,
                        plan.num_m_blocks - 1 - unit % plan.num_m_blocks, index % plan.num_splits,
                        scratch);
      }
      if (plan.num_splits > 1) {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < num_rows; ++row)
          merge_row(plan, row / plan.rows, row % plan.rows);
      }
    }
  }
  if (out_of_memory) {
    return fail(TILEFOLD_ERROR_OUT_OF_MEMORY, "%zu bytes of scratch per thread could not be had",
                scratch_bytes);
  }
  return TILEFOLD_OK;
}

}  // namespace tilefold::cpu
