// In which order a persistent grid of the Hopper kernel works on its tiles.
#pragma once

#include <cstdint>

#include "layout/divisor.h"
#include "layout/hopper.h"
#include "layout/host_device.h"
#include "layout/schedule.h"

namespace tilefold::layout {

// Order of a static persistent grid (no mask): m_block runs fastest, so the CTAs that run together
// share a head's K and V in L2.
TILEFOLD_HOST_DEVICE constexpr TileCoord tile_in_head_order(int32_t index,
                                                            const Divisor& by_m_blocks) {
  const auto batch_head = static_cast<int32_t>(by_m_blocks.quotient(static_cast<uint32_t>(index)));
  return {batch_head, index - batch_head * static_cast<int32_t>(by_m_blocks.divisor), 0};
}
// The host's: kernels are handed their Divisor.
constexpr TileCoord tile_in_head_order(int32_t index, int32_t num_m_blocks) {
  return tile_in_head_order(index, Divisor(static_cast<uint32_t>(num_m_blocks)));
}

// Order of a dynamic persistent grid (masked). Sections of heads one after another; inside a
// section the last row tiles first, under a causal mask the longest, all heads of the section
// before the next shorter tile. The first `tail` row tiles of every head, the shortest, come after
// all sections: CTAs that end a long tile sooner than others fill up with these.
struct LongestFirst {
  TileGrid sections;  // of row tiles [tail, num_m_blocks)
  int32_t tail = 0;
  uint32_t num_section_tiles = 0;
  Divisor by_batch_heads;

  LongestFirst() = default;
  constexpr LongestFirst(int32_t num_batch_heads, int32_t num_m_blocks, int32_t section_heads,
                         int32_t tail_m_blocks)
      : sections(num_batch_heads, num_m_blocks - tail_m_blocks, 1, section_heads),
        tail(tail_m_blocks),
        num_section_tiles(static_cast<uint32_t>(num_batch_heads) *
                          static_cast<uint32_t>(num_m_blocks - tail_m_blocks)),
        by_batch_heads(static_cast<uint32_t>(num_batch_heads)) {}
};

TILEFOLD_HOST_DEVICE constexpr TileCoord tile_of(const LongestFirst& order, uint32_t index) {
  if (index < order.num_section_tiles) {
    TileCoord tile = tile_of(order.sections, index);
    tile.m_block += order.tail;
    return tile;
  }
  const uint32_t in_tail = index - order.num_section_tiles;
  const uint32_t rest = order.by_batch_heads.quotient(in_tail);
  return {static_cast<int32_t>(in_tail - rest * order.by_batch_heads.divisor),
          order.tail - 1 - static_cast<int32_t>(rest), 0};
}

// How many row tiles of each head to keep for the end: enough for a third of what the CTAs can be
// apart when they have done the rest, a longest tile; and none that is longer than half of that.
// PERF: half instead of a third cost 4 % on an H200 at D = 256, N = 512, causal (docs/devlog.md, "A
// counter that opens itself ..."). Where one section holds all heads the order is the same without.
// `blocks` gives the key blocks that a row tile visits.
template <typename BlocksOfTile>
constexpr int32_t tail_m_blocks(int32_t num_batch_heads, int32_t num_m_blocks,
                                int32_t section_heads, int32_t num_ctas,
                                const BlocksOfTile& blocks) {
  if (num_batch_heads <= section_heads) return 0;
  constexpr int32_t kMost = 64;  // tiles without keys, which add nothing, can be many
  const int64_t longest = blocks(num_m_blocks - 1);
  const int64_t wanted = num_ctas * longest / 3;
  int64_t kept = 0;
  int32_t tail = 0;
  while (kept < wanted && tail < kMost && tail + 1 < num_m_blocks && 2 * blocks(tail) <= longest) {
    kept += int64_t{num_batch_heads} * blocks(tail++);
  }
  return tail;
}

// The first row of the first row tile: zero, or where later rows see more keys (`masks_right`)
// less, so that the tile which is not full is the first, whose rows see the fewest keys, not the
// last. Then its first warpgroups have no rows: the others begin at row 0, since TMA stores nothing
// at negative coordinates. Counted in blocks of 64 keys, causal, N = 1024, the 6 tiles of 192 rows
// visit 51 instead of 61; docs/devlog.md, "Behind FlashAttention-3", has the speed.
TILEFOLD_HOST_DEVICE constexpr int32_t first_tile_row(int32_t seqlen_q, int32_t block_m,
                                                      bool masks_right) {
  const int32_t beyond =
      (seqlen_q % block_m + kWarpgroupRows - 1) / kWarpgroupRows * kWarpgroupRows;
  const bool short_tile = beyond != 0 && seqlen_q > block_m;
  return masks_right && short_tile ? beyond - block_m : 0;
}

// Heads whose tiles a masked kernel interleaves, given the bytes of K and V that each brings. PERF:
// some 16 MB stay in L2 while their tiles are worked on; on an H200, causal, with a tail, 8 heads
// cost 1 to 4 % at N = 1024 and 2048, 4 and 2 heads 1 to 9 %, 64 heads at D = 256 2 to 6 % at
// N = 512 to 2048 (docs/devlog.md, "A counter that opens itself ...").
TILEFOLD_HOST_DEVICE constexpr int32_t heads_per_section(int64_t kv_bytes_per_head) {
  constexpr int64_t kSectionBytes = 16 << 20;
  constexpr int32_t kLeast = 16;
  constexpr int32_t kMost = 256;
  const int64_t fitting = kSectionBytes / (kv_bytes_per_head > 0 ? kv_bytes_per_head : 1);
  return fitting < kLeast ? kLeast : fitting > kMost ? kMost : static_cast<int32_t>(fitting);
}

}  // namespace tilefold::layout
