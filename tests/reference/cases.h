// Forward problems as values: written on one line, read back from it, drawn at random from a seed,
// and turned into tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host_tensor.h"
#include "tilefold/tilefold.h"

namespace tilefold::reference {

// How the elements of q, k and v are drawn.
enum class Values {
  kNormal,       // N(0, 1)
  kUniform,      // U(-1, 1)
  kLargeLogits,  // q of N(0, 20^2): softmax is close to a maximum
  kHugeLogits,   // q and k of magnitude ~100: logits of 1e5 and more, beyond float16
  kZeroQueries,  // q = 0: O is a mean of V
  kNegative,     // all logits near -120
  kOneHotKey,    // one key per head is 64 times larger than the others
  kOffset,       // N(3, 1): logits share a large common part
};

// One element's worth of layout: strides in elements, empty = contiguous.
struct Layout {
  std::vector<int64_t> strides;
  int64_t offset_elems = 0;  // of the lowest element from a 64-byte boundary
};

struct Case {
  DType dtype = DType::kFloat32;
  int64_t batch = 1, heads = 1, heads_kv = 1, seqlen_q = 1, seqlen_k = 1;
  int64_t head_dim = 64, head_dim_v = 64;
  int causal = TILEFOLD_CAUSAL_NONE;
  int64_t window_left = -1, window_right = -1;
  int window_align = TILEFOLD_WINDOW_ALIGN_AUTO;
  bool has_scale = false;
  float scale = 0.0f;
  int empty_row_lse = TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY;
  bool want_lse = true;
  Values values = Values::kNormal;
  uint64_t seed = 0;
  Layout q, k, v, o, lse;

  // "dtype=float16 b=1 hq=8 hkv=2 nq=128 nk=128 d=64 dv=64 causal=bottom_right values=normal seed=7
  // ...": what differs from the defaults, shapes always.
  std::string to_string() const;
  tilefold_options options() const;
};

// Reads what to_string() writes (any order, any subset). Returns false, with a sentence in `error`,
// on anything else.
bool from_string(const std::string& text, Case* out, std::string* error);

// What random_case() may draw.
struct CaseLimits {
  std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  std::vector<int64_t> head_dims = {};  // empty: 1..max_head_dim, round and odd ones
  int64_t max_batch = 3;
  int64_t max_heads_kv = 3;
  int64_t max_group = 4;
  int64_t max_seqlen = 300;
  int64_t max_head_dim = 160;
  bool any_strides = true;   // false: contiguous or [B, N, H, D] storage only
  bool different_dv = true;  // Dv != D in a part of the cases
};

// The case of a seed: the same on every machine.
Case random_case(uint64_t seed, const CaseLimits& limits = {});

// A case's tensors: inputs filled, outputs poisoned.
struct Instance {
  HostTensor q, k, v, o, lse;
  tilefold_options options;
  bool want_lse = true;
  const DLTensor* lse_dl() const { return want_lse ? lse.dl() : nullptr; }
};
Instance make_instance(const Case& c);

// The value that element (b, h, i, d) of tensor 'q', 'k' or 'v' has in a case; independent of
// strides.
float case_value(const Case& c, char tensor, int64_t b, int64_t h, int64_t i, int64_t d);

// A counter-based generator: the n-th 64-bit number of a seed.
uint64_t random_bits(uint64_t seed, uint64_t n);
double random_uniform(uint64_t seed, uint64_t n);  // [0, 1)
double random_normal(uint64_t seed, uint64_t n);   // N(0, 1)

}  // namespace tilefold::reference
