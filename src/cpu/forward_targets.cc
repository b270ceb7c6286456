// FlashAttention-2's forward schedule on SIMD, compiled once per instruction set.
//
// Vector lanes are query rows. A row tile is cut into panels of kVectors vectors; K^T-free scores
// S^T = K Q^T and outputs O^T = V^T P^T both come from one kind of micro-kernel: broadcast a number
// of K (or V), multiply it with the vectors of Q^T (or P^T), add. The softmax then needs no
// operation across lanes, and D and Dv need no padding. Per panel of rows:
//   Q^T [D][panel]   S^T, P^T [keys][panel]   O^T [Dv][panel]
// and per tile of keys, shared by the panels of the row tile:
//   K [D / kChunk][keys][kChunk]   V [Dv / kValueBlock][keys][kValueBlock]
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_targets.cc"

// The baseline, SSE4, AVX2 and AVX-512 (Highway's AVX3); what lies between gains nothing here.
// Scalable vectors cannot be array elements: SVE machines run NEON.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   (1LL << 6) /* Zen4 */                                                       \
   | (1LL << 4) /* SPR */)
#endif
// Highway's checks abort, and live in its library, which we do without.
#ifndef HWY_IS_DEBUG_BUILD
#define HWY_IS_DEBUG_BUILD 0
#endif

#include "hwy/foreach_target.h"
// Order matters: foreach_target.h first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/convert.h"
#include "cpu/forward_plan.h"
#include "cpu/processor.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilefold::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using VectorTag = hn::ScalableTag<float>;
using Vector = hn::Vec<VectorTag>;
using IntTag = hn::RebindToSigned<VectorTag>;
using UintTag = hn::RebindToUnsigned<VectorTag>;

constexpr VectorTag kTag{};
constexpr int64_t kLanes = hn::MaxLanes(VectorTag());

// The micro-kernel's accumulators: kKeys x kVectors. 24 of 32 registers, or 12 of 16.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kKeys = 8;
#else
constexpr int kKeys = 4;
#endif
constexpr int kVectors = 3;
constexpr int64_t kPanel = kVectors * kLanes;

constexpr int64_t kChunk = 64;  // head dims of K that lie together: displacements are constants
constexpr int64_t kValueBlock = 16;  // head dims of V that lie together: one cache line

static_assert(kMaxBlockN % kKeys == 0 && kValueBlock % kKeys == 0);

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// ---------------------------------------------------------------------------------- numbers

// 2^x for x <= 0, relative error below 1.2e-7; 0 below -126 (and at -inf), NaN at NaN. For x > 0,
// which only rows that end in NaN have, anything.
HWY_INLINE Vector exp2_nonpositive(Vector x) {
  constexpr UintTag kUint{};
  // The addition leaves round(x) + 127 in the low bits of the mantissa.
  const Vector magic = hn::Set(kTag, 0x1.8p23f + 127.0f);
  const Vector shifted = hn::Add(x, magic);
  const Vector f = hn::Sub(x, hn::Sub(shifted, magic));
  // Minimax on [-0.5, 0.5], exact at 0.
  Vector p = hn::Set(kTag, 1.326472725e-3f);
  p = hn::MulAdd(p, f, hn::Set(kTag, 9.671512786e-3f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 5.550733745e-2f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 2.402224208e-1f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 6.931469776e-1f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 1.0f));
  const Vector power = hn::BitCast(kTag, hn::ShiftLeft<23>(hn::BitCast(kUint, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kTag, -126.0f)), hn::Mul(p, power));
}

HWY_INLINE Vector load_as_float(const float* from) { return hn::LoadU(kTag, from); }

// The types that tensors are made of; float16 and bfloat16 are kept as bits.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

HWY_INLINE Vector load_as_float(const BFloat16* from) {
  constexpr UintTag kUint{};
  constexpr hn::Rebind<uint16_t, VectorTag> kHalf{};
  const auto bits = hn::LoadU(kHalf, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(kTag, hn::ShiftLeft<16>(hn::PromoteTo(kUint, bits)));
}

HWY_INLINE Vector load_as_float(const Float16* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  constexpr hn::Rebind<hwy::float16_t, VectorTag> kHalf{};
  return hn::PromoteTo(kTag, hn::LoadU(kHalf, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  // As float_from_float16().
  constexpr UintTag kUint{};
  constexpr hn::Rebind<uint16_t, VectorTag> kHalf{};
  const auto bits = hn::PromoteTo(kUint, hn::LoadU(kHalf, reinterpret_cast<const uint16_t*>(from)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(kUint, 0x7FFFu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(kUint, 0x8000u)));
  const Vector rebiased = hn::Mul(hn::BitCast(kTag, magnitude), hn::Set(kTag, 0x1p112f));
  const auto special = hn::IfThenElseZero(hn::Ge(rebiased, hn::Set(kTag, 65536.0f)),
                                          hn::BitCast(kTag, hn::Set(kUint, 0x7F800000u)));
  return hn::Or(hn::Or(rebiased, special), hn::BitCast(kTag, sign));
#endif
}

HWY_INLINE float to_float(float value) { return value; }
HWY_INLINE float to_float(Float16 value) { return float_from_float16(value.bits); }
HWY_INLINE float to_float(BFloat16 value) { return float_from_bfloat16(value.bits); }
HWY_INLINE void from_float(float value, float* to) { *to = value; }
HWY_INLINE void from_float(float value, Float16* to) { to->bits = float16_from_float(value); }
HWY_INLINE void from_float(float value, BFloat16* to) { to->bits = bfloat16_from_float(value); }

// Stores as many numbers as there are lanes.
HWY_INLINE void store_from_float(Vector value, float* to) { hn::StoreU(value, kTag, to); }

HWY_INLINE void store_from_float(Vector value, BFloat16* to) {
  constexpr UintTag kUint{};
  constexpr IntTag kInt{};
  constexpr hn::Rebind<uint16_t, VectorTag> kHalf{};
  const auto bits = hn::BitCast(kUint, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kUint, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(kUint, 0x7FFFu)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(kUint, 0x40u));
  const auto is_nan = hn::RebindMask(kUint, hn::IsNaN(value));
  const auto result = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::DemoteTo(kHalf, hn::BitCast(kInt, result)), kHalf,
             reinterpret_cast<uint16_t*>(to));
}

HWY_INLINE void store_from_float(Vector value, Float16* to) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  constexpr hn::Rebind<hwy::float16_t, VectorTag> kHalf{};
  hn::StoreU(hn::DemoteTo(kHalf, value), kHalf, reinterpret_cast<hwy::float16_t*>(to));
#else
  alignas(64) float lanes[kLanes];
  hn::StoreU(value, kTag, lanes);
  for (int64_t i = 0; i < kLanes; ++i) from_float(lanes[i], to + i);
#endif
}

// ---------------------------------------------------------------------------------- packing

// Converts n numbers, `stride` elements apart, into blocks of `block` floats that lie
// `block_stride` floats apart; the last one is filled up to 16 with zeros. Returns lanes that are
// NaN where a number was not finite, else 0.
template <typename T>
HWY_NOINLINE Vector pack_row(const T* from, int64_t stride, int64_t n, float* to, int64_t block,
                             int64_t block_stride) {
  Vector poison = hn::Zero(kTag);
  for (int64_t at = 0; at < n; at += block, to += block_stride) {
    const int64_t count = std::min(block, n - at);
    int64_t i = 0;
    if (stride == 1) {
      for (; i + kLanes <= count; i += kLanes) {
        const Vector x = load_as_float(from + at + i);
        poison = hn::MulAdd(x, hn::Zero(kTag), poison);
        hn::Store(x, kTag, to + i);
      }
    }
    if (i == count) continue;
    const int64_t unchecked = i;
    for (; i < count; ++i) to[i] = to_float(from[(at + i) * stride]);
    for (; i < round_up(count, 16); ++i) to[i] = 0.0f;
    for (i = unchecked; i < count; i += kLanes) {
      poison = hn::MulAdd(hn::Load(kTag, to + i), hn::Zero(kTag), poison);
    }
  }
  return poison;
}

HWY_INLINE bool any_nan(Vector x) { return !hn::AllFalse(kTag, hn::IsNaN(x)); }

// pack_row() for the tensor's dtype; `at` is the row's offset in elements.
HWY_INLINE Vector pack_row(DType dtype, const void* base, int64_t at, int64_t stride, int64_t n,
                           float* to, int64_t block, int64_t block_stride) {
  switch (dtype) {
    case DType::kFloat32:
      return pack_row(static_cast<const float*>(base) + at, stride, n, to, block, block_stride);
    case DType::kFloat16:
      return pack_row(static_cast<const Float16*>(base) + at, stride, n, to, block, block_stride);
    default:
      return pack_row(static_cast<const BFloat16*>(base) + at, stride, n, to, block, block_stride);
  }
}

// Converts a row of n floats to the tensor's type.
template <typename T>
HWY_NOINLINE void unpack_row(const float* from, int64_t n, T* to, int64_t stride) {
  int64_t d = 0;
  if (stride == 1) {
    for (; d + kLanes <= n; d += kLanes) store_from_float(hn::Load(kTag, from + d), to + d);
  }
  for (; d < n; ++d) from_float(from[d], to + d * stride);
}

// ---------------------------------------------------------------------------------- a row tile

// The state of an item while keys stream past.
struct Item {
  const ForwardPlan& plan;
  const ForwardProblem& problem;
  int64_t group;
  int64_t row_begin;
  int64_t num_rows;
  int64_t num_panels;

  float* q;        // [panel][D][kPanel]
  float* o;        // [panel][Dv rounded up][kPanel]
  float* k;        // [D / kChunk][block_n][kChunk]
  float* v;        // [Dv / kValueBlock][block_n][kValueBlock]
  float* s;        // [block_n][kPanel]
  float* row_max;  // [rows of the tile]
  float* row_sum;
  float* low;   // first visible key, from the tile's first key
  float* high;  // past the last visible key, from the tile's first key
  int64_t* key_begin;
  int64_t* key_end;
  float* line;  // [Dv] or [D]

  int64_t o_rows() const { return round_up(problem.head_dim_v, kValueBlock); }
};

int num_vectors(int64_t rows_left) {
  return static_cast<int>(std::min<int64_t>(kVectors, (rows_left + kLanes - 1) / kLanes));
}

// Q^T of the tile's rows; lanes without a row are 0. Row maxima, sums and outputs start empty.
void load_queries(const Item& item) {
  const ForwardProblem& p = item.problem;
  const int64_t head_dim = p.head_dim;
  std::memset(item.q, 0, sizeof(float) * item.num_panels * head_dim * kPanel);
  for (int64_t row = 0; row < item.num_rows; ++row) {
    const RowPlace place = place_of(item.plan, item.group, item.row_begin + row);
    const int64_t at = place.batch * p.q_strides.batch + place.head * p.q_strides.head +
                       place.query * p.q_strides.row;
    pack_row(p.dtype, p.q, at, p.q_strides.column, head_dim, item.line, kChunk, kChunk);
    const int64_t width = num_vectors(item.num_rows - row / kPanel * kPanel) * kLanes;
    float* to = item.q + row / kPanel * head_dim * kPanel + row % kPanel;
    for (int64_t d = 0; d < head_dim; ++d) to[d * width] = item.line[d];
  }
  std::memset(item.o, 0, sizeof(float) * item.num_panels * item.o_rows() * kPanel);
  for (int64_t row = 0; row < item.num_panels * kPanel; ++row) {
    item.row_max[row] = -std::numeric_limits<float>::max();
    item.row_sum[row] = 0.0f;
    item.key_begin[row] = item.key_end[row] = 0;
    if (row >= item.num_rows) continue;
    const RowPlace place = place_of(item.plan, item.group, item.row_begin + row);
    const KeyRange keys = visible_keys(p, place.query);
    if (keys.begin >= keys.end) continue;
    item.key_begin[row] = keys.begin;
    item.key_end[row] = keys.end;
  }
}

// The keys [begin, end) of the tile at n_begin, begin rounded down and end up to kKeys: the rows
// above `end` are zeros.
void load_keys(const Item& item, int64_t batch, int64_t kv_head, int64_t n_begin, int64_t begin,
               int64_t end) {
  const ForwardProblem& p = item.problem;
  const int64_t base =
      batch * p.k_strides.batch + kv_head * p.k_strides.head + n_begin * p.k_strides.row;
  const int64_t chunk_stride = item.plan.block_n * kChunk;
  for (int64_t j = begin / kKeys * kKeys; j < end; ++j) {
    pack_row(p.dtype, p.k, base + j * p.k_strides.row, p.k_strides.column, p.head_dim,
             item.k + j * kChunk, kChunk, chunk_stride);
  }
  for (int64_t j = end; j < round_up(end, kKeys); ++j) {
    for (int64_t d = 0; d < p.head_dim; d += kChunk) {
      std::memset(item.k + d / kChunk * chunk_stride + j * kChunk, 0, sizeof(float) * kChunk);
    }
  }
}

// The values of keys [begin, end); says whether all of them are finite.
bool load_values(const Item& item, int64_t batch, int64_t kv_head, int64_t n_begin, int64_t begin,
                 int64_t end) {
  const ForwardProblem& p = item.problem;
  const int64_t base =
      batch * p.v_strides.batch + kv_head * p.v_strides.head + n_begin * p.v_strides.row;
  const int64_t block_stride = item.plan.block_n * kValueBlock;
  Vector poison = hn::Zero(kTag);
  for (int64_t j = begin; j < end; ++j) {
    poison = hn::Add(
        poison, pack_row(p.dtype, p.v, base + j * p.v_strides.row, p.v_strides.column, p.head_dim_v,
                         item.v + j * kValueBlock, kValueBlock, block_stride));
  }
  return !any_nan(poison);
}

// ---------------------------------------------------------------------------------- micro-kernels

// What a panel needs while it works on one tile of keys.
struct PanelView {
  const float* q;
  float* o;
  float* s;
  float* row_max;
  float* row_sum;
  const float* low;
  const float* high;
  int64_t begin;  // keys of the tile that some row of the panel sees
  int64_t end;
  bool masked;  // not every row sees all of them
};

// S^T[kKeys][kNumVectors] = K Q^T, to logits in units of log 2, masked; folds them into tile_max.
template <int kNumVectors>
HWY_INLINE void scores_block(const float* HWY_RESTRICT k, int64_t chunk_stride, int64_t head_dim,
                             const PanelView& panel, int64_t key, float scale_1, float scale_2,
                             Vector (&tile_max)[kNumVectors]) {
  constexpr int64_t kWidth = kNumVectors * kLanes;
  Vector acc[kKeys][kNumVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) acc[i][n] = hn::Zero(kTag);
  }
  const float* HWY_RESTRICT q = panel.q;
  for (int64_t left = head_dim; left > 0; left -= kChunk, k += chunk_stride) {
    const int64_t count = std::min(left, kChunk);
    for (int64_t d = 0; d < count; ++d, q += kWidth) {
      Vector b[kNumVectors];
      HWY_UNROLL(3)
      for (int n = 0; n < kNumVectors; ++n) b[n] = hn::Load(kTag, q + n * kLanes);
      HWY_UNROLL(8)
      for (int i = 0; i < kKeys; ++i) {
        const Vector a = hn::Set(kTag, k[i * kChunk + d]);
        HWY_UNROLL(3)
        for (int n = 0; n < kNumVectors; ++n) acc[i][n] = hn::MulAdd(a, b[n], acc[i][n]);
      }
    }
  }
  const Vector c1 = hn::Set(kTag, scale_1);
  const Vector c2 = hn::Set(kTag, scale_2);
  float* HWY_RESTRICT s = panel.s + key * kWidth;
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    if (key + i >= panel.end) break;
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) {
      Vector t = hn::Mul(hn::Mul(acc[i][n], c1), c2);
      if (panel.masked) {
        const Vector j = hn::Set(kTag, static_cast<float>(key + i));
        const auto seen = hn::And(hn::Ge(j, hn::Load(kTag, panel.low + n * kLanes)),
                                  hn::Lt(j, hn::Load(kTag, panel.high + n * kLanes)));
        t = hn::IfThenElse(seen, t, hn::Set(kTag, -std::numeric_limits<float>::infinity()));
      }
      tile_max[n] = hn::Max(tile_max[n], t);
      hn::Store(t, kTag, s + i * kWidth + n * kLanes);
    }
  }
}

// P^T = 2^(S^T - row_max) in place; the new row_max, row_sum, and what older outputs shrink by.
template <int kNumVectors>
HWY_INLINE void softmax_block(const PanelView& panel, const Vector (&tile_max)[kNumVectors],
                              Vector (&shrink)[kNumVectors]) {
  constexpr int64_t kWidth = kNumVectors * kLanes;
  Vector maximum[kNumVectors];
  Vector sum[kNumVectors];
  HWY_UNROLL(3)
  for (int n = 0; n < kNumVectors; ++n) {
    const Vector old = hn::Load(kTag, panel.row_max + n * kLanes);
    maximum[n] = hn::Max(old, tile_max[n]);
    shrink[n] = exp2_nonpositive(hn::Sub(old, maximum[n]));
    hn::Store(maximum[n], kTag, panel.row_max + n * kLanes);
    sum[n] = hn::Zero(kTag);
  }
  float* HWY_RESTRICT s = panel.s;
  for (int64_t j = panel.begin; j < panel.end; ++j) {
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) {
      float* at = s + j * kWidth + n * kLanes;
      const Vector p = exp2_nonpositive(hn::Sub(hn::Load(kTag, at), maximum[n]));
      sum[n] = hn::Add(sum[n], p);
      hn::Store(p, kTag, at);
    }
  }
  HWY_UNROLL(3)
  for (int n = 0; n < kNumVectors; ++n) {
    const Vector old = hn::Load(kTag, panel.row_sum + n * kLanes);
    hn::Store(hn::MulAdd(old, shrink[n], sum[n]), kTag, panel.row_sum + n * kLanes);
  }
}

// O^T[kKeys][kNumVectors] = shrink * O^T + V^T P^T, for kKeys head dims of V. The tile's own sum is
// formed first: rounding errors then grow with the keys of a tile and the number of tiles, not with
// the number of keys.
template <int kNumVectors>
HWY_INLINE void output_block(const float* HWY_RESTRICT v, const PanelView& panel,
                             float* HWY_RESTRICT o, const Vector (&shrink)[kNumVectors]) {
  constexpr int64_t kWidth = kNumVectors * kLanes;
  Vector acc[kKeys][kNumVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) {
      acc[i][n] = hn::Zero(kTag);
    }
  }
  const float* HWY_RESTRICT p = panel.s + panel.begin * kWidth;
  v += panel.begin * kValueBlock;
  for (int64_t j = panel.begin; j < panel.end; ++j, p += kWidth, v += kValueBlock) {
    Vector b[kNumVectors];
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) b[n] = hn::Load(kTag, p + n * kLanes);
    HWY_UNROLL(8)
    for (int i = 0; i < kKeys; ++i) {
      const Vector a = hn::Set(kTag, v[i]);
      HWY_UNROLL(3)
      for (int n = 0; n < kNumVectors; ++n) acc[i][n] = hn::MulAdd(a, b[n], acc[i][n]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) {
      float* at = o + i * kWidth + n * kLanes;
      hn::Store(hn::MulAdd(hn::Load(kTag, at), shrink[n], acc[i][n]), kTag, at);
    }
  }
}

// The same where V has infinities or NaNs and the mask hides some of them from some rows: 0 * inf
// is NaN, so a hidden value must not be multiplied at all.
template <int kNumVectors>
HWY_NOINLINE void output_visible_only(const float* v, int64_t block_stride, int64_t head_dim_v,
                                      const PanelView& panel, const Vector (&shrink)[kNumVectors]) {
  constexpr int64_t kWidth = kNumVectors * kLanes;
  for (int64_t d = 0; d < head_dim_v; ++d) {
    const float* column = v + d / kValueBlock * block_stride + d % kValueBlock;
    for (int n = 0; n < kNumVectors; ++n) {
      const Vector low = hn::Load(kTag, panel.low + n * kLanes);
      const Vector high = hn::Load(kTag, panel.high + n * kLanes);
      float* at = panel.o + d * kWidth + n * kLanes;
      Vector acc = hn::Zero(kTag);
      for (int64_t j = panel.begin; j < panel.end; ++j) {
        const Vector key = hn::Set(kTag, static_cast<float>(j));
        const auto seen = hn::And(hn::Ge(key, low), hn::Lt(key, high));
        const Vector p = hn::Load(kTag, panel.s + j * kWidth + n * kLanes);
        const Vector sum = hn::MulAdd(hn::Set(kTag, column[j * kValueBlock]), p, acc);
        acc = hn::IfThenElse(seen, sum, acc);
      }
      hn::Store(hn::MulAdd(hn::Load(kTag, at), shrink[n], acc), kTag, at);
    }
  }
}

// One panel of rows against one tile of keys.
template <int kNumVectors>
HWY_NOINLINE void fold_tile(const Item& item, const PanelView& panel, bool values_finite) {
  const ForwardPlan& plan = item.plan;
  const int64_t head_dim_v = item.problem.head_dim_v;
  Vector tile_max[kNumVectors];
  Vector shrink[kNumVectors];
  for (int n = 0; n < kNumVectors; ++n) {
    tile_max[n] = hn::Set(kTag, -std::numeric_limits<float>::max());
  }
  for (int64_t key = panel.begin; key < panel.end; key += kKeys) {
    scores_block<kNumVectors>(item.k + key * kChunk, plan.block_n * kChunk, item.problem.head_dim,
                              panel, key, plan.scale_1, plan.scale_2, tile_max);
  }
  softmax_block<kNumVectors>(panel, tile_max, shrink);
  const int64_t block_stride = plan.block_n * kValueBlock;
  if (panel.masked && !values_finite) {
    output_visible_only<kNumVectors>(item.v, block_stride, head_dim_v, panel, shrink);
    return;
  }
  for (int64_t d = 0; d < head_dim_v; d += kKeys) {
    output_block<kNumVectors>(item.v + d / kValueBlock * block_stride + d % kValueBlock, panel,
                              panel.o + d * kNumVectors * kLanes, shrink);
  }
}

// ---------------------------------------------------------------------------------- results

void store_row(const Item& item, int64_t row, const float* o, int64_t width) {
  const ForwardProblem& p = item.problem;
  const RowPlace place = place_of(item.plan, item.group, item.row_begin + row);
  const bool empty = item.key_begin[row] >= item.key_end[row];
  const float sum = item.row_sum[row];
  const float inverse = 1.0f / sum;
  for (int64_t d = 0; d < p.head_dim_v; ++d) item.line[d] = empty ? 0.0f : o[d * width] * inverse;

  const int64_t at = place.batch * p.o_strides.batch + place.head * p.o_strides.head +
                     place.query * p.o_strides.row;
  const int64_t stride = p.head_dim_v == 1 ? 1 : p.o_strides.column;
  switch (p.dtype) {
    case DType::kFloat32:
      unpack_row(item.line, p.head_dim_v, static_cast<float*>(p.o) + at, stride);
      break;
    case DType::kFloat16:
      unpack_row(item.line, p.head_dim_v, static_cast<Float16*>(p.o) + at, stride);
      break;
    case DType::kBFloat16:
      unpack_row(item.line, p.head_dim_v, static_cast<BFloat16*>(p.o) + at, stride);
      break;
  }

  if (p.lse == nullptr) return;
  constexpr double kLn2 = 0.693147180559945309417;
  float* lse = p.lse + place.batch * p.lse_strides.batch + place.head * p.lse_strides.head +
               place.query * p.lse_strides.row;
  *lse = empty ? p.empty_row_lse
               : static_cast<float>(item.row_max[row] * kLn2 + std::log(double{sum}));
}

void store_results(const Item& item, int64_t split) {
  const int64_t head_dim_v = item.problem.head_dim_v;
  for (int64_t row = 0; row < item.num_rows; ++row) {
    const int64_t panel = row / kPanel;
    const int64_t width = num_vectors(item.num_rows - panel * kPanel) * kLanes;
    const float* o = item.o + panel * item.o_rows() * kPanel + row % kPanel;
    if (item.plan.num_splits == 1) {
      store_row(item, row, o, width);
      continue;
    }
    float* partial = item.plan.partial(item.group, item.row_begin + row, split);
    partial[0] = item.row_max[row];
    partial[1] = item.row_sum[row];
    for (int64_t d = 0; d < head_dim_v; ++d) partial[2 + d] = o[d * width];
  }
}

// ---------------------------------------------------------------------------------- the item

ScratchLayout layout_of(const ForwardPlan& plan) {
  const ForwardProblem& p = *plan.problem;
  const int64_t tile_rows = round_up(plan.block_m, kPanel);
  ScratchLayout layout;
  const auto take = [&](int64_t bytes) {
    const size_t at = layout.bytes;
    layout.bytes += round_up(bytes, 64) + 64;
    return at;
  };
  layout.q = take(tile_rows * p.head_dim * 4);
  layout.o = take(tile_rows * round_up(p.head_dim_v, kValueBlock) * 4);
  layout.k = take(plan.block_n * round_up(p.head_dim, kChunk) * 4);
  layout.v = take(plan.block_n * round_up(p.head_dim_v, kValueBlock) * 4);
  layout.s = take(plan.block_n * kPanel * 4);
  layout.rows = take(tile_rows * (4 * 4 + 2 * 8));
  layout.line = take(round_up(std::max(p.head_dim, p.head_dim_v), kChunk) * 4);
  return layout;
}

void run_item(const ForwardPlan& plan, int64_t group, int64_t m_block, int64_t split,
              std::byte* scratch) {
  const ScratchLayout layout = layout_of(plan);
  const ForwardProblem& problem = *plan.problem;
  const int64_t row_begin = m_block * plan.block_m;
  const int64_t num_rows = std::min(plan.block_m, plan.rows - row_begin);
  const auto floats = [&](size_t offset) { return reinterpret_cast<float*>(scratch + offset); };
  const int64_t tile_rows = round_up(plan.block_m, kPanel);
  float* row_floats = floats(layout.rows);
  int64_t* row_keys = reinterpret_cast<int64_t*>(row_floats + 4 * tile_rows);
  const Item item = {plan,
                     problem,
                     group,
                     row_begin,
                     num_rows,
                     (num_rows + kPanel - 1) / kPanel,
                     floats(layout.q),
                     floats(layout.o),
                     floats(layout.k),
                     floats(layout.v),
                     floats(layout.s),
                     row_floats,
                     row_floats + tile_rows,
                     row_floats + 2 * tile_rows,
                     row_floats + 3 * tile_rows,
                     row_keys,
                     row_keys + tile_rows,
                     floats(layout.line)};
  load_queries(item);

  // The keys that the tile's rows see, within this split.
  int64_t key_begin = problem.seqlen_k;
  int64_t key_end = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    if (item.key_begin[row] >= item.key_end[row]) continue;
    key_begin = std::min(key_begin, item.key_begin[row]);
    key_end = std::max(key_end, item.key_end[row]);
  }
  if (plan.num_splits > 1) {
    key_begin = std::max(key_begin, split * plan.split_keys);
    key_end = std::min(key_end, (split + 1) * plan.split_keys);
  }
  const int64_t batch = batch_of(plan, group);
  const int64_t kv_head = kv_head_of(plan, group);

  for (int64_t n_begin = key_begin / plan.block_n * plan.block_n; n_begin < key_end;
       n_begin += plan.block_n) {
    const int64_t tile_begin = std::max<int64_t>(key_begin - n_begin, 0);
    const int64_t tile_end = std::min(key_end - n_begin, plan.block_n);
    load_keys(item, batch, kv_head, n_begin, tile_begin, tile_end);
    const bool values_finite = load_values(item, batch, kv_head, n_begin, tile_begin, tile_end);

    for (int64_t index = 0; index < item.num_panels; ++index) {
      const int64_t first = index * kPanel;
      const int64_t rows = std::min(kPanel, num_rows - first);
      PanelView panel;
      panel.q = item.q + first * problem.head_dim;
      panel.o = item.o + first * item.o_rows();
      panel.s = item.s;
      panel.row_max = item.row_max + first;
      panel.row_sum = item.row_sum + first;
      panel.low = item.low + first;
      panel.high = item.high + first;
      panel.begin = tile_end;
      panel.end = tile_begin;
      for (int64_t row = first; row < first + rows; ++row) {
        if (item.key_begin[row] >= item.key_end[row]) continue;
        panel.begin = std::min(panel.begin, item.key_begin[row] - n_begin);
        panel.end = std::max(panel.end, item.key_end[row] - n_begin);
      }
      panel.begin = std::max(panel.begin, tile_begin) / kKeys * kKeys;
      panel.end = std::min(panel.end, tile_end);
      if (panel.begin >= panel.end) continue;
      panel.masked = false;
      for (int64_t row = first; row < first + kPanel; ++row) {
        const int64_t low =
            std::clamp<int64_t>(item.key_begin[row] - n_begin, tile_begin, tile_end);
        const int64_t high = std::clamp<int64_t>(item.key_end[row] - n_begin, tile_begin, tile_end);
        item.low[row] = static_cast<float>(low);
        item.high[row] = static_cast<float>(high);
        panel.masked |= row < first + rows && (low > panel.begin || high < panel.end);
      }
      switch (num_vectors(rows)) {
        case 1: fold_tile<1>(item, panel, values_finite); break;
        case 2: fold_tile<2>(item, panel, values_finite); break;
        default: fold_tile<3>(item, panel, values_finite); break;
      }
    }
  }
  store_results(item, split);
}

bool supported() {
#if HWY_TARGET == HWY_AVX3
  return processor().avx512;
#elif HWY_TARGET == HWY_AVX2
  return processor().avx2;
#elif HWY_TARGET == HWY_SSE4
  return processor().sse4;
#else
  return true;
#endif
}

}  // namespace

ForwardTarget target() {
  return {hwy::TargetName(HWY_TARGET), kLanes, kPanel, supported, layout_of, run_item};
}

}  // namespace HWY_NAMESPACE
}  // namespace tilefold::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilefold::cpu {
namespace {

// HWY_EXPORT's table, without the part of it that needs Highway's library at run time.
const ForwardTarget kTargets[] = {
#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
    N_AVX3::target(),
#endif
#if HWY_TARGETS & HWY_AVX2
    N_AVX2::target(),
#endif
#if HWY_TARGETS & HWY_SSE4
    N_SSE4::target(),
#endif
#endif
#if HWY_STATIC_TARGET > HWY_SSE4 || !HWY_ARCH_X86
    HWY_STATIC_DISPATCH(target)(),
#endif
};

}  // namespace

int num_forward_targets() { return static_cast<int>(std::size(kTargets)); }
const ForwardTarget& forward_target(int index) { return kTargets[index]; }

}  // namespace tilefold::cpu
#endif  // HWY_ONCE
