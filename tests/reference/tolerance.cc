// The tolerance table, and comparison with the reference.
#include "tolerance.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace tilefold::reference {
namespace {

constexpr double kFloatRoundoff = 0x1p-24;

constexpr Tolerance kTable[] = {
    {DType::kFloat32, Op::kForward, 2.0, 0.0, 1.0, 1.0, 1.0 / 8},
    {DType::kFloat16, Op::kForward, 1.0, 1.0, 1.0, 1.0, 2.0 / 16},
    {DType::kBFloat16, Op::kForward, 1.0, 1.0, 1.0, 1.0, 2.0 / 16},
};

// Reads any strided host tensor of rank <= 4.
struct Reader {
  DType dtype = DType::kFloat32;
  const char* base = nullptr;
  int64_t strides[4] = {0, 0, 0, 0};

  explicit Reader(const DLTensor& tensor) {
    from_dl(tensor.dtype, &dtype);
    base = static_cast<const char*>(tensor.data) + tensor.byte_offset;
    int64_t contiguous = 1;
    for (int axis = tensor.ndim - 1; axis >= 0; --axis) {
      const int64_t extent = tensor.shape[axis];
      strides[axis] = extent <= 1 ? 0 : tensor.strides ? tensor.strides[axis] : contiguous;
      contiguous *= extent;
    }
  }
  double operator()(int64_t b, int64_t h, int64_t i, int64_t c) const {
    const int64_t offset = b * strides[0] + h * strides[1] + i * strides[2] + c * strides[3];
    return load_element(dtype, base + offset * dtype_bytes(dtype));
  }
};

double score_error(const Tolerance& t, const Result& r, size_t row) {
  return t.score_units * (4 + static_cast<double>(r.head_dim) / 8) * kFloatRoundoff *
         r.logit_bound[row];
}

double sum_error(const Tolerance& t, const Result& r, size_t row) {
  return t.accumulate_units * (8 + static_cast<double>(r.visible[row]) * t.per_key) *
         kFloatRoundoff;
}

double output_bound(const Tolerance& t, const Result& r, size_t row) {
  if (r.visible[row] == 0) return 0;
  const double u = unit_roundoff(r.dtype);
  const double uf = underflow_roundoff(r.dtype);
  const double sum = std::max(r.row_sum[row], 1.0);
  const double relative =
      t.output_units * u + t.probability_units * (u + uf * r.visible[row] / sum) +
      std::expm1(std::min(2 * score_error(t, r, row), 50.0)) + 2 * sum_error(t, r, row);
  return relative * r.value_bound[row] + uf;
}

double lse_bound(const Tolerance& t, const Result& r, size_t row) {
  if (r.visible[row] == 0) return 0;
  return score_error(t, r, row) + sum_error(t, r, row) + 4 * kFloatRoundoff * std::fabs(r.lse[row]);
}

// Counts one element into the comparison.
void judge(const char* tensor, int64_t b, int64_t h, int64_t i, int64_t c, double actual,
           double expected, double bound, bool bad, Comparison* out) {
  ++out->elements;
  if (!bad) return;
  if (out->offending++ == 0) {
    out->ok = false;
    out->tensor = tensor;
    const int64_t index[4] = {b, h, i, c};
    std::copy_n(index, 4, out->index);
    out->actual = actual;
    out->expected = expected;
    out->bound = bound;
  }
}

void note_ratio(double error, double bound, Comparison* out) {
  if (bound > 0) out->worst_ratio = std::max(out->worst_ratio, error / bound);
}

}  // namespace

const Tolerance& tolerance(DType dtype, Op op) {
  for (const Tolerance& row : kTable) {
    if (row.dtype == dtype && row.op == op) return row;
  }
  return kTable[0];
}

Comparison compare(const Result& expected, const DLTensor& o, const DLTensor* lse) {
  Comparison out;
  const Tolerance& t = tolerance(expected.dtype);
  const Reader read_o(o);
  double square_error = 0;
  double square = 0;
  for (int64_t b = 0; b < expected.batch; ++b) {
    for (int64_t h = 0; h < expected.heads; ++h) {
      for (int64_t i = 0; i < expected.seqlen_q; i += expected.row_step) {
        const size_t row = (b * expected.heads + h) * expected.seqlen_q + i;
        const double bound = output_bound(t, expected, row);
        for (int64_t c = 0; c < expected.head_dim_v; ++c) {
          const double actual = read_o(b, h, i, c);
          const double wanted = expected.o[row * expected.head_dim_v + c];
          bool bad;
          if (std::isnan(wanted)) {
            bad = !std::isnan(actual);
          } else if (std::isinf(wanted)) {
            bad = std::isfinite(actual);
          } else {
            const double error = std::fabs(actual - wanted);
            bad = !(error <= bound);
            if (std::isfinite(actual)) {
              out.max_abs_error = std::max(out.max_abs_error, error);
              square_error += error * error;
              note_ratio(error, bound, &out);
            }
            square += wanted * wanted;
          }
          judge("o", b, h, i, c, actual, wanted, bound, bad, &out);
        }
      }
    }
  }
  out.relative_frobenius = square > 0 ? std::sqrt(square_error / square) : std::sqrt(square_error);
  if (lse == nullptr) return out;

  const Reader read_lse(*lse);
  for (int64_t b = 0; b < expected.batch; ++b) {
    for (int64_t h = 0; h < expected.heads; ++h) {
      for (int64_t i = 0; i < expected.seqlen_q; i += expected.row_step) {
        const size_t row = (b * expected.heads + h) * expected.seqlen_q + i;
        if (expected.nan_logits[row]) continue;
        const double bound = lse_bound(t, expected, row);
        const double actual = read_lse(b, h, i, 0);
        const double wanted = expected.lse[row];
        bool bad;
        if (std::isinf(wanted)) {
          bad = actual != wanted;
        } else {
          const double error = std::fabs(actual - wanted);
          bad = !(error <= bound);
          if (std::isfinite(actual)) {
            out.lse_max_abs_error = std::max(out.lse_max_abs_error, error);
            note_ratio(error, bound, &out);
          }
        }
        judge("lse", b, h, i, 0, actual, wanted, bound, bad, &out);
      }
    }
  }
  return out;
}

std::string Comparison::message() const {
  char text[400];
  if (ok) {
    std::snprintf(text, sizeof(text),
                  "ok: %lld elements, max error %.3g, relative Frobenius %.3g, LSE max error %.3g, "
                  "at most %.2f of the bound",
                  static_cast<long long>(elements), max_abs_error, relative_frobenius,
                  lse_max_abs_error, worst_ratio);
    return text;
  }
  char where[120];
  const long long n[4] = {index[0], index[1], index[2], index[3]};
  if (tensor[0] == 'o') {
    std::snprintf(where, sizeof(where), "o[%lld, %lld, %lld, %lld]", n[0], n[1], n[2], n[3]);
  } else {
    std::snprintf(where, sizeof(where), "lse[%lld, %lld, %lld]", n[0], n[1], n[2]);
  }
  std::snprintf(text, sizeof(text),
                "%lld of %lld elements wrong, first %s = %.9g, expected %.9g +- %.3g; max error "
                "%.3g, relative Frobenius %.3g",
                static_cast<long long>(offending), static_cast<long long>(elements), where, actual,
                expected, bound, max_abs_error, relative_frobenius);
  return text;
}

CriterionResult flash_attention_criterion(const Result& reference, const Result& naive,
                                          const DLTensor& o) {
  constexpr double kLargestFloat32Logit = 64;
  const bool single = reference.dtype == DType::kFloat32;
  const Reader read_o(o);
  double largest = 0, error = 0, naive_error = 0, square = 0, naive_square = 0;
  int64_t count = 0;
  for (int64_t b = 0; b < reference.batch; ++b) {
    for (int64_t h = 0; h < reference.heads; ++h) {
      for (int64_t i = 0; i < reference.seqlen_q; i += reference.row_step) {
        const size_t row = (b * reference.heads + h) * reference.seqlen_q + i;
        if (single && reference.logit_bound[row] > kLargestFloat32Logit) continue;
        for (int64_t c = 0; c < reference.head_dim_v; ++c) {
          const double wanted = reference.o[row * reference.head_dim_v + c];
          const double other = std::fabs(naive.o[row * naive.head_dim_v + c] - wanted);
          if (!std::isfinite(wanted) || !std::isfinite(other)) continue;
          const double actual = read_o(b, h, i, c);
          const double e = std::isfinite(actual) ? std::fabs(actual - wanted) : 1e30;
          error = std::max(error, e);
          naive_error = std::max(naive_error, other);
          square += e * e;
          naive_square += other * other;
          ++count;
          largest = std::max(largest, std::fabs(wanted));
        }
      }
    }
  }
  CriterionResult out;
  if (count == 0) return out;
  const double u = unit_roundoff(reference.dtype);
  out.error = single ? std::sqrt(square / count) : error;
  out.naive_error = single ? std::sqrt(naive_square / count) : naive_error;
  out.allowed = 2 * out.naive_error + (single ? 2 : 1) * u * largest;
  out.ok = out.error <= out.allowed;
  return out;
}

}  // namespace tilefold::reference
