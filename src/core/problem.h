// The validated form of a forward call: what every back end is given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilefold {

enum class DType : int32_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

constexpr int64_t dtype_bytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }
const char* dtype_name(DType dtype);  // "float32", "float16", "bfloat16"

enum class DeviceType : int32_t { kCpu = 0, kCuda = 1 };

// Strides of a [batch, head, row, column] tensor, in elements. The stride of an axis of length 1
// (or 0) is 0.
struct Strides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t column = 0;

  bool operator==(const Strides&) const = default;
};

// A forward call after validation. Every back end may rely on: sizes >= 0; num_heads a multiple of
// num_heads_kv (unless either is 0); head_dim and head_dim_v >= 1; all byte offsets of all elements
// fit int64_t; a finite scale; the mask normalised as below. `lse` may be null.
struct ForwardProblem {
  DType dtype = DType::kFloat32;
  DeviceType device_type = DeviceType::kCpu;
  int32_t device_id = 0;

  int64_t batch = 0;
  int64_t num_heads = 0;     // Hq
  int64_t num_heads_kv = 0;  // Hkv
  int64_t seqlen_q = 0;      // Nq
  int64_t seqlen_k = 0;      // Nk
  int64_t head_dim = 0;      // D
  int64_t head_dim_v = 0;    // Dv

  const void* q = nullptr;  // [B, Hq, Nq, D]
  const void* k = nullptr;  // [B, Hkv, Nk, D]
  const void* v = nullptr;  // [B, Hkv, Nk, Dv]
  void* o = nullptr;        // [B, Hq, Nq, Dv]
  float* lse = nullptr;     // [B, Hq, Nq] or null
  Strides q_strides;
  Strides k_strides;
  Strides v_strides;
  Strides o_strides;
  Strides lse_strides;  // column unused

  float scale = 1.0f;

  // Row i sees key j exactly when  i + diagonal_left <= j <= i + diagonal_right  (and 0 <= j <
  // seqlen_k). Causal masks of both alignments and windows all come down to these two numbers. They
  // are clamped to
  // [-seqlen_q, seqlen_k], so i + diagonal never overflows, and "unbounded" is diagonal_left =
  // -seqlen_q, diagonal_right = seqlen_k: two calls that mean the same mask give the same Problem.
  int64_t diagonal_left = 0;
  int64_t diagonal_right = 0;

  float empty_row_lse = 0.0f;  // +inf or -inf
  int32_t num_threads = 0;     // CPU: 0 = as OpenMP decides

  int64_t heads_per_group() const { return num_heads_kv == 0 ? 1 : num_heads / num_heads_kv; }

  // Whether any (row, key) pair of the rectangle is masked out on that side.
  bool masks_left() const { return diagonal_left > 1 - seqlen_q; }
  bool masks_right() const { return diagonal_right < seqlen_k - 1; }

  // True when there is no output element to compute.
  bool writes_nothing() const { return batch == 0 || num_heads == 0 || seqlen_q == 0; }

  bool operator==(const ForwardProblem&) const = default;
};

}  // namespace tilefold
