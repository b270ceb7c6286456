// The rows of one work item: which keys they see, their running softmax, their results.
//
// Included once per SIMD target (see forward_targets.cc).
#if defined(TILEFOLD_CPU_ROW_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEFOLD_CPU_ROW_TILE_INL_H
#undef TILEFOLD_CPU_ROW_TILE_INL_H
#else
#define TILEFOLD_CPU_ROW_TILE_INL_H
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/forward_plan.h"
#include "cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilefold::cpu {
namespace HWY_NAMESPACE {
namespace {

// Keys that the rows of a panel see, empty rows aside: their ranges begin in [first_begin,
// last_begin] and end in [first_end, last_end].
struct PanelKeys {
  int64_t first_begin;
  int64_t last_begin;
  int64_t first_end;
  int64_t last_end;
};

// Vector lanes are rows. A panel's arrays have its width, which is less than panel_rows for the
// last one only; lanes beyond the last row compute, but are not stored.
struct RowTile {
  const ForwardPlan* plan;
  int64_t group;
  int64_t row_begin;
  int64_t num_rows;
  int64_t panel_rows;  // width of a full panel
  int64_t width_step;  // widths are multiples of it
  int64_t o_rows;      // head dims of O^T, padded

  float* o;        // [panel][o_rows][width]
  float* row_max;  // [row], in units of log 2
  float* row_sum;
  float* low;   // of the panel in work: first visible key, from the key tile's first
  float* high;  // past the last one
  int64_t* key_begin;
  int64_t* key_end;
  PanelKeys* panel_keys;
  float* line;  // one row of Q or O

  int64_t num_panels() const { return (num_rows + panel_rows - 1) / panel_rows; }
  int64_t width(int64_t panel) const {
    return std::min(panel_rows, round_up(num_rows - panel * panel_rows, width_step));
  }
};

// Bytes of the arrays of a tile that are indexed by row or panel.
inline int64_t row_bytes(int64_t tile_rows, int64_t panel_rows) {
  return tile_rows * (4 * sizeof(float) + 2 * sizeof(int64_t)) +
         tile_rows / panel_rows * sizeof(PanelKeys);
}

inline void assign_row_arrays(std::byte* memory, int64_t tile_rows, RowTile* tile) {
  float* floats = reinterpret_cast<float*>(memory);
  tile->row_max = floats;
  tile->row_sum = floats + tile_rows;
  tile->low = floats + 2 * tile_rows;
  tile->high = floats + 3 * tile_rows;
  tile->key_begin = reinterpret_cast<int64_t*>(floats + 4 * tile_rows);
  tile->key_end = tile->key_begin + tile_rows;
  tile->panel_keys = reinterpret_cast<PanelKeys*>(tile->key_end + tile_rows);
}

// Rows that have seen nothing yet.
inline void start_rows(const RowTile& tile) {
  const ForwardProblem& p = *tile.plan->problem;
  std::memset(tile.o, 0, sizeof(float) * tile.num_panels() * tile.o_rows * tile.panel_rows);
  for (int64_t row = 0; row < tile.num_panels() * tile.panel_rows; ++row) {
    PanelKeys& panel = tile.panel_keys[row / tile.panel_rows];
    if (row % tile.panel_rows == 0) panel = {p.seqlen_k, 0, p.seqlen_k, 0};
    // Not -infinity: masked scores are, and their difference must not be NaN. No finite logit is
    // below it.
    tile.row_max[row] = -std::numeric_limits<float>::max();
    tile.row_sum[row] = 0.0f;
    tile.key_begin[row] = tile.key_end[row] = 0;
    if (row >= tile.num_rows) continue;
    const RowPlace place = place_of(*tile.plan, tile.group, tile.row_begin + row);
    const KeyRange keys = visible_keys(p, place.query);
    if (keys.begin >= keys.end) continue;
    tile.key_begin[row] = keys.begin;
    tile.key_end[row] = keys.end;
    panel.first_begin = std::min(panel.first_begin, keys.begin);
    panel.last_begin = std::max(panel.last_begin, keys.begin);
    panel.first_end = std::min(panel.first_end, keys.end);
    panel.last_end = std::max(panel.last_end, keys.end);
  }
}

// The keys that some row of the tile sees, within a split.
inline KeyRange keys_of(const RowTile& tile, int64_t split) {
  KeyRange keys = {tile.plan->problem->seqlen_k, 0};
  for (int64_t panel = 0; panel < tile.num_panels(); ++panel) {
    keys.begin = std::min(keys.begin, tile.panel_keys[panel].first_begin);
    keys.end = std::max(keys.end, tile.panel_keys[panel].last_end);
  }
  if (tile.plan->num_splits > 1) {
    keys.begin = std::max(keys.begin, split * tile.plan->split_keys);
    keys.end = std::min(keys.end, (split + 1) * tile.plan->split_keys);
  }
  return keys;
}

// A panel at work on one tile of keys.
struct PanelView {
  float* o;
  float* row_max;
  float* row_sum;
  const float* low;
  const float* high;
  int64_t begin;  // keys that some row of the panel sees, from the tile's first key; begin is
  int64_t end;    // rounded down to the key block
  bool masked;    // not every row sees all of them
};

// `keys` are those of the key tile at n_begin that the item works on, counted from n_begin. Fills
// low and high of the panel's rows if it is masked.
inline PanelView view_panel(const RowTile& tile, int64_t index, int64_t n_begin, KeyRange keys,
                            int64_t key_block) {
  const int64_t first = index * tile.panel_rows;
  const PanelKeys& seen = tile.panel_keys[index];
  PanelView view;
  view.o = tile.o + first * tile.o_rows;
  view.row_max = tile.row_max + first;
  view.row_sum = tile.row_sum + first;
  view.low = tile.low + first;
  view.high = tile.high + first;
  view.begin = std::max(seen.first_begin - n_begin, keys.begin) / key_block * key_block;
  view.end = std::min(seen.last_end - n_begin, keys.end);
  view.masked = std::max(seen.last_begin - n_begin, keys.begin) > view.begin ||
                seen.first_end - n_begin < view.end;
  if (view.masked) {
    for (int64_t row = first; row < first + tile.panel_rows; ++row) {
      tile.low[row] = static_cast<float>(
          std::clamp<int64_t>(tile.key_begin[row] - n_begin, keys.begin, keys.end));
      tile.high[row] = static_cast<float>(
          std::clamp<int64_t>(tile.key_end[row] - n_begin, keys.begin, keys.end));
    }
  }
  return view;
}

// Lanes of the rows that see key `key` of the tile.
HWY_INLINE hn::Mask<VectorTag> sees(const PanelView& panel, int64_t key, int64_t lane) {
  const Vector j = hn::Set(kTag, static_cast<float>(key));
  return hn::And(hn::Ge(j, hn::Load(kTag, panel.low + lane)),
                 hn::Lt(j, hn::Load(kTag, panel.high + lane)));
}

// O = O^T / sum, and LSE, of one row.
inline void store_row(const RowTile& tile, int64_t row, const float* o, int64_t width) {
  const ForwardProblem& p = *tile.plan->problem;
  const RowPlace place = place_of(*tile.plan, tile.group, tile.row_begin + row);
  const bool empty = tile.key_begin[row] >= tile.key_end[row];
  const float sum = tile.row_sum[row];
  const float inverse = 1.0f / sum;
  for (int64_t d = 0; d < p.head_dim_v; ++d) tile.line[d] = empty ? 0.0f : o[d * width] * inverse;

  const int64_t at = place.batch * p.o_strides.batch + place.head * p.o_strides.head +
                     place.query * p.o_strides.row;
  const int64_t stride = p.head_dim_v == 1 ? 1 : p.o_strides.column;
  switch (p.dtype) {
    case DType::kFloat32:
      unpack_row(tile.line, p.head_dim_v, static_cast<float*>(p.o) + at, stride);
      break;
    case DType::kFloat16:
      unpack_row(tile.line, p.head_dim_v, static_cast<Float16*>(p.o) + at, stride);
      break;
    case DType::kBFloat16:
      unpack_row(tile.line, p.head_dim_v, static_cast<BFloat16*>(p.o) + at, stride);
      break;
  }

  if (p.lse == nullptr) return;
  constexpr double kLn2 = 0.693147180559945309417;
  float* lse = p.lse + place.batch * p.lse_strides.batch + place.head * p.lse_strides.head +
               place.query * p.lse_strides.row;
  *lse = empty ? p.empty_row_lse
               : static_cast<float>(tile.row_max[row] * kLn2 + std::log(double{sum}));
}

inline void store_results(const RowTile& tile, int64_t split) {
  const int64_t head_dim_v = tile.plan->problem->head_dim_v;
  for (int64_t row = 0; row < tile.num_rows; ++row) {
    const int64_t panel = row / tile.panel_rows;
    const int64_t width = tile.width(panel);
    const float* o = tile.o + panel * tile.o_rows * tile.panel_rows + row % tile.panel_rows;
    if (tile.plan->num_splits == 1) {
      store_row(tile, row, o, width);
      continue;
    }
    float* partial = tile.plan->partial(tile.group, tile.row_begin + row, split);
    partial[0] = tile.row_max[row];
    partial[1] = tile.row_sum[row];
    for (int64_t d = 0; d < head_dim_v; ++d) partial[2 + d] = o[d * width];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilefold::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
