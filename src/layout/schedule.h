// Which tile of the problem each CTA of a one-dimensional grid computes.
#pragma once

#include <cstdint>

#include "layout/divisor.h"
#include "layout/host_device.h"

namespace tilefold::layout {

// num_batch_heads * num_m_blocks * num_splits CTAs. Grid axis x reaches 2^31 - 1, where y and z end
// at 65535.
struct TileGrid {
  int32_t num_batch_heads = 1;
  int32_t num_m_blocks = 1;
  int32_t num_splits = 1;
  int32_t section_heads = 1;
  Divisor by_section_tiles;
  Divisor by_section_heads;
  Divisor by_last_heads;

  TileGrid() = default;
  // One section of all heads.
  constexpr TileGrid(int32_t batch_heads, int32_t m_blocks, int32_t splits)
      : TileGrid(batch_heads, m_blocks, splits, batch_heads) {}
  // Sections of `heads` heads; the last one may have fewer.
  constexpr TileGrid(int32_t batch_heads, int32_t m_blocks, int32_t splits, int32_t heads)
      : num_batch_heads(batch_heads),
        num_m_blocks(m_blocks),
        num_splits(splits),
        section_heads(heads),
        by_section_tiles(static_cast<uint32_t>(heads) * static_cast<uint32_t>(m_blocks) *
                         static_cast<uint32_t>(splits)),
        by_section_heads(static_cast<uint32_t>(heads)),
        by_last_heads(static_cast<uint32_t>(heads > 0 ? (batch_heads - 1) % heads + 1 : 1)) {}
};

struct TileCoord {
  int32_t batch_head;
  int32_t m_block;
  int32_t split;
};

// Sections come one after another. Inside a section heads run fastest and the last row tiles come
// first: under a causal mask these are the longest, so that the longest tiles start first and the
// last wave is made of the shortest (docs/devlog.md, "What the prototype showed", has what other
// orders cost). CTAs that run together share K and V where heads are grouped, and where a section
// has fewer heads than the GPU runs CTAs.
TILEFOLD_HOST_DEVICE constexpr TileCoord tile_of(const TileGrid& grid, uint32_t cta) {
  const uint32_t section = grid.by_section_tiles.quotient(cta);
  const uint32_t in_section = cta - section * grid.by_section_tiles.divisor;
  const uint32_t first_head = section * static_cast<uint32_t>(grid.section_heads);
  const bool last = first_head + static_cast<uint32_t>(grid.section_heads) >=
                    static_cast<uint32_t>(grid.num_batch_heads);
  const Divisor& by_heads = last ? grid.by_last_heads : grid.by_section_heads;
  const uint32_t rest = by_heads.quotient(in_section);
  TileCoord tile{};
  tile.batch_head = static_cast<int32_t>(first_head + in_section - rest * by_heads.divisor);
  if (grid.num_splits == 1) {
    tile.split = 0;
    tile.m_block = grid.num_m_blocks - 1 - static_cast<int32_t>(rest);
  } else {
    const uint32_t splits = static_cast<uint32_t>(grid.num_splits);
    const uint32_t reversed = rest / splits;
    tile.split = static_cast<int32_t>(rest - reversed * splits);
    tile.m_block = grid.num_m_blocks - 1 - static_cast<int32_t>(reversed);
  }
  return tile;
}

// How many heads a section has, `concurrent_tiles` being what the GPU runs at once. Heads of short
// sequences are many: all tiles that run together then belong to different heads, and every K and V
// is read from memory anew for each row tile. So they are cut into sections whose K and V stay in
// L2, all of about the same size.
TILEFOLD_HOST_DEVICE constexpr int32_t section_heads(int32_t num_batch_heads,
                                                     int32_t num_batch_heads_kv,
                                                     int64_t kv_bytes_per_head,
                                                     int64_t concurrent_tiles) {
  constexpr int64_t kSectionBytes = 16 << 20;
  constexpr int64_t kTilesThatShare = 4;  // of one K and V, at the same time
  if (concurrent_tiles >= kTilesThatShare * num_batch_heads_kv) return num_batch_heads;
  const int64_t bytes = kv_bytes_per_head * num_batch_heads_kv;
  const int64_t sections = bytes / kSectionBytes + (bytes % kSectionBytes != 0);
  if (sections <= 1) return num_batch_heads;
  const int64_t heads = (num_batch_heads + sections - 1) / sections;
  return static_cast<int32_t>(heads);
}

}  // namespace tilefold::layout
