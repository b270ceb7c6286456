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

// Heads whose tiles a masked kernel interleaves. PERF: 32 is best or tied for N = 512..16384 with
// D = 128 on an H200; many more heads at once overflow L2, fewer end on uneven tails.
TILEFOLD_HOST_DEVICE constexpr int32_t heads_per_section(int32_t num_batch_heads) {
  return num_batch_heads < 32 ? 16 : 32;
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
