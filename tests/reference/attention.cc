// Attention computed the naive way, row by row.
#include "attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

namespace tilefold::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A [B, H, N, D] tensor as contiguous floats (exact for every dtype); `transposed` stores [B, H, D,
// N].
std::vector<float> read_all(const DLTensor& tensor, bool transposed) {
  DType dtype = DType::kFloat32;
  from_dl(tensor.dtype, &dtype);
  const int64_t* n = tensor.shape;
  int64_t s[4];
  int64_t contiguous = 1;
  for (int axis = 3; axis >= 0; --axis) {
    s[axis] = n[axis] == 1 ? 0 : tensor.strides ? tensor.strides[axis] : contiguous;
    contiguous *= n[axis];
  }
  std::vector<float> values(static_cast<size_t>(contiguous));
  const char* base = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  for (int64_t b = 0; b < n[0]; ++b) {
    for (int64_t h = 0; h < n[1]; ++h) {
      float* head = values.data() + (b * n[1] + h) * n[2] * n[3];
      for (int64_t i = 0; i < n[2]; ++i) {
        for (int64_t d = 0; d < n[3]; ++d) {
          const int64_t offset = b * s[0] + h * s[1] + i * s[2] + d * s[3];
          head[transposed ? d * n[2] + i : i * n[3] + d] =
              load_element(dtype, base + offset * dtype_bytes(dtype));
        }
      }
    }
  }
  return values;
}

// The operands of one row.
struct Row {
  const float* q;    // [D]
  const float* k_t;  // [D, Nk]
  const float* v;    // [Nk, Dv]
  int64_t i;         // query index
  size_t at;         // index into the per-row results
};

// Scratch of one thread.
struct Scratch {
  std::vector<double> scores;
  std::vector<float> scores_single;
  std::vector<double> magnitudes;
  std::vector<float> output_single;
};

void empty_row(const Parameters& parameters, Result* result, size_t at) {
  std::fill_n(result->o.begin() + at * result->head_dim_v, result->head_dim_v, 0.0);
  result->lse[at] = parameters.empty_row_lse_negative ? -kInfinity : kInfinity;
}

void row_bounds(const Parameters& parameters, double scale, const Row& row, Scratch* scratch,
                Result* result) {
  const int64_t nk = result->seqlen_k;
  auto& magnitudes = scratch->magnitudes;
  magnitudes.assign(nk, 0.0);
  for (int64_t d = 0; d < result->head_dim; ++d) {
    const double q = std::fabs(static_cast<double>(row.q[d]));
    const float* k = row.k_t + d * nk;
    for (int64_t j = 0; j < nk; ++j) magnitudes[j] += q * std::fabs(static_cast<double>(k[j]));
  }
  double logit_bound = 0;
  double value_bound = 0;
  int64_t visible = 0;
  for (int64_t j = 0; j < nk; ++j) {
    if (!parameters.sees(row.i, j, result->seqlen_q, nk)) continue;
    ++visible;
    logit_bound = std::max(logit_bound, std::fabs(scale) * magnitudes[j]);
    for (int64_t c = 0; c < result->head_dim_v; ++c) {
      value_bound =
          std::max(value_bound, std::fabs(static_cast<double>(row.v[j * result->head_dim_v + c])));
    }
  }
  result->logit_bound[row.at] = logit_bound;
  result->value_bound[row.at] = value_bound;
  result->visible[row.at] = visible;
}

void float64_row(const Parameters& parameters, double scale, const Row& row, Scratch* scratch,
                 Result* result) {
  const int64_t nk = result->seqlen_k;
  const int64_t dv = result->head_dim_v;
  row_bounds(parameters, scale, row, scratch, result);
  if (result->visible[row.at] == 0) return empty_row(parameters, result, row.at);

  auto& scores = scratch->scores;
  scores.assign(nk, 0.0);
  for (int64_t d = 0; d < result->head_dim; ++d) {
    const double q = row.q[d];
    const float* k = row.k_t + d * nk;
    for (int64_t j = 0; j < nk; ++j) scores[j] += q * static_cast<double>(k[j]);
  }
  double row_max = -kInfinity;
  bool nan = false;
  for (int64_t j = 0; j < nk; ++j) {
    if (!parameters.sees(row.i, j, result->seqlen_q, nk)) continue;
    scores[j] *= scale;
    nan = nan || std::isnan(scores[j]) || scores[j] == kInfinity;
    row_max = std::max(row_max, scores[j]);
  }
  double* o = result->o.data() + row.at * dv;
  if (nan || row_max == -kInfinity) {
    std::fill_n(o, dv, kNaN);
    result->lse[row.at] = nan ? kNaN : -kInfinity;
    result->nan_logits[row.at] = nan ? 1 : 0;
    return;
  }
  double row_sum = 0;
  std::fill_n(o, dv, 0.0);
  for (int64_t j = 0; j < nk; ++j) {
    if (!parameters.sees(row.i, j, result->seqlen_q, nk)) continue;
    const double p = std::exp(scores[j] - row_max);
    row_sum += p;
    const float* v = row.v + j * dv;
    for (int64_t c = 0; c < dv; ++c) o[c] += p * static_cast<double>(v[c]);
  }
  for (int64_t c = 0; c < dv; ++c) o[c] /= row_sum;
  result->lse[row.at] = row_max + std::log(row_sum);
  result->row_sum[row.at] = row_sum;
}

void single_row(const Parameters& parameters, double exact_scale, const Row& row, Scratch* scratch,
                Result* result) {
  const int64_t nk = result->seqlen_k;
  const int64_t dv = result->head_dim_v;
  const float scale = static_cast<float>(exact_scale);
  auto& scores = scratch->scores_single;
  scores.assign(nk, 0.0f);
  for (int64_t d = 0; d < result->head_dim; ++d) {
    const float q = row.q[d];
    const float* k = row.k_t + d * nk;
    for (int64_t j = 0; j < nk; ++j) scores[j] += q * k[j];
  }
  float row_max = -std::numeric_limits<float>::infinity();
  int64_t visible = 0;
  bool nan = false;
  for (int64_t j = 0; j < nk; ++j) {
    if (!parameters.sees(row.i, j, result->seqlen_q, nk)) continue;
    ++visible;
    scores[j] *= scale;
    nan = nan || std::isnan(scores[j]);
    row_max = std::max(row_max, scores[j]);
  }
  if (visible == 0) return empty_row(parameters, result, row.at);
  float row_sum = 0.0f;
  for (int64_t j = 0; j < nk; ++j) {
    if (!parameters.sees(row.i, j, result->seqlen_q, nk)) continue;
    scores[j] = std::exp(scores[j] - row_max);
    row_sum += scores[j];
  }
  auto& o = scratch->output_single;
  o.assign(dv, 0.0f);
  for (int64_t j = 0; j < nk; ++j) {
    if (!parameters.sees(row.i, j, result->seqlen_q, nk)) continue;
    const float p = round_to(result->dtype, scores[j] / row_sum);
    const float* v = row.v + j * dv;
    for (int64_t c = 0; c < dv; ++c) o[c] += p * v[c];
  }
  for (int64_t c = 0; c < dv; ++c) {
    result->o[row.at * dv + c] = nan ? kNaN : round_to(result->dtype, o[c]);
  }
  result->lse[row.at] = nan ? kNaN : row_max + std::log(row_sum);
  result->row_sum[row.at] = row_sum;
  result->visible[row.at] = visible;
  result->nan_logits[row.at] = nan ? 1 : 0;
}

template <typename RowFunction>
Result run(const DLTensor& q, const DLTensor& k, const DLTensor& v, const Parameters& parameters,
           RowFunction&& row_function) {
  Result result;
  from_dl(q.dtype, &result.dtype);
  result.batch = q.shape[0];
  result.heads = q.shape[1];
  result.seqlen_q = q.shape[2];
  result.head_dim = q.shape[3];
  result.seqlen_k = k.shape[2];
  result.head_dim_v = v.shape[3];
  result.row_step = std::max<int64_t>(parameters.row_step, 1);
  const int64_t heads_kv = k.shape[1];
  const int64_t num_rows = result.batch * result.heads * result.seqlen_q;
  result.o.assign(num_rows * result.head_dim_v, kNaN);
  for (auto* per_row : {&result.lse, &result.logit_bound, &result.value_bound, &result.row_sum}) {
    per_row->assign(num_rows, per_row == &result.lse ? kNaN : 0.0);
  }
  result.visible.assign(num_rows, 0);
  result.nan_logits.assign(num_rows, 0);
  if (num_rows == 0) return result;

  const std::vector<float> q_all = read_all(q, false);
  const std::vector<float> k_all = read_all(k, true);
  const std::vector<float> v_all = read_all(v, false);
  const double scale = parameters.has_scale ? parameters.scale
                                            : 1.0 / std::sqrt(static_cast<double>(result.head_dim));

  std::atomic<int64_t> next{0};
  const auto work = [&] {
    Scratch scratch;
    constexpr int64_t kChunk = 16;
    for (int64_t begin; (begin = next.fetch_add(kChunk)) < num_rows;) {
      for (int64_t r = begin; r < std::min(begin + kChunk, num_rows); ++r) {
        const int64_t i = r % result.seqlen_q;
        if (i % result.row_step != 0) continue;
        const int64_t head = r / result.seqlen_q % result.heads;
        const int64_t b = r / result.seqlen_q / result.heads;
        const int64_t kv = b * heads_kv + head / (result.heads / heads_kv);
        const Row row = {q_all.data() + r * result.head_dim,
                         k_all.data() + kv * result.seqlen_k * result.head_dim,
                         v_all.data() + kv * result.seqlen_k * result.head_dim_v, i,
                         static_cast<size_t>(r)};
        row_function(scale, row, &scratch, &result);
      }
    }
  };
  const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
  const int64_t wanted = parameters.num_threads > 0 ? parameters.num_threads : processors;
  const int64_t useful = num_rows * std::max<int64_t>(result.seqlen_k, 1) / 4096 + 1;
  std::vector<std::thread> threads;
  for (int64_t t = 1; t < std::min(wanted, useful); ++t) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
  return result;
}

}  // namespace

bool Parameters::sees(int64_t i, int64_t j, int64_t seqlen_q, int64_t seqlen_k) const {
  const int64_t shift = seqlen_k - seqlen_q;
  if (causal == TILEFOLD_CAUSAL_TOP_LEFT && j > i) return false;
  if (causal == TILEFOLD_CAUSAL_BOTTOM_RIGHT && j > i + shift) return false;
  const bool bottom_right =
      window_align == TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT ||
      (window_align == TILEFOLD_WINDOW_ALIGN_AUTO && causal == TILEFOLD_CAUSAL_BOTTOM_RIGHT);
  const int64_t distance = j - (bottom_right ? i + shift : i);
  if (window_left >= 0 && -distance > window_left) return false;
  if (window_right >= 0 && distance > window_right) return false;
  return true;
}

Parameters parameters_of(const tilefold_options* options) {
  Parameters parameters;
  if (options == nullptr) return parameters;
  parameters.causal = options->causal;
  parameters.window_left = options->window_left;
  parameters.window_right = options->window_right;
  parameters.window_align = options->window_align;
  parameters.has_scale = options->has_scale != 0;
  parameters.scale = options->scale;
  parameters.empty_row_lse_negative =
      options->empty_row_lse == TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY;
  return parameters;
}

Result attention(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                 const Parameters& parameters) {
  return run(q, k, v, parameters, [&](double scale, const Row& row, Scratch* s, Result* result) {
    float64_row(parameters, scale, row, s, result);
  });
}

Result attention(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                 const tilefold_options* options) {
  return attention(q, k, v, parameters_of(options));
}

Result naive_same_precision(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                            const Parameters& parameters) {
  return run(q, k, v, parameters, [&](double scale, const Row& row, Scratch* s, Result* result) {
    single_row(parameters, scale, row, s, result);
  });
}

Result naive_same_precision(const DLTensor& q, const DLTensor& k, const DLTensor& v,
                            const tilefold_options* options) {
  return naive_same_precision(q, k, v, parameters_of(options));
}

}  // namespace tilefold::reference
