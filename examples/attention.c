/* The C interface in one page: a causal attention with its log-sum-exp, checked against the
 * formula, the kernel that ran, and what a refusal looks like. Builds as C11:
 *
 *   cc attention.c -ltilefold -lm
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tilefold/tilefold.h>

enum { kBatch = 1, kHeads = 4, kHeadsKv = 2, kRows = 50, kKeys = 70, kHeadDim = 32 };

/* A contiguous float32 tensor on the CPU; `shape` must outlive it. */
static DLTensor tensor_of(float* data, int64_t* shape, int rank) {
  DLTensor tensor = {0};
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = rank;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor; /* strides NULL: contiguous */
}

/* The same numbers on every machine, in [-1, 1). */
static void fill(float* data, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

/* Largest error against the formula in double. Query head h reads key and value head h / (Hq /
 * Hkv); causal masks are aligned to the bottom right: row i sees key j when j <= i + Nk - Nq. */
static double largest_error(const float* q, const float* k, const float* v, const float* o,
                            const float* lse) {
  const double scale = 1.0 / sqrt((double)kHeadDim);
  double worst = 0.0;
  for (int h = 0; h < kHeads; ++h) {
    const float* kh = k + (size_t)(h / (kHeads / kHeadsKv)) * kKeys * kHeadDim;
    const float* vh = v + (size_t)(h / (kHeads / kHeadsKv)) * kKeys * kHeadDim;
    for (int i = 0; i < kRows; ++i) {
      const size_t row = (size_t)h * kRows + (size_t)i;
      double weighted[kHeadDim] = {0.0};
      double sum = 0.0;
      for (int j = 0; j <= i + kKeys - kRows; ++j) {
        double score = 0.0;
        for (int d = 0; d < kHeadDim; ++d)
          score += (double)q[row * kHeadDim + d] * kh[j * kHeadDim + d];
        const double weight = exp(scale * score);
        sum += weight;
        for (int d = 0; d < kHeadDim; ++d) weighted[d] += weight * vh[j * kHeadDim + d];
      }
      for (int d = 0; d < kHeadDim; ++d) {
        worst = fmax(worst, fabs(weighted[d] / sum - o[row * kHeadDim + d]));
      }
      worst = fmax(worst, fabs(log(sum) - lse[row]));
    }
  }
  return worst;
}

static int fail(const char* what, tilefold_status status) {
  fprintf(stderr, "%s: %s: %s\n", what, tilefold_status_string(status), tilefold_last_error());
  return EXIT_FAILURE;
}

int main(void) {
  static float q_data[kBatch * kHeads * kRows * kHeadDim];
  static float k_data[kBatch * kHeadsKv * kKeys * kHeadDim];
  static float v_data[kBatch * kHeadsKv * kKeys * kHeadDim];
  static float o_data[kBatch * kHeads * kRows * kHeadDim];
  static float lse_data[kBatch * kHeads * kRows];
  fill(q_data, sizeof(q_data) / sizeof(float), 1);
  fill(k_data, sizeof(k_data) / sizeof(float), 2);
  fill(v_data, sizeof(v_data) / sizeof(float), 3);
  int64_t q_shape[] = {kBatch, kHeads, kRows, kHeadDim};
  int64_t k_shape[] = {kBatch, kHeadsKv, kKeys, kHeadDim};
  int64_t lse_shape[] = {kBatch, kHeads, kRows};
  const DLTensor q = tensor_of(q_data, q_shape, 4);
  const DLTensor k = tensor_of(k_data, k_shape, 4);
  const DLTensor v = tensor_of(v_data, k_shape, 4);
  const DLTensor o = tensor_of(o_data, q_shape, 4);
  const DLTensor lse = tensor_of(lse_data, lse_shape, 3);

  tilefold_options options;
  tilefold_status status = tilefold_options_init(&options, sizeof(options));
  if (status != TILEFOLD_OK) return fail("options", status);
  options.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;

  /* Which kernel, and why: the first line is its name. */
  char text[2048];
  status = tilefold_explain(&q, &k, &v, &o, &lse, &options, text, sizeof(text), NULL);
  if (status != TILEFOLD_OK) return fail("explain", status);
  int first_line = 0;
  while (text[first_line] != '\0' && text[first_line] != '\n') ++first_line;
  printf("tilefold %s, kernel %.*s\n", tilefold_version(), first_line, text);

  /* The workspace is the caller's; often none is needed. */
  size_t bytes = 0;
  status = tilefold_forward_workspace_bytes(&q, &k, &v, &o, &lse, &options, &bytes);
  if (status != TILEFOLD_OK) return fail("workspace", status);
  void* workspace = bytes > 0 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
  if (bytes > 0 && workspace == NULL) return EXIT_FAILURE;
  status = tilefold_forward(&q, &k, &v, &o, &lse, &options, workspace, bytes, NULL);
  free(workspace);
  if (status != TILEFOLD_OK) return fail("forward", status);
  const double error = largest_error(q_data, k_data, v_data, o_data, lse_data);
  printf("largest error of O and LSE against the formula: %.1e\n", error);

  /* A refusal writes nothing and says what would be accepted. */
  k_shape[3] = kHeadDim / 2;
  status = tilefold_forward(&q, &k, &v, &o, &lse, &options, NULL, 0, NULL);
  printf("refused (%s): %s\n", tilefold_status_string(status), tilefold_last_error());
  return error < 1e-5 && status == TILEFOLD_ERROR_INVALID_ARGUMENT ? EXIT_SUCCESS : EXIT_FAILURE;
}
