// One work item of the forward pass for bfloat16 and float16 on matrix tiles (AMX), for one SIMD
// target that does the softmax between the products.
//
// As in forward-inl.h lanes are rows: S^T = K Q^T and O^T = V^T P^T. In a product C += A B of tiles
// A is 16 x 32 (K, or V^T, as they are), B has two neighbours along the sum in one 32-bit word
// (Q^T: two head dims; P^T: two keys). A panel has 32 rows, so that two tiles of A and two of B
// feed four of C. Per panel:
//   Q^T [parts][D / 2][32] words   S^T [keys][32] float32   P^T [parts][keys / 2][32] words
//   O^T [Dv][32] float32
// and per tile of keys:
//   K [parts][keys][D]   V^T [parts][Dv][keys]
// with D and Dv padded with zeros to multiples of 32.
//
// bfloat16 has one part. A float16 is the sum of two bfloat16 without error (11 bits of 16), and so
// is a probability to 16 bits: the products are taken part by part.
//
// Infinities and NaNs would meet the zeros of padding and of second parts: an item that finds one
// is left to forward-inl.h.
//
// Included once per SIMD target (see forward_targets.cc).
#if defined(TILEFOLD_CPU_FORWARD_AMX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEFOLD_CPU_FORWARD_AMX_INL_H
#undef TILEFOLD_CPU_FORWARD_AMX_INL_H
#else
#define TILEFOLD_CPU_FORWARD_AMX_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "cpu/convert.h"
#include "cpu/forward_plan.h"
#include "cpu/row_tile-inl.h"
#include "cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilefold::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace amx {

constexpr int64_t kPanel = 32;
constexpr int64_t kTileRows = 16;
constexpr int64_t kStep = 32;      // head dims or keys that one product sums over
constexpr int64_t kKeyBlock = 32;  // keys of a block of S^T
constexpr int64_t kRowBytes = kPanel * 4;
constexpr int kVectors = kPanel / kLanes;

struct Buffers {
  uint32_t* q;      // [panel][parts][D / 2][kPanel]
  uint16_t* k;      // [parts][block_n][D]
  uint16_t* v;      // [parts][Dv][block_n]
  float* s;         // [block_n][kPanel]
  uint32_t* p;      // [parts][block_n / 2][kPanel]
  float* block;     // [2][kStep][kPanel], of O^T
  uint16_t* lines;  // [8][parts][wide], rows of Q or V
  uint32_t* words;  // [4][wide]

  int64_t head_dim;    // padded
  int64_t head_dim_v;  // padded
  int64_t wide;        // the larger
};

// ---------------------------------------------------------------------------------- loads

// A row of n bfloat16 in [padded]; true if all are finite. `negate` changes the signs.
inline bool fetch_row(const BFloat16* from, int64_t stride, int64_t n, int64_t padded, bool negate,
                      uint16_t* to, int64_t) {
  constexpr hn::ScalableTag<uint16_t> kWords{};
  constexpr int64_t kWordLanes = hn::MaxLanes(kWords);
  if (stride == 1) {
    std::memcpy(to, from, n * sizeof(uint16_t));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride].bits;
  }
  for (int64_t i = n; i < padded; ++i) to[i] = 0;
  const auto sign = hn::Set(kWords, static_cast<uint16_t>(negate ? 0x8000 : 0));
  const auto exponent = hn::Set(kWords, static_cast<uint16_t>(0x7F80));
  auto special = hn::Zero(kWords);
  for (int64_t i = 0; i < padded; i += kWordLanes) {
    const auto x = hn::LoadU(kWords, to + i);
    special = hn::Max(special, hn::And(x, exponent));
    hn::StoreU(hn::Xor(x, sign), kWords, to + i);
  }
  return hn::AllFalse(kWords, hn::Eq(special, exponent));
}

// A row of n float16 as two rows of bfloat16, `part_stride` apart, whose sum it is.
inline bool fetch_row(const Float16* from, int64_t stride, int64_t n, int64_t padded, bool negate,
                      uint16_t* to, int64_t part_stride) {
  constexpr UintTag kUint{};
  const auto sign = hn::Set(kUint, negate ? 0x80000000u : 0u);
  const auto mask = hn::Set(kUint, 0xFFFF0000u);
  alignas(64) Float16 copy[kLanes];
  Vector poison = hn::Zero(kTag);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Float16* at = from + i;
    if (stride != 1 || i + kLanes > n) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        copy[lane] = i + lane < n ? from[(i + lane) * stride] : Float16{0};
      }
      at = copy;
    }
    const Vector value = load_as_float(at);
    poison = hn::MulAdd(value, hn::Zero(kTag), poison);
    const Vector x = hn::BitCast(kTag, hn::Xor(hn::BitCast(kUint, value), sign));
    // Cut off, not rounded: the rest is exact in either case, and has 3 bits.
    const Vector high = hn::BitCast(kTag, hn::And(hn::BitCast(kUint, x), mask));
    store_from_float(high, reinterpret_cast<BFloat16*>(to + i));
    store_from_float(hn::Sub(x, high), reinterpret_cast<BFloat16*>(to + part_stride + i));
  }
  return !any_nan(poison);
}

inline bool fetch_row(const ForwardProblem& p, const void* base, int64_t at, int64_t stride,
                      int64_t n, int64_t padded, bool negate, uint16_t* to, int64_t part_stride) {
  if (p.dtype == DType::kBFloat16) {
    return fetch_row(static_cast<const BFloat16*>(base) + at, stride, n, padded, negate, to,
                     part_stride);
  }
  return fetch_row(static_cast<const Float16*>(base) + at, stride, n, padded, negate, to,
                   part_stride);
}

// to[w][0..3] = rows[0..3][w] for n words, n a multiple of 16; rows of `to` are to_stride words
// apart.
inline void transpose_4(const uint32_t* const (&rows)[4], int64_t n, uint32_t* to,
                        int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t w = 0; w < n; ++w) {
    for (int r = 0; r < 4; ++r) to[w * to_stride + r] = rows[r][w];
  }
#else
  constexpr UintTag kUint{};
  constexpr hn::Repartition<uint64_t, UintTag> kPairs{};
  constexpr hn::FixedTag<uint32_t, 4> kBlock{};
  alignas(64) uint32_t turned[4][kLanes];
  for (int64_t w = 0; w < n; w += kLanes) {
    const auto r0 = hn::LoadU(kUint, rows[0] + w);
    const auto r1 = hn::LoadU(kUint, rows[1] + w);
    const auto r2 = hn::LoadU(kUint, rows[2] + w);
    const auto r3 = hn::LoadU(kUint, rows[3] + w);
    // Within blocks of four words: 0 1 of two rows, 2 3 of two rows, then of four.
    const auto low01 = hn::BitCast(kPairs, hn::InterleaveLower(kUint, r0, r1));
    const auto high01 = hn::BitCast(kPairs, hn::InterleaveUpper(kUint, r0, r1));
    const auto low23 = hn::BitCast(kPairs, hn::InterleaveLower(kUint, r2, r3));
    const auto high23 = hn::BitCast(kPairs, hn::InterleaveUpper(kUint, r2, r3));
    hn::Store(hn::BitCast(kUint, hn::InterleaveLower(kPairs, low01, low23)), kUint, turned[0]);
    hn::Store(hn::BitCast(kUint, hn::InterleaveUpper(kPairs, low01, low23)), kUint, turned[1]);
    hn::Store(hn::BitCast(kUint, hn::InterleaveLower(kPairs, high01, high23)), kUint, turned[2]);
    hn::Store(hn::BitCast(kUint, hn::InterleaveUpper(kPairs, high01, high23)), kUint, turned[3]);
    for (int64_t block = 0; block < kLanes; block += 4) {
      for (int i = 0; i < 4; ++i) {
        hn::StoreU(hn::LoadU(kBlock, turned[i] + block), kBlock, to + (w + block + i) * to_stride);
      }
    }
  }
#endif
}

// Q^T of the tile's rows; lanes without a row are 0. False if some number is not finite.
template <int kParts>
bool load_queries(const RowTile& tile, const Buffers& buffers, bool negate) {
  const ForwardPlan& plan = *tile.plan;
  const ForwardProblem& p = *plan.problem;
  const int64_t words = buffers.head_dim / 2;
  bool finite = true;
  for (int64_t first = 0; first < tile.num_panels() * kPanel; first += 4) {
    for (int64_t i = 0; i < 4; ++i) {
      uint16_t* line = buffers.lines + i * kParts * buffers.wide;
      if (first + i >= tile.num_rows) {
        std::memset(line, 0, sizeof(uint16_t) * kParts * buffers.wide);
        continue;
      }
      const RowPlace place = place_of(plan, tile.group, tile.row_begin + first + i);
      const int64_t at = place.batch * p.q_strides.batch + place.head * p.q_strides.head +
                         place.query * p.q_strides.row;
      finite &= fetch_row(p, p.q, at, p.q_strides.column, p.head_dim, buffers.head_dim, negate,
                          line, buffers.wide);
    }
    for (int part = 0; part < kParts; ++part) {
      const uint32_t* rows[4];
      for (int i = 0; i < 4; ++i) {
        rows[i] =
            reinterpret_cast<const uint32_t*>(buffers.lines + (i * kParts + part) * buffers.wide);
      }
      uint32_t* to = buffers.q + (first / kPanel * kParts + part) * words * kPanel + first % kPanel;
      transpose_4(rows, words, to, kPanel);
    }
  }
  return finite;
}

// K of the keys `keys` of the tile at n_begin, from a multiple of kKeyBlock to one; those outside
// of `keys` are zeros.
template <int kParts>
bool load_keys(const ForwardPlan& plan, int64_t group, int64_t n_begin, KeyRange keys,
               const Buffers& buffers) {
  const ForwardProblem& p = *plan.problem;
  const int64_t base = batch_of(plan, group) * p.k_strides.batch +
                       kv_head_of(plan, group) * p.k_strides.head + n_begin * p.k_strides.row;
  const int64_t part_stride = plan.block_n * buffers.head_dim;
  bool finite = true;
  for (int64_t j = keys.begin / kKeyBlock * kKeyBlock; j < round_up(keys.end, kKeyBlock); ++j) {
    uint16_t* to = buffers.k + j * buffers.head_dim;
    if (j >= keys.begin && j < keys.end) {
      finite &= fetch_row(p, p.k, base + j * p.k_strides.row, p.k_strides.column, p.head_dim,
                          buffers.head_dim, false, to, part_stride);
      continue;
    }
    for (int part = 0; part < kParts; ++part) {
      std::memset(to + part * part_stride, 0, sizeof(uint16_t) * buffers.head_dim);
    }
  }
  return finite;
}

// V^T of the same keys.
template <int kParts>
bool load_values(const ForwardPlan& plan, int64_t group, int64_t n_begin, KeyRange keys,
                 const Buffers& buffers) {
  constexpr UintTag kUint{};
  constexpr hn::Rebind<uint16_t, UintTag> kHalf{};
  const ForwardProblem& p = *plan.problem;
  const int64_t base = batch_of(plan, group) * p.v_strides.batch +
                       kv_head_of(plan, group) * p.v_strides.head + n_begin * p.v_strides.row;
  const int64_t part_stride = plan.block_n * buffers.head_dim_v;
  bool finite = true;
  for (int64_t first = keys.begin / kKeyBlock * kKeyBlock; first < round_up(keys.end, kKeyBlock);
       first += 8) {
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t j = first + i;
      uint16_t* line = buffers.lines + i * kParts * buffers.wide;
      if (j < keys.begin || j >= keys.end) {
        std::memset(line, 0, sizeof(uint16_t) * kParts * buffers.wide);
        continue;
      }
      finite &= fetch_row(p, p.v, base + j * p.v_strides.row, p.v_strides.column, p.head_dim_v,
                          buffers.head_dim_v, false, line, buffers.wide);
    }
    for (int part = 0; part < kParts; ++part) {
      const uint32_t* rows[4];
      for (int64_t pair = 0; pair < 4; ++pair) {
        const uint16_t* even = buffers.lines + (2 * pair * kParts + part) * buffers.wide;
        const uint16_t* odd = even + kParts * buffers.wide;
        uint32_t* words = buffers.words + pair * buffers.wide;
        for (int64_t d = 0; d < buffers.head_dim_v; d += kLanes) {
          const auto low = hn::PromoteTo(kUint, hn::LoadU(kHalf, even + d));
          const auto high = hn::PromoteTo(kUint, hn::LoadU(kHalf, odd + d));
          hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), kUint, words + d);
        }
        rows[pair] = words;
      }
      transpose_4(rows, buffers.head_dim_v,
                  reinterpret_cast<uint32_t*>(buffers.v + part * part_stride + first),
                  plan.block_n / 2);
    }
  }
  return finite;
}

// ---------------------------------------------------------------------------------- products

// C[32][32] += A[32][kStep n] B[kStep n][32] into tiles 0 to 3. A's rows are a_stride bytes apart,
// B's are those of a panel.
template <typename Tiles>
HWY_INLINE void accumulate(Tiles& tiles, const uint16_t* a, int64_t a_stride, const uint32_t* b,
                           int64_t steps) {
  for (int64_t step = 0; step < steps; ++step, a += kStep, b += kStep / 2 * kPanel) {
    tiles.template load<4>(a, a_stride);
    tiles.template load<6>(b, kRowBytes);
    tiles.template multiply_add<0, 4, 6>();
    tiles.template load<5>(a + kTileRows * (a_stride / 2), a_stride);
    tiles.template multiply_add<2, 5, 6>();
    tiles.template load<7>(b + kTileRows, kRowBytes);
    tiles.template multiply_add<1, 4, 7>();
    tiles.template multiply_add<3, 5, 7>();
  }
}

template <typename Tiles>
HWY_INLINE void clear(Tiles& tiles) {
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
}

// The four tiles into [32][kPanel].
template <typename Tiles>
HWY_INLINE void store_block(Tiles& tiles, float* to) {
  tiles.template store<0>(to, kRowBytes);
  tiles.template store<1>(to + kTileRows, kRowBytes);
  tiles.template store<2>(to + kTileRows * kPanel, kRowBytes);
  tiles.template store<3>(to + kTileRows * kPanel + kTileRows, kRowBytes);
}

// The largest scores of the rows over the keys of a block, those that a row does not see made
// -infinity.
HWY_INLINE void fold_peak(float* HWY_RESTRICT s, const PanelView& panel, int64_t key,
                          Vector (&peak)[kVectors]) {
  const Vector hidden = hn::Set(kTag, -std::numeric_limits<float>::infinity());
  const int64_t end = std::min(key + kKeyBlock, panel.end);
  for (int64_t j = key; j < end; ++j) {
    HWY_UNROLL(4)
    for (int n = 0; n < kVectors; ++n) {
      float* at = s + j * kPanel + n * kLanes;
      Vector x = hn::Load(kTag, at);
      if (panel.masked) {
        x = hn::IfThenElse(sees(panel, j, n * kLanes), x, hidden);
        hn::Store(x, kTag, at);
      }
      peak[n] = hn::Max(peak[n], x);
    }
  }
}

// S^T = K Q^T for the panel's keys, rounded up to kKeyBlock, and the rows' largest scores.
template <int kParts, typename Tiles>
HWY_INLINE void scores(Tiles& tiles, const Buffers& buffers, const ForwardPlan& plan,
                       const uint32_t* q, const PanelView& panel, Vector (&peak)[kVectors]) {
  const int64_t steps = buffers.head_dim / kStep;
  const int64_t q_part = buffers.head_dim / 2 * kPanel;
  const int64_t k_part = plan.block_n * buffers.head_dim;
  for (int64_t key = panel.begin; key < panel.end; key += kKeyBlock) {
    clear(tiles);
    // Small parts first.
    for (int a = kParts - 1; a >= 0; --a) {
      const uint16_t* k = buffers.k + a * k_part + key * buffers.head_dim;
      for (int b = kParts - 1; b >= 0; --b) {
        accumulate(tiles, k, buffers.head_dim * 2, q + b * q_part, steps);
      }
    }
    // The vectors look at the block before while the tiles work on this one.
    if (key > panel.begin) fold_peak(buffers.s, panel, key - kKeyBlock, peak);
    store_block(tiles, buffers.s + key * kPanel);
  }
  fold_peak(buffers.s, panel, (panel.end - 1) / kKeyBlock * kKeyBlock, peak);
}

// Two keys' probabilities as words of bfloat16, `even` in the low half. Ties round up; they have no
// bias worth a cycle.
HWY_INLINE void store_pair(Vector even, Vector odd, uint32_t* to) {
  constexpr UintTag kUint{};
  const auto half = hn::Set(kUint, 0x8000u);
  const auto low = hn::ShiftRight<16>(hn::Add(hn::BitCast(kUint, even), half));
  const auto high = hn::And(hn::Add(hn::BitCast(kUint, odd), half), hn::Set(kUint, 0xFFFF0000u));
  hn::Store(hn::Or(low, high), kUint, to);
}

// What is left of x after store_pair() rounded it.
HWY_INLINE Vector rest_of(Vector x) {
  constexpr UintTag kUint{};
  const auto rounded =
      hn::And(hn::Add(hn::BitCast(kUint, x), hn::Set(kUint, 0x8000u)), hn::Set(kUint, 0xFFFF0000u));
  return hn::Sub(x, hn::BitCast(kTag, rounded));
}

// 2^(c s - maximum). Not fused: the product must round as it did in the maximum, or huge logits
// would overflow.
HWY_INLINE Vector weight(Vector s, Vector c, Vector maximum) {
  return exp2_nonpositive(hn::Sub(hn::Mul(s, c), maximum));
}

// P^T = 2^(scale S^T - row_max) as words; the new row_max, row_sum, and what older outputs shrink
// by. The scale is positive.
template <int kParts>
HWY_INLINE void softmax(const Buffers& buffers, const ForwardPlan& plan, const PanelView& panel,
                        const Vector (&peak)[kVectors], float scale, float* shrink) {
  const float* HWY_RESTRICT s = buffers.s;
  const Vector c = hn::Set(kTag, scale);
  Vector maximum[kVectors];
  Vector sum[kVectors];
  HWY_UNROLL(4)
  for (int n = 0; n < kVectors; ++n) {
    const Vector old = hn::Load(kTag, panel.row_max + n * kLanes);
    // A row that has seen nothing keeps its maximum, whatever the scale.
    const auto unseen = hn::Eq(peak[n], hn::Set(kTag, -std::numeric_limits<float>::max()));
    maximum[n] = hn::IfThenElse(unseen, old, hn::Max(old, hn::Mul(peak[n], c)));
    hn::Store(exp2_nonpositive(hn::Sub(old, maximum[n])), kTag, shrink + n * kLanes);
    hn::Store(maximum[n], kTag, panel.row_max + n * kLanes);
    sum[n] = hn::Zero(kTag);
  }
  const int64_t p_part = plan.block_n / 2 * kPanel;
  uint32_t* HWY_RESTRICT p = buffers.p + panel.begin / 2 * kPanel;
  int64_t j = panel.begin;
  for (; j + 1 < panel.end; j += 2, p += kPanel) {
    HWY_UNROLL(4)
    for (int n = 0; n < kVectors; ++n) {
      const float* at = s + j * kPanel + n * kLanes;
      const Vector even = weight(hn::Load(kTag, at), c, maximum[n]);
      const Vector odd = weight(hn::Load(kTag, at + kPanel), c, maximum[n]);
      sum[n] = hn::Add(sum[n], hn::Add(even, odd));
      store_pair(even, odd, p + n * kLanes);
      if (kParts == 2) store_pair(rest_of(even), rest_of(odd), p + p_part + n * kLanes);
    }
  }
  if (j < panel.end) {
    HWY_UNROLL(4)
    for (int n = 0; n < kVectors; ++n) {
      const Vector last = weight(hn::Load(kTag, s + j * kPanel + n * kLanes), c, maximum[n]);
      sum[n] = hn::Add(sum[n], last);
      store_pair(last, hn::Zero(kTag), p + n * kLanes);
      if (kParts == 2) store_pair(rest_of(last), hn::Zero(kTag), p + p_part + n * kLanes);
    }
    j += 2;
    p += kPanel;
  }
  for (; j < round_up(panel.end, kKeyBlock); j += 2, p += kPanel) {
    for (int part = 0; part < kParts; ++part) {
      std::memset(p + part * p_part, 0, sizeof(uint32_t) * kPanel);
    }
  }
  HWY_UNROLL(4)
  for (int n = 0; n < kVectors; ++n) {
    const Vector old = hn::Load(kTag, panel.row_sum + n * kLanes);
    hn::Store(hn::MulAdd(old, hn::Load(kTag, shrink + n * kLanes), sum[n]), kTag,
              panel.row_sum + n * kLanes);
  }
}

// O^T = shrink * O^T + the sum over a tile, for kStep head dims.
HWY_INLINE void fold_output(float* HWY_RESTRICT o, const float* HWY_RESTRICT sum,
                            const float* HWY_RESTRICT shrink) {
  HWY_UNROLL(4)
  for (int n = 0; n < kVectors; ++n) {
    const Vector factor = hn::Load(kTag, shrink + n * kLanes);
    HWY_UNROLL(4)
    for (int64_t at = n * kLanes; at < kStep * kPanel; at += kPanel) {
      hn::Store(hn::MulAdd(hn::Load(kTag, o + at), factor, hn::Load(kTag, sum + at)), kTag, o + at);
    }
  }
}

// O^T = shrink * O^T + V^T P^T.
template <int kParts, typename Tiles>
HWY_INLINE void outputs(Tiles& tiles, const Buffers& buffers, const ForwardPlan& plan,
                        const PanelView& panel, const float* shrink) {
  const int64_t steps = (panel.end - panel.begin + kStep - 1) / kStep;
  const int64_t v_stride = plan.block_n * 2;
  const int64_t v_part = plan.block_n * buffers.head_dim_v;
  const int64_t p_part = plan.block_n / 2 * kPanel;
  const uint32_t* p = buffers.p + panel.begin / 2 * kPanel;
  // Two blocks in turns: the vectors fold one while the tiles work on the other.
  float* block = buffers.block;
  float* other = buffers.block + kStep * kPanel;
  for (int64_t d = 0; d < buffers.head_dim_v; d += kStep) {
    const uint16_t* v = buffers.v + d * plan.block_n + panel.begin;
    clear(tiles);
    if (kParts == 2) {
      accumulate(tiles, v + v_part, v_stride, p, steps);
      accumulate(tiles, v, v_stride, p + p_part, steps);
    }
    accumulate(tiles, v, v_stride, p, steps);
    if (d > 0) fold_output(panel.o + (d - kStep) * kPanel, other, shrink);
    store_block(tiles, block);
    std::swap(block, other);
  }
  fold_output(panel.o + (buffers.head_dim_v - kStep) * kPanel, other, shrink);
}

// ---------------------------------------------------------------------------------- the item

struct Layout {
  int64_t tile_rows, q, o, k, v, s, p, block, lines, words, rows, line, bytes;
};

inline Layout layout_of(const ForwardPlan& plan) {
  const ForwardProblem& p = *plan.problem;
  Layout layout = {};
  const auto take = [&](int64_t bytes) {
    const int64_t at = layout.bytes;
    layout.bytes += round_up(bytes, kScratchAlignment);
    return at;
  };
  const int64_t parts = p.dtype == DType::kFloat16 ? 2 : 1;
  const int64_t head_dim = round_up(p.head_dim, kStep);
  const int64_t head_dim_v = round_up(p.head_dim_v, kStep);
  const int64_t wide = std::max(head_dim, head_dim_v);
  layout.tile_rows = round_up(plan.block_m, kPanel);
  layout.q = take(layout.tile_rows * head_dim * 2 * parts);
  layout.o = take(layout.tile_rows * head_dim_v * 4);
  layout.k = take(plan.block_n * head_dim * 2 * parts);
  layout.v = take(plan.block_n * head_dim_v * 2 * parts);
  layout.s = take(plan.block_n * kPanel * 4);
  layout.p = take(plan.block_n * kPanel * 2 * parts);
  layout.block = take(2 * kStep * kPanel * 4);
  layout.lines = take(8 * parts * wide * 2);
  layout.words = take(4 * wide * 4);
  layout.rows = take(row_bytes(layout.tile_rows, kPanel));
  layout.line = take(wide * 4);
  return layout;
}

// False if some number of Q, K or V is not finite: nothing was stored then.
template <int kParts, typename Tiles>
HWY_NOINLINE bool run_parts(const ForwardPlan& plan, int64_t group, int64_t m_block, int64_t split,
                            std::byte* scratch) {
  const Layout layout = layout_of(plan);
  const auto at = [&](int64_t offset) { return scratch + offset; };
  const ForwardProblem& problem = *plan.problem;
  RowTile tile;
  tile.plan = &plan;
  tile.group = group;
  tile.row_begin = m_block * plan.block_m;
  tile.num_rows = std::min(plan.block_m, plan.rows - tile.row_begin);
  tile.panel_rows = kPanel;
  tile.width_step = kPanel;
  tile.o_rows = round_up(problem.head_dim_v, kStep);
  tile.o = reinterpret_cast<float*>(at(layout.o));
  tile.line = reinterpret_cast<float*>(at(layout.line));
  assign_row_arrays(at(layout.rows), layout.tile_rows, &tile);
  Buffers buffers;
  buffers.q = reinterpret_cast<uint32_t*>(at(layout.q));
  buffers.k = reinterpret_cast<uint16_t*>(at(layout.k));
  buffers.v = reinterpret_cast<uint16_t*>(at(layout.v));
  buffers.s = reinterpret_cast<float*>(at(layout.s));
  buffers.p = reinterpret_cast<uint32_t*>(at(layout.p));
  buffers.block = reinterpret_cast<float*>(at(layout.block));
  buffers.lines = reinterpret_cast<uint16_t*>(at(layout.lines));
  buffers.words = reinterpret_cast<uint32_t*>(at(layout.words));
  buffers.head_dim = round_up(problem.head_dim, kStep);
  buffers.head_dim_v = tile.o_rows;
  buffers.wide = std::max(buffers.head_dim, buffers.head_dim_v);

  // A negative scale is a positive one of -Q: maxima are then taken before the scale is.
  const bool negate = plan.scale_1 < 0;
  const float scale = negate ? -plan.scale_1 : plan.scale_1;
  start_rows(tile);
  if (!load_queries<kParts>(tile, buffers, negate)) return false;
  Tiles tiles;
  alignas(64) float shrink[kPanel];
  const KeyRange all = keys_of(tile, split);
  for (int64_t n_begin = all.begin / plan.block_n * plan.block_n; n_begin < all.end;
       n_begin += plan.block_n) {
    const KeyRange keys = {std::max<int64_t>(all.begin - n_begin, 0),
                           std::min(all.end - n_begin, plan.block_n)};
    if (!load_keys<kParts>(plan, group, n_begin, keys, buffers)) return false;
    if (!load_values<kParts>(plan, group, n_begin, keys, buffers)) return false;
    for (int64_t index = 0; index < tile.num_panels(); ++index) {
      const PanelView panel = view_panel(tile, index, n_begin, keys, kKeyBlock);
      if (panel.begin >= panel.end) continue;
      const uint32_t* q = buffers.q + index * kParts * buffers.head_dim / 2 * kPanel;
      Vector peak[kVectors];
      HWY_UNROLL(4)
      for (int n = 0; n < kVectors; ++n) {
        peak[n] = hn::Set(kTag, -std::numeric_limits<float>::max());
      }
      scores<kParts>(tiles, buffers, plan, q, panel, peak);
      softmax<kParts>(buffers, plan, panel, peak, scale, shrink);
      outputs<kParts>(tiles, buffers, plan, panel, shrink);
    }
  }
  store_results(tile, split);
  return true;
}

// 16-bit inputs, and a scale by which hidden scores stay -infinity.
inline bool serves(const ForwardPlan& plan) {
  return plan.problem->dtype != DType::kFloat32 && plan.scale_2 == 1.0f && plan.scale_1 != 0.0f;
}

inline int64_t scratch_bytes(const ForwardPlan& plan) { return layout_of(plan).bytes; }

template <typename Tiles>
bool run_item(const ForwardPlan& plan, int64_t group, int64_t m_block, int64_t split,
              std::byte* scratch) {
  return plan.problem->dtype == DType::kFloat16
             ? run_parts<2, Tiles>(plan, group, m_block, split, scratch)
             : run_parts<1, Tiles>(plan, group, m_block, split, scratch);
}

}  // namespace amx
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilefold::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
