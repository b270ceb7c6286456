// What the tests of the contract share: running a case through the C interface and judging it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "reference.h"
#include "tilefold/tilefold.h"

namespace tilefold::test {

using reference::Case;
using reference::DType;
using reference::HostTensor;
using reference::Instance;
using reference::Values;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Workspace filled with NaN, as large as the call asks for and aligned.
class Workspace {
 public:
  explicit Workspace(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    const size_t rounded = (bytes + 255) / 256 * 256;
    memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(256, rounded)));
    std::fill_n(memory_.get(), rounded, 0xff);
  }
  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(unsigned char* p) const { std::free(p); }
  };
  std::unique_ptr<unsigned char[], Free> memory_;
  size_t bytes_;
};

// tilefold_forward() with the workspace it asks for. A failure's sentence is in
// tilefold_last_error().
inline tilefold_status forward(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                               const DLTensor* o, const DLTensor* lse,
                               const tilefold_options* options) {
  size_t bytes = 0;
  const tilefold_status status = tilefold_forward_workspace_bytes(q, k, v, o, lse, options, &bytes);
  if (status != TILEFOLD_OK) return status;
  const Workspace workspace(bytes);
  return tilefold_forward(q, k, v, o, lse, options, workspace.data(), workspace.bytes(), nullptr);
}

inline tilefold_status forward(const Instance& in) {
  return forward(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), in.lse_dl(), &in.options);
}

// Runs a made instance and compares with the reference: values, the FlashAttention criterion, and
// that nothing but the outputs' elements was written.
inline ::testing::AssertionResult run_and_judge(Instance& in) {
  const HostTensor q = in.q.clone(), k = in.k.clone(), v = in.v.clone();
  if (const auto status = forward(in); status != TILEFOLD_OK) {
    return ::testing::AssertionFailure()
           << tilefold_status_string(status) << ": " << tilefold_last_error();
  }
  const auto expected = reference::attention(*q.dl(), *k.dl(), *v.dl(), &in.options);
  const auto comparison = reference::compare(expected, *in.o.dl(), in.lse_dl());
  if (!comparison.ok) return ::testing::AssertionFailure() << comparison.message();
  const auto naive = reference::naive_same_precision(*q.dl(), *k.dl(), *v.dl(), &in.options);
  const auto criterion = reference::flash_attention_criterion(expected, naive, *in.o.dl());
  if (!criterion.ok) {
    return ::testing::AssertionFailure()
           << "error " << criterion.error << " is more than twice that of the naive computation, "
           << criterion.naive_error << " (allowed: " << criterion.allowed << ")";
  }
  for (const HostTensor* tensor : {&in.q, &in.k, &in.v, &in.o, &in.lse}) {
    if (!tensor->surroundings_intact()) {
      return ::testing::AssertionFailure() << "memory around a tensor was written";
    }
  }
  if (!same_bits(q, in.q) || !same_bits(k, in.k) || !same_bits(v, in.v)) {
    return ::testing::AssertionFailure() << "an input was written";
  }
  if (!in.want_lse && !in.lse.untouched()) {
    return ::testing::AssertionFailure() << "lse was written, though it was not given";
  }
  return ::testing::AssertionSuccess() << comparison.message();
}

inline ::testing::AssertionResult run_and_judge(const Case& c) {
  Instance in = make_instance(c);
  auto result = run_and_judge(in);
  if (!result) result << "\n  case: " << c.to_string();
  return result;
}

// A case of one batch, `heads` heads, D = Dv.
inline Case simple_case(DType dtype, int64_t heads, int64_t nq, int64_t nk, int64_t d) {
  Case c;
  c.dtype = dtype;
  c.heads = c.heads_kv = heads;
  c.seqlen_q = nq;
  c.seqlen_k = nk;
  c.head_dim = c.head_dim_v = d;
  c.seed = static_cast<uint64_t>(nq * 131 + nk * 17 + d);
  return c;
}

// Test names of dtype-parametrised suites.
inline std::string dtype_suffix(const ::testing::TestParamInfo<DType>& info) {
  return reference::dtype_name(info.param);
}

}  // namespace tilefold::test
