// One work item of the forward pass in float32 vectors, for one SIMD target.
//
// A row tile is cut into panels of kVectors vectors, whose lanes are rows. S^T = K Q^T and
// O^T = V^T P^T both come from one kind of micro-kernel: broadcast a number of K (or V), multiply
// it with the vectors of Q^T (or P^T), add. So the softmax needs no operation across lanes, K no
// transposition, and D and Dv no padding. Per panel:
//   Q^T [D][width]   S^T, then P^T [keys][width]   O^T [Dv][width]
// and per tile of keys, shared by the panels of the row tile:
//   K [D / kChunk][keys][kChunk]   V [Dv / kValueBlock][keys][kValueBlock]
//
// Included once per SIMD target (see forward_targets.cc).
#if defined(TILEFOLD_CPU_FORWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEFOLD_CPU_FORWARD_INL_H
#undef TILEFOLD_CPU_FORWARD_INL_H
#else
#define TILEFOLD_CPU_FORWARD_INL_H
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/forward_plan.h"
#include "cpu/row_tile-inl.h"
#include "cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilefold::cpu {
namespace HWY_NAMESPACE {
namespace {

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

// An item's scratch, beside that of its rows.
struct Buffers {
  float* q;  // [panel][D][width]
  float* k;  // [D / kChunk][block_n][kChunk]
  float* v;  // [Dv / kValueBlock][block_n][kValueBlock]
  float* s;  // [block_n][width]
};

// ---------------------------------------------------------------------------------- loads

// Q^T of the tile's rows; lanes without a row are 0.
inline void load_queries(const RowTile& tile, float* q) {
  const ForwardPlan& plan = *tile.plan;
  const ForwardProblem& p = *plan.problem;
  std::memset(q, 0, sizeof(float) * tile.num_panels() * p.head_dim * kPanel);
  for (int64_t row = 0; row < tile.num_rows; ++row) {
    const RowPlace place = place_of(plan, tile.group, tile.row_begin + row);
    const int64_t at = place.batch * p.q_strides.batch + place.head * p.q_strides.head +
                       place.query * p.q_strides.row;
    pack_row(p.dtype, p.q, at, p.q_strides.column, p.head_dim, tile.line, kChunk, kChunk);
    const int64_t panel = row / kPanel;
    const int64_t width = tile.width(panel);
    float* to = q + panel * p.head_dim * kPanel + row % kPanel;
    for (int64_t d = 0; d < p.head_dim; ++d) to[d * width] = tile.line[d];
  }
}

// The keys `keys` of the tile at n_begin, from a multiple of kKeys to a multiple of kKeys: rows
// before them are loaded too, rows after them are zeros.
inline void load_keys(const ForwardPlan& plan, int64_t group, int64_t n_begin, KeyRange keys,
                      float* k) {
  const ForwardProblem& p = *plan.problem;
  const int64_t base = batch_of(plan, group) * p.k_strides.batch +
                       kv_head_of(plan, group) * p.k_strides.head + n_begin * p.k_strides.row;
  const int64_t chunk_stride = plan.block_n * kChunk;
  for (int64_t j = keys.begin / kKeys * kKeys; j < keys.end; ++j) {
    pack_row(p.dtype, p.k, base + j * p.k_strides.row, p.k_strides.column, p.head_dim,
             k + j * kChunk, kChunk, chunk_stride);
  }
  for (int64_t j = keys.end; j < round_up(keys.end, kKeys); ++j) {
    for (int64_t d = 0; d < p.head_dim; d += kChunk) {
      std::memset(k + d / kChunk * chunk_stride + j * kChunk, 0, sizeof(float) * kChunk);
    }
  }
}

// The values of the same keys; says whether all of them are finite.
inline bool load_values(const ForwardPlan& plan, int64_t group, int64_t n_begin, KeyRange keys,
                        float* v) {
  const ForwardProblem& p = *plan.problem;
  const int64_t base = batch_of(plan, group) * p.v_strides.batch +
                       kv_head_of(plan, group) * p.v_strides.head + n_begin * p.v_strides.row;
  const int64_t block_stride = plan.block_n * kValueBlock;
  Vector poison = hn::Zero(kTag);
  for (int64_t j = keys.begin / kKeys * kKeys; j < keys.end; ++j) {
    poison =
        hn::Add(poison, pack_row(p.dtype, p.v, base + j * p.v_strides.row, p.v_strides.column,
                                 p.head_dim_v, v + j * kValueBlock, kValueBlock, block_stride));
  }
  return !any_nan(poison);
}

// ---------------------------------------------------------------------------------- micro-kernels

// S^T[kKeys][kNumVectors] = K Q^T, to logits in units of log 2, masked; folds them into tile_max.
template <int kNumVectors>
HWY_INLINE void scores_block(const float* HWY_RESTRICT k, int64_t chunk_stride, int64_t head_dim,
                             const float* HWY_RESTRICT q, float* HWY_RESTRICT s,
                             const PanelView& panel, int64_t key, float scale_1, float scale_2,
                             Vector (&tile_max)[kNumVectors]) {
  constexpr int64_t kWidth = kNumVectors * kLanes;
  Vector acc[kKeys][kNumVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) acc[i][n] = hn::Zero(kTag);
  }
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
  s += key * kWidth;
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    if (key + i >= panel.end) break;
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) {
      Vector t = hn::Mul(hn::Mul(acc[i][n], c1), c2);
      if (panel.masked) {
        t = hn::IfThenElse(sees(panel, key + i, n * kLanes), t,
                           hn::Set(kTag, -std::numeric_limits<float>::infinity()));
      }
      tile_max[n] = hn::Max(tile_max[n], t);
      hn::Store(t, kTag, s + i * kWidth + n * kLanes);
    }
  }
}

// P^T = 2^(S^T - row_max) in place; the new row_max, row_sum, and what older outputs shrink by.
template <int kNumVectors>
HWY_INLINE void softmax_block(float* HWY_RESTRICT s, const PanelView& panel,
                              const Vector (&tile_max)[kNumVectors],
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
HWY_INLINE void output_block(const float* HWY_RESTRICT v, const float* HWY_RESTRICT p,
                             const PanelView& panel, float* HWY_RESTRICT o,
                             const Vector (&shrink)[kNumVectors]) {
  constexpr int64_t kWidth = kNumVectors * kLanes;
  Vector acc[kKeys][kNumVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) {
      acc[i][n] = hn::Zero(kTag);
    }
  }
  p += panel.begin * kWidth;
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
                                      const float* s, const PanelView& panel,
                                      const Vector (&shrink)[kNumVectors]) {
  constexpr int64_t kWidth = kNumVectors * kLanes;
  for (int64_t d = 0; d < head_dim_v; ++d) {
    const float* column = v + d / kValueBlock * block_stride + d % kValueBlock;
    HWY_UNROLL(3)
    for (int n = 0; n < kNumVectors; ++n) {
      float* at = panel.o + d * kWidth + n * kLanes;
      Vector acc = hn::Zero(kTag);
      for (int64_t j = panel.begin; j < panel.end; ++j) {
        const Vector p = hn::Load(kTag, s + j * kWidth + n * kLanes);
        const Vector sum = hn::MulAdd(hn::Set(kTag, column[j * kValueBlock]), p, acc);
        acc = hn::IfThenElse(sees(panel, j, n * kLanes), sum, acc);
      }
      hn::Store(hn::MulAdd(hn::Load(kTag, at), shrink[n], acc), kTag, at);
    }
  }
}

// One panel of rows against one tile of keys.
template <int kNumVectors>
HWY_NOINLINE void fold_tile(const Buffers& buffers, const ForwardPlan& plan, const float* q,
                            const PanelView& panel, bool values_finite) {
  const int64_t head_dim_v = plan.problem->head_dim_v;
  Vector tile_max[kNumVectors];
  Vector shrink[kNumVectors];
  HWY_UNROLL(3)
  for (int n = 0; n < kNumVectors; ++n) {
    tile_max[n] = hn::Set(kTag, -std::numeric_limits<float>::max());
  }
  for (int64_t key = panel.begin; key < panel.end; key += kKeys) {
    scores_block<kNumVectors>(buffers.k + key * kChunk, plan.block_n * kChunk,
                              plan.problem->head_dim, q, buffers.s, panel, key, plan.scale_1,
                              plan.scale_2, tile_max);
  }
  softmax_block<kNumVectors>(buffers.s, panel, tile_max, shrink);
  const int64_t block_stride = plan.block_n * kValueBlock;
  if (panel.masked && !values_finite) {
    output_visible_only<kNumVectors>(buffers.v, block_stride, head_dim_v, buffers.s, panel, shrink);
    return;
  }
  for (int64_t d = 0; d < head_dim_v; d += kKeys) {
    output_block<kNumVectors>(buffers.v + d / kValueBlock * block_stride + d % kValueBlock,
                              buffers.s, panel, panel.o + d * kNumVectors * kLanes, shrink);
  }
}

// ---------------------------------------------------------------------------------- the item

struct Layout {
  int64_t tile_rows, q, o, k, v, s, rows, line, bytes;
};

inline Layout layout_of(const ForwardPlan& plan) {
  const ForwardProblem& p = *plan.problem;
  Layout layout = {};
  const auto take = [&](int64_t bytes) {
    const int64_t at = layout.bytes;
    layout.bytes += round_up(bytes, kScratchAlignment);
    return at;
  };
  layout.tile_rows = round_up(plan.block_m, kPanel);
  layout.q = take(layout.tile_rows * p.head_dim * 4);
  layout.o = take(layout.tile_rows * round_up(p.head_dim_v, kValueBlock) * 4);
  layout.k = take(plan.block_n * round_up(p.head_dim, kChunk) * 4);
  layout.v = take(plan.block_n * round_up(p.head_dim_v, kValueBlock) * 4);
  layout.s = take(plan.block_n * kPanel * 4);
  layout.rows = take(row_bytes(layout.tile_rows, kPanel));
  layout.line = take(round_up(std::max(p.head_dim, p.head_dim_v), kChunk) * 4);
  return layout;
}

inline int64_t scratch_bytes(const ForwardPlan& plan) { return layout_of(plan).bytes; }

inline void run_item(const ForwardPlan& plan, int64_t group, int64_t m_block, int64_t split,
                     std::byte* scratch) {
  const Layout layout = layout_of(plan);
  const auto floats = [&](int64_t offset) { return reinterpret_cast<float*>(scratch + offset); };
  RowTile tile;
  tile.plan = &plan;
  tile.group = group;
  tile.row_begin = m_block * plan.block_m;
  tile.num_rows = std::min(plan.block_m, plan.rows - tile.row_begin);
  tile.panel_rows = kPanel;
  tile.width_step = kLanes;
  tile.o_rows = round_up(plan.problem->head_dim_v, kValueBlock);
  tile.o = floats(layout.o);
  tile.line = floats(layout.line);
  assign_row_arrays(scratch + layout.rows, layout.tile_rows, &tile);
  const Buffers buffers = {floats(layout.q), floats(layout.k), floats(layout.v), floats(layout.s)};

  start_rows(tile);
  load_queries(tile, buffers.q);
  const KeyRange all = keys_of(tile, split);
  for (int64_t n_begin = all.begin / plan.block_n * plan.block_n; n_begin < all.end;
       n_begin += plan.block_n) {
    const KeyRange keys = {std::max<int64_t>(all.begin - n_begin, 0),
                           std::min(all.end - n_begin, plan.block_n)};
    load_keys(plan, group, n_begin, keys, buffers.k);
    const bool values_finite = load_values(plan, group, n_begin, keys, buffers.v);
    for (int64_t index = 0; index < tile.num_panels(); ++index) {
      const PanelView panel = view_panel(tile, index, n_begin, keys, kKeys);
      if (panel.begin >= panel.end) continue;
      const float* q = buffers.q + index * kPanel * plan.problem->head_dim;
      switch (tile.width(index) / kLanes) {
        case 1: fold_tile<1>(buffers, plan, q, panel, values_finite); break;
        case 2: fold_tile<2>(buffers, plan, q, panel, values_finite); break;
        default: fold_tile<3>(buffers, plan, q, panel, values_finite); break;
      }
    }
  }
  store_results(tile, split);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilefold::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
