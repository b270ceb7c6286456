// Which key blocks a run of query rows visits, and in which of them it has to mask.
#pragma once

#include <cstdint>

#include "layout/host_device.h"

namespace tilefold::layout {

// Row i sees key j exactly when i + diagonal_left <= j <= i + diagonal_right and 0 <= j < seqlen_k.
// All sums of a row and a diagonal fit int32_t.
struct Mask {
  int32_t seqlen_k;
  int32_t diagonal_left;
  int32_t diagonal_right;

  TILEFOLD_HOST_DEVICE constexpr int32_t key_begin(int32_t row) const {
    return row + diagonal_left > 0 ? row + diagonal_left : 0;
  }
  TILEFOLD_HOST_DEVICE constexpr int32_t key_end(int32_t row) const {
    return row + diagonal_right + 1 < seqlen_k ? row + diagonal_right + 1 : seqlen_k;
  }
  TILEFOLD_HOST_DEVICE constexpr bool row_is_empty(int32_t row) const {
    return key_begin(row) >= key_end(row);
  }
  TILEFOLD_HOST_DEVICE constexpr bool sees(int32_t row, int32_t key) const {
    return key >= key_begin(row) && key < key_end(row);
  }
};

// Blocks [begin, end) hold every key that any of the rows sees; of these, in [full_begin, full_end)
// every row sees every key. Where no block is full, full_end <= full_begin.
struct BlockRange {
  int32_t begin = 0;
  int32_t full_begin = 0;
  int32_t full_end = 0;
  int32_t end = 0;

  TILEFOLD_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
  TILEFOLD_HOST_DEVICE constexpr bool visits(int32_t block) const {
    return block >= begin && block < end;
  }
  TILEFOLD_HOST_DEVICE constexpr bool masks(int32_t block) const {
    return block < full_begin || block >= full_end;
  }
};

// The range of rows [row_begin, row_end). The keys of the first row begin and end first, those of
// the last row last: the union lies between the first's begin and the last's end, what all see
// between the last's begin and the first's end. The union has no gap: from a row to the next its
// keys move by one, and a row without keys is followed or preceded by such rows only.
TILEFOLD_HOST_DEVICE constexpr BlockRange block_range(const Mask& mask, int32_t row_begin,
                                                      int32_t row_end, int32_t block_keys) {
  if (row_begin >= row_end || mask.diagonal_left > mask.diagonal_right) return {};
  const int32_t key_begin = mask.key_begin(row_begin);
  const int32_t key_end = mask.key_end(row_end - 1);
  if (key_begin >= key_end) return {};
  const int32_t full_key_begin = mask.key_begin(row_end - 1);
  const int32_t full_key_end = mask.key_end(row_begin) > 0 ? mask.key_end(row_begin) : 0;
  BlockRange range;
  range.begin = key_begin / block_keys;
  range.end = (key_end + block_keys - 1) / block_keys;
  range.full_begin = (full_key_begin + block_keys - 1) / block_keys;
  range.full_end = full_key_end / block_keys;
  return range;
}

// The part of a range that split `split` of `num_splits` takes: runs of blocks of (nearly) equal
// length, in order. The full part stays as it is: it is looked at for visited blocks only.
TILEFOLD_HOST_DEVICE constexpr BlockRange split_of(const BlockRange& range, int32_t split,
                                                   int32_t num_splits) {
  if (num_splits <= 1) return range;
  const int32_t blocks = range.empty() ? 0 : range.end - range.begin;
  const int32_t per_split = (blocks + num_splits - 1) / num_splits;
  BlockRange part = range;
  part.begin = range.begin + split * per_split;
  part.end = part.begin + per_split < range.end ? part.begin + per_split : range.end;
  return part;
}

}  // namespace tilefold::layout
