// The orders of the persistent grid: every tile once, the longest first, K and V shared.
#include "layout/hopper_schedule.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace tilefold::layout {
namespace {

TEST(HopperScheduleTest, HeadOrderVisitsEveryTileOnce) {
  for (const int m_blocks : {1, 2, 7, 32}) {
    for (const int heads : {1, 3, 64}) {
      std::set<std::pair<int, int>> seen;
      for (int i = 0; i < m_blocks * heads; ++i) {
        const TileCoord tile = tile_in_head_order(i, m_blocks);
        ASSERT_TRUE(tile.m_block >= 0 && tile.m_block < m_blocks);
        ASSERT_TRUE(tile.batch_head >= 0 && tile.batch_head < heads);
        seen.insert({tile.m_block, tile.batch_head});
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(m_blocks * heads));
    }
  }
}

TEST(HopperScheduleTest, LongestFirstVisitsEveryTileOnce) {
  for (const int m_blocks : {1, 2, 7, 32}) {
    for (const int heads : {1, 5, 16, 17, 31, 32, 33, 64, 100}) {
      for (const int tail : {0, 1, m_blocks / 2, m_blocks - 1}) {
        if (tail >= m_blocks) continue;
        const LongestFirst order(heads, m_blocks, heads_per_section(1 << 20), tail);
        std::set<std::pair<int, int>> seen;
        for (int i = 0; i < m_blocks * heads; ++i) {
          const TileCoord tile = tile_of(order, static_cast<uint32_t>(i));
          ASSERT_TRUE(tile.m_block >= 0 && tile.m_block < m_blocks);
          ASSERT_TRUE(tile.batch_head >= 0 && tile.batch_head < heads);
          seen.insert({tile.m_block, tile.batch_head});
          const bool in_tail = i >= (m_blocks - tail) * heads;
          EXPECT_EQ(tile.m_block < tail, in_tail);
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(m_blocks * heads));
      }
    }
  }
}

TEST(HopperScheduleTest, TheTailHoldsShortTilesEnoughToFillUpWith) {
  const auto causal = [](int m_block) { return 2 * m_block + 2; };
  // A third of 132 * 16 blocks: 128 heads times 2 and 4 come to more, 512 heads times 2.
  EXPECT_EQ(tail_m_blocks(128, 8, 32, 132, causal), 2);
  EXPECT_EQ(tail_m_blocks(512, 8, 32, 132, causal), 1);
  // No tile longer than half of the longest.
  EXPECT_EQ(tail_m_blocks(33, 8, 32, 132, causal), 4);  // 2 + 4 + 6 + 8; the next has 10
  EXPECT_EQ(tail_m_blocks(33, 1, 32, 132, causal), 0);
  EXPECT_EQ(tail_m_blocks(128, 8, 32, 132, [](int) { return 16; }), 0);
  // One section: its order ends that way anyway.
  EXPECT_EQ(tail_m_blocks(32, 8, 32, 132, causal), 0);
  // Rows that see no keys.
  EXPECT_LE(tail_m_blocks(128, 1 << 20, 32, 132, [](int m) { return m < 1000000 ? 0 : 9; }), 64);
}

TEST(HopperScheduleTest, SectionsHoldMoreHeadsWhereTheseAreShort) {
  EXPECT_EQ(heads_per_section(128 << 10), 128);
  EXPECT_EQ(heads_per_section(256 << 10), 64);
  EXPECT_EQ(heads_per_section(8 << 20), 16);
  EXPECT_EQ(heads_per_section(0), 256);
}

TEST(HopperScheduleTest, RowBlocksDescendWithinASection) {
  constexpr int kMBlocks = 9;
  constexpr int kHeads = 70;
  constexpr int kSection = heads_per_section(1 << 20);
  constexpr LongestFirst order(kHeads, kMBlocks, kSection, 0);
  for (int i = 1; i < kMBlocks * kHeads; ++i) {
    const TileCoord before = tile_of(order, static_cast<uint32_t>(i - 1));
    const TileCoord tile = tile_of(order, static_cast<uint32_t>(i));
    if (before.batch_head / kSection == tile.batch_head / kSection) {
      EXPECT_LE(tile.m_block, before.m_block);
    } else {
      EXPECT_EQ(tile.batch_head, before.batch_head / kSection * kSection + kSection);
      EXPECT_EQ(tile.m_block, kMBlocks - 1);
    }
  }
}

TEST(HopperScheduleTest, RowTilesHoldEveryRowOnceWhereverTheShortOneIs) {
  for (const int block_m : {128, 192, 256}) {
    for (const int seqlen_q : {1, 64, 127, 128, 191, 192, 193, 256, 512, 1000, 1024, 2048}) {
      for (const bool masks_right : {false, true}) {
        const int first = first_tile_row(seqlen_q, block_m, masks_right);
        const int m_blocks = (seqlen_q + block_m - 1) / block_m;
        EXPECT_TRUE(first <= 0 && first > -block_m) << seqlen_q;
        EXPECT_EQ(first % kWarpgroupRows, 0);
        EXPECT_GE(first + m_blocks * block_m, seqlen_q);
        // No tile is without a row.
        EXPECT_GT(first + block_m, 0);
        EXPECT_LT(first + (m_blocks - 1) * block_m, seqlen_q);
        if (masks_right && m_blocks > 1) {
          EXPECT_LT(first + m_blocks * block_m, seqlen_q + kWarpgroupRows);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilefold::layout
