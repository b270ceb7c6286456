// Which of two tile sizes suits a mask.
#pragma once

#include <cstdint>

#include "layout/block_range.h"

namespace tilefold::sm80 {

// Whether tiles of 64 x 64, two of which share a multiprocessor, do better than those of 128 x 128:
// where the mask's edges cut through so much of what the rows see that the keys which smaller
// blocks leave out outweigh that K and V are read twice as often. PERF: docs/devlog.md, "Short
// causal sequences at D = 256", has what either tile reaches on an H200.
constexpr bool small_tiles_suit(const layout::Mask& mask, int64_t seqlen_q) {
  constexpr int64_t kSamples = 8;
  constexpr int64_t kKeysPerEdge = 768;
  int64_t keys = 0;
  int64_t edges = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto row = static_cast<int32_t>((2 * i + 1) * seqlen_q / (2 * kSamples));
    if (mask.row_is_empty(row)) continue;
    keys += mask.key_end(row) - mask.key_begin(row);
    edges += (mask.key_begin(row) > 0) + (mask.key_end(row) < mask.seqlen_k);
  }
  return keys < kKeysPerEdge * edges;
}

}  // namespace tilefold::sm80
