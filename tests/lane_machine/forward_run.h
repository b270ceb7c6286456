// Forward problems on the lane machine: a case of the reference's, laid out in memory where every
// stray access shows, run by a GPU kernel and compared with float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cases.h"
#include "core/problem.h"
#include "cuda/tensor_map.h"
#include "lane_machine/machine.h"
#include "tolerance.h"

namespace tilefold::lane_machine {

// A case as a kernel gets it.
struct ForwardSetup {
  reference::Case c;
  reference::Instance instance;
  ForwardProblem problem;
  GlobalMemory memory;

  // The tensors get gaps between rows and between heads, unless the case gives them strides of its
  // own.
  explicit ForwardSetup(const reference::Case& wanted);
  // Puts infinities and NaN where, under a causal mask, most rows do not see them.
  void hide_non_finite();
  // Fills the outputs with NaN again.
  void poison_outputs();
  // O and LSE against the reference (computed once per case). Also checks that nothing around them
  // was written.
  reference::Comparison compare();

 private:
  reference::Result expected_;
  bool have_expected_ = false;
};

// Checks of one run that a test asserts.
struct ForwardOutcome {
  RunReport report;
  reference::Comparison comparison;
  uint64_t expected_mma = 0;  // 0: not counted

  bool ok() const {
    return report.hazards.empty() && comparison.ok && report.bank_conflicts == 0 &&
           (expected_mma == 0 || report.count(Op::kMma) == expected_mma);
  }
  // What is wrong, a line each.
  std::string message() const;
};

// How a kernel is run.
struct ForwardRun {
  uint64_t seed = 0;
  int num_splits = 1;                   // sm80: K and V split over CTAs
  std::function<void(Launch&)> adjust;  // last word on the launch
};

// A kernel of the table, compiled for the host.
struct ForwardKernel {
  std::string name;
  const char* family;
  DType dtype;
  int head_dim;
  int head_dim_v;
  bool masked;  // takes masks and any scale
  int block_m;
  int block_n;
  std::function<ForwardOutcome(ForwardSetup&, const ForwardRun&)> run;
  int64_t most_queries = INT64_MAX;  // takes up to so many
};

// The kernels that are linked in, by name; register_kernel() adds one (and returns true).
const std::vector<ForwardKernel>& forward_kernels();
bool register_kernel(ForwardKernel kernel);
const ForwardKernel* find_kernel(const std::string& name);

// A problem for a kernel: its dtype and head dims, and what `text` says (reference::from_string). A
// text that begins with "nonfinite " also hides non-finite values.
ForwardSetup setup_for(const ForwardKernel& kernel, const std::string& text);

// As src/cuda/tensor_map.cc encodes it, for the lane machine's TMA.
TensorMap host_tensor_map(const TensorMapOperand& operand);

}  // namespace tilefold::lane_machine
