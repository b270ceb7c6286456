// How far a result may lie from the float64 reference, and the comparison that applies it.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <string>

#include "attention.h"

namespace tilefold::reference {

enum class Op { kForward };

// One row of the table dtype x op. All are multipliers of a quantity that each row of the result
// carries; the element bound of O is the sum of
//
//   output_units * u(dtype) * |v|max
//     O is rounded once to the output's dtype;
//   probability_units * (u(dtype) + uf(dtype) * visible / l) * |v|max
//     P is rounded once: p in [0, 1], relative to the largest, so relatively by u, and absolutely
//     by uf where it is subnormal (float16);
//   score_units * (4 + D / 8) * 2^-24 * 2 * |s|max * |v|max
//     an error e of the logits changes each p by a factor within exp(+-e), thus O by <= 2 e |v|max;
//   accumulate_units * (8 + visible * per_key) * 2^-24 * |v|max
//     float32 sums over keys; per_key as below,
//
// where u is the unit roundoff, |v|max the largest visible |v|, |s|max the largest visible |scale|
// sum_d |q_d k_d| (which bounds every rounding error of a dot product, cancellation or not), l the
// sum of exp(s - max). LSE has the score term without |v|max, the accumulation term, and its own
// rounding.
struct Tolerance {
  DType dtype;
  Op op;
  double output_units;
  double probability_units;
  double score_units;  // on (4 + D/8): products of a dot product are summed in at least 8 chains
  double accumulate_units;  // on (8 + visible * per_key)
  double per_key;
};

// The table. Why these numbers:
// - float32: P is not rounded; O's own rounding and the division cost 2 u. Sums run in at least 8
//   chains (SIMD lanes or CUDA threads), each addition within 2^-24: per_key 1/8.
// - float16, bfloat16: output 1 u and P 1 u. Tensor cores add in groups of 16 keys and truncate
//   (2^-23 a step where round-to-nearest has 2^-24): 2 * visible / 16.
const Tolerance& tolerance(DType dtype, Op op = Op::kForward);

struct Comparison {
  bool ok = true;
  double max_abs_error = 0;       // of O, over the finite elements of the reference
  double relative_frobenius = 0;  // |O - O_ref|_F / |O_ref|_F
  double lse_max_abs_error = 0;
  double worst_ratio = 0;  // largest error / bound, O and LSE
  int64_t elements = 0;    // compared, O and LSE
  int64_t offending = 0;   // beyond their bound
  // The first offending element.
  const char* tensor = "";  // "o" or "lse"
  int64_t index[4] = {0, 0, 0, 0};
  double actual = 0;
  double expected = 0;
  double bound = 0;

  // One line: "ok, max error ..." or "3 of 4096 elements wrong, first o[0, 1, 2, 3] = ... expected
  // ... +- ...".
  std::string message() const;
};

// Compares O (and LSE if not null), on the host, with the reference. NaN must meet NaN; an infinite
// LSE must be met exactly; where the reference has an infinite O (an infinite visible V), any value
// that is not finite will do; where some visible logit is NaN or +inf, LSE is unspecified.
Comparison compare(const Result& expected, const DLTensor& o, const DLTensor* lse);

// The FlashAttention criterion: a kernel's error against float64 is at most twice that of the naive
// computation of the same precision. float16 and bfloat16: the largest error, + one unit roundoff
// of the largest output for problems on which the naive program happens to be exact. float32: the
// root mean square (of two computations whose errors are a few roundings, the largest of few
// elements is luck), + two unit roundoffs; rows whose |s|max exceeds 64 are left to the element
// bound, because there the rounding of one logit outweighs all that a kernel does.
struct CriterionResult {
  bool ok = true;
  double error = 0;
  double naive_error = 0;
  double allowed = 0;
};
CriterionResult flash_attention_criterion(const Result& reference, const Result& naive,
                                          const DLTensor& o);

}  // namespace tilefold::reference
