// Attention computed the naive way: the float64 reference, and the same-precision computation that
// the FlashAttention criterion compares with. Independent of the library: masks, scale and
// conversions are worked out here once more.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <vector>

#include "number_formats.h"
#include "tilefold/tilefold.h"

namespace tilefold::reference {

// The options of a forward call as the reference reads them.
struct Parameters {
  int causal = TILEFOLD_CAUSAL_NONE;
  int64_t window_left = -1;   // -1: unbounded
  int64_t window_right = -1;  // -1: unbounded
  int window_align = TILEFOLD_WINDOW_ALIGN_AUTO;
  bool has_scale = false;  // false: 1/sqrt(D)
  float scale = 0.0f;
  bool empty_row_lse_negative = false;
  int num_threads = 0;  // of the reference itself; 0: one per processor
  int64_t row_step =
      1;  // only rows with i % row_step == 0 are computed, for problems too large for float64

  // Whether query row i sees key j.
  bool sees(int64_t i, int64_t j, int64_t seqlen_q, int64_t seqlen_k) const;
};

// `options` may be null: the defaults.
Parameters parameters_of(const tilefold_options* options);

// O and LSE, contiguous, with what an error bound needs of each row.
struct Result {
  int64_t batch = 0, heads = 0, seqlen_q = 0, seqlen_k = 0, head_dim = 0, head_dim_v = 0;
  int64_t row_step = 1;
  DType dtype = DType::kFloat32;
  std::vector<double> o;    // [B, Hq, Nq, Dv]; NaN in rows that were not computed
  std::vector<double> lse;  // [B, Hq, Nq]
  // Per row [B, Hq, Nq]:
  std::vector<double> logit_bound;  // max over visible keys of |scale| * sum_d |q_d k_d|
  std::vector<double> value_bound;  // max over visible keys and columns of |v|
  std::vector<double> row_sum;      // sum over visible keys of exp(logit - largest logit)
  std::vector<int64_t> visible;     // number of visible keys
  std::vector<char> nan_logits;  // 1: some visible logit is NaN or +inf, so that LSE is unspecified
};

// The reference: q, k, v on the host in any strides, of the shapes that tilefold_forward() takes
// and trusted to be so. Every arithmetic operation is float64. Memory: float32 copies of the inputs
// and one row of scores per thread.
Result attention(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                 const Parameters& parameters);
Result attention(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                 const tilefold_options* options);

// What a careful naive program of the inputs' precision computes: float32 scores, softmax over the
// whole row, P rounded to the inputs' dtype, float32 sums, O rounded to the inputs' dtype. The
// FlashAttention criterion: a kernel's error against attention() is at most twice this one's.
Result naive_same_precision(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                            const Parameters& parameters);
Result naive_same_precision(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                            const tilefold_options* options);

}  // namespace tilefold::reference
