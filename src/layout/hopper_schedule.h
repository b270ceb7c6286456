// In which order a persistent grid of the Hopper kernel works on its tiles.
#pragma once

#include <cstdint>

#include "layout/host_device.h"
#include "layout/schedule.h"

namespace tilefold::layout {

// Order of a static persistent grid (no mask): m_block runs fastest, so the CTAs that run together
// share a head's K and V in L2.
TILEFOLD_HOST_DEVICE constexpr TileCoord tile_in_head_order(int32_t index, int32_t num_m_blocks) {
  return {index / num_m_blocks, index % num_m_blocks, 0};
}

// Heads whose tiles a masked kernel interleaves, given the bytes of K and V that each brings. PERF:
// on an H200 32 is best or tied from N = 1024 on; heads of short sequences may be more, up to some
// 16 MB (2 to 3 % at N = 512), beyond which they push each other out of L2; fewer end on uneven
// tails.
TILEFOLD_HOST_DEVICE constexpr int32_t heads_per_section(int32_t num_batch_heads,
                                                         int64_t kv_bytes_per_head = 1 << 20) {
  constexpr int64_t kSectionBytes = 16 << 20;
  constexpr int32_t kMost = 256;
  const int32_t least = num_batch_heads < 32 ? 16 : 32;
  const int64_t fitting = kSectionBytes / (kv_bytes_per_head > 0 ? kv_bytes_per_head : 1);
  return fitting < least ? least : fitting > kMost ? kMost : static_cast<int32_t>(fitting);
}

// Order of a dynamic persistent grid (masked): sections of heads one after another; inside a
// section the longest tiles first (under a causal mask the last rows), all heads of the section
// before the next shorter row block.
TILEFOLD_HOST_DEVICE constexpr TileCoord tile_longest_first(int32_t index, int32_t num_m_blocks,
                                                            int32_t num_batch_heads,
                                                            int32_t section_heads) {
  const int32_t section = index / (section_heads * num_m_blocks);
  const int32_t in_section = index - section * section_heads * num_m_blocks;
  const int32_t first_head = section * section_heads;
  const int32_t heads =
      num_batch_heads - first_head < section_heads ? num_batch_heads - first_head : section_heads;
  return {first_head + in_section % heads, num_m_blocks - 1 - in_section / heads, 0};
}

}  // namespace tilefold::layout
