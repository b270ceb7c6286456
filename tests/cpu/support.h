// What the tests of the CPU back end share: run a case, on a SIMD target, with so many threads.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cpu/forward.h"
#include "reference.h"
#include "tilefold/tilefold.h"

namespace tilefold::cpu_test {

inline tilefold_status run(reference::Instance& instance, int num_threads = 0) {
  tilefold_options options = instance.options;
  options.num_threads = num_threads;
  return tilefold_forward(instance.q.dl(), instance.k.dl(), instance.v.dl(), instance.o.dl(),
                          instance.lse_dl(), &options, nullptr, 0, nullptr);
}

// Runs the case and compares it with the float64 reference.
inline testing::AssertionResult matches_reference(const reference::Case& c, int num_threads = 0) {
  reference::Instance instance = reference::make_instance(c);
  if (run(instance, num_threads) != TILEFOLD_OK) {
    return testing::AssertionFailure() << c.to_string() << ": " << tilefold_last_error();
  }
  const reference::Result expected =
      reference::attention(*instance.q.dl(), *instance.k.dl(), *instance.v.dl(), &instance.options);
  const reference::Comparison comparison =
      reference::compare(expected, *instance.o.dl(), instance.lse_dl());
  if (!comparison.ok) {
    return testing::AssertionFailure() << c.to_string() << ": " << comparison.message();
  }
  if (!instance.o.surroundings_intact() || !instance.lse.surroundings_intact()) {
    return testing::AssertionFailure() << c.to_string() << ": wrote outside of the outputs";
  }
  return testing::AssertionSuccess();
}

inline reference::Case make_case(reference::DType dtype, int64_t heads, int64_t heads_kv,
                                 int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim,
                                 int64_t head_dim_v, int causal = TILEFOLD_CAUSAL_NONE) {
  reference::Case c;
  c.dtype = dtype;
  c.heads = heads;
  c.heads_kv = heads_kv;
  c.seqlen_q = seqlen_q;
  c.seqlen_k = seqlen_k;
  c.head_dim = head_dim;
  c.head_dim_v = head_dim_v;
  c.causal = causal;
  return c;
}

inline constexpr reference::DType kDTypes[] = {
    reference::DType::kFloat32, reference::DType::kFloat16, reference::DType::kBFloat16};

}  // namespace tilefold::cpu_test
