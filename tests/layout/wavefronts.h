// Counts the passes that the 32 banks of shared memory need for an access of a warp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <vector>

namespace tilefold::layout {

// Lanes access `bytes` bytes at their addresses. Accesses of 16 bytes go in four groups of eight
// lanes, of 4 bytes all at once; in a group, different words of one bank need a pass each, and
// equal words share one. The largest number of passes of any group: 1 is free of conflicts.
inline int bank_passes(const std::vector<uint32_t>& addresses, int bytes) {
  const size_t group = static_cast<size_t>(128 / bytes);
  int most = 0;
  for (size_t first = 0; first < addresses.size(); first += group) {
    std::array<std::set<uint32_t>, 32> words;
    for (size_t lane = first; lane < std::min(first + group, addresses.size()); ++lane) {
      for (int word = 0; word < bytes / 4; ++word) {
        const uint32_t at = addresses[lane] / 4 + static_cast<uint32_t>(word);
        words[at % 32].insert(at);
      }
    }
    for (const auto& bank : words) most = std::max(most, static_cast<int>(bank.size()));
  }
  return most;
}

}  // namespace tilefold::layout
