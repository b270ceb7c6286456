// Made-up GPUs and problems, and what the rows of a table say to them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>

#include "core/kernel.h"

namespace tilefold {

struct Gpu {
  int32_t compute_capability;
  int32_t shared_kib;  // that a CTA may have
  int32_t num_multiprocessors;
};
inline constexpr Gpu k75 = {75, 64, 68};
inline constexpr Gpu k80 = {80, 163, 108};
inline constexpr Gpu k86 = {86, 99, 84};
inline constexpr Gpu k87 = {87, 163, 16};
inline constexpr Gpu k89 = {89, 99, 142};
inline constexpr Gpu k90 = {90, 227, 132};
inline constexpr Gpu k100 = {100, 227, 148};
inline constexpr Gpu k120 = {120, 99, 170};
inline constexpr Gpu k121 = {121, 99, 48};

inline DeviceProperties device_of(const Gpu& gpu) {
  DeviceProperties p;
  p.type = DeviceType::kCuda;
  p.compute_capability = gpu.compute_capability;
  p.num_multiprocessors = gpu.num_multiprocessors;
  p.shared_memory_bytes = int64_t{1024} * gpu.shared_kib;
  p.usable = true;
  return p;
}

// Strides of contiguous tensors.
inline void set_strides(ForwardProblem& p) {
  const auto contiguous = [](int64_t heads, int64_t rows, int64_t columns) {
    return Strides{heads * rows * columns, rows * columns, columns, 1};
  };
  p.q_strides = contiguous(p.num_heads, p.seqlen_q, p.head_dim);
  p.k_strides = contiguous(p.num_heads_kv, p.seqlen_k, p.head_dim);
  p.v_strides = contiguous(p.num_heads_kv, p.seqlen_k, p.head_dim_v);
  p.o_strides = contiguous(p.num_heads, p.seqlen_q, p.head_dim_v);
}

// Contiguous [2, 16, n, d], on addresses that are multiples of 256.
inline ForwardProblem problem_of(int64_t head_dim, int64_t n = 1024, bool causal = false) {
  ForwardProblem p;
  p.dtype = DType::kFloat16;
  p.device_type = DeviceType::kCuda;
  p.batch = 2;
  p.num_heads = p.num_heads_kv = 16;
  p.seqlen_q = p.seqlen_k = n;
  p.head_dim = p.head_dim_v = head_dim;
  alignas(256) static char memory[256];
  p.q = p.k = p.v = p.o = memory;
  set_strides(p);
  p.scale = 0.1f;
  p.diagonal_left = -n;
  p.diagonal_right = causal ? 0 : n;
  return p;
}

// What a row says to a problem: how much it is wanted, and the sentence that goes with that.
struct Answer {
  int wanted = 0;
  std::string text;
};
inline Answer answer_of(const KernelRow& row, const ForwardProblem& problem, const Gpu& gpu) {
  Reason reason;
  const int wanted = row.preference(row, problem, device_of(gpu), &reason);
  EXPECT_TRUE(wanted > 0 || reason.text[0] != '\0') << row.name;
  return {wanted, reason.text};
}

inline const KernelRow* row_named(std::span<const KernelRow> rows, const std::string& name) {
  for (const KernelRow& row : rows) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// The sentence of a row that does not take the problem.
inline std::string reason_of(std::span<const KernelRow> rows, const char* name,
                             const ForwardProblem& problem, const Gpu& gpu) {
  const KernelRow* row = row_named(rows, name);
  if (row == nullptr) return "there is no such row";
  const Answer answer = answer_of(*row, problem, gpu);
  EXPECT_EQ(0, answer.wanted) << name;
  return answer.text;
}

// The first of the rows that want it most; null if none takes it.
inline const KernelRow* best_of(std::span<const KernelRow> rows, const ForwardProblem& problem,
                                const Gpu& gpu) {
  const KernelRow* best = nullptr;
  int highest = 0;
  for (const KernelRow& row : rows) {
    const int wanted = answer_of(row, problem, gpu).wanted;
    if (wanted > highest) {
      highest = wanted;
      best = &row;
    }
  }
  return best;
}

}  // namespace tilefold
