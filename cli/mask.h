// Which keys a row sees, as the options say it: for pictures and for counting work.
#pragma once

#include <tilefold/tilefold.hpp>

#include <algorithm>
#include <cstdint>

namespace tilefold::cli {

/// Keys [begin, end) that a row sees; empty when begin == end.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// The keys that query row `i` of `seqlen_q` sees among `seqlen_k`.
inline KeyRange visible_keys(const Options& options, int64_t i, int64_t seqlen_q,
                             int64_t seqlen_k) {
  const int64_t causal_diagonal =
      i + (options.causal == Causal::kBottomRight ? seqlen_k - seqlen_q : 0);
  const bool window_bottom_right =
      options.window_align == WindowAlign::kBottomRight ||
      (options.window_align == WindowAlign::kAuto && options.causal == Causal::kBottomRight);
  const int64_t window_diagonal = i + (window_bottom_right ? seqlen_k - seqlen_q : 0);
  int64_t first = 0;
  int64_t last = seqlen_k - 1;
  if (options.causal != Causal::kNone) last = std::min(last, causal_diagonal);
  // A window wider than the sequences is no window; clamping it first keeps the sums from
  // overflowing.
  const int64_t widest = seqlen_q + seqlen_k;
  if (options.window_left >= 0) {
    first = std::max(first, window_diagonal - std::min(options.window_left, widest));
  }
  if (options.window_right >= 0) {
    last = std::min(last, window_diagonal + std::min(options.window_right, widest));
  }
  return first <= last ? KeyRange{first, last + 1} : KeyRange{};
}

/// Visible (query, key) pairs of one head.
inline int64_t visible_pairs(const Options& options, int64_t seqlen_q, int64_t seqlen_k) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < seqlen_q; ++i) {
    const KeyRange keys = visible_keys(options, i, seqlen_q, seqlen_k);
    pairs += keys.end - keys.begin;
  }
  return pairs;
}

}  // namespace tilefold::cli
