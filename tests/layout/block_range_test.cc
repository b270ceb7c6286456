// Block ranges against a dense mask, splits of them, and the order of tiles.
#include "layout/block_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "layout/schedule.h"

namespace tilefold::layout {
namespace {

// Calls check(mask, rows, row_begin, row_end, block_keys) for every small problem, every pair of
// diagonals that validation can produce, and runs of rows as tiles and warps cut them.
template <typename Check>
void for_every_small_problem(const Check& check) {
  constexpr int kMost = 11;
  for (int nq = 1; nq <= kMost; ++nq) {
    for (int nk = 0; nk <= kMost; ++nk) {
      for (int left = -nq; left <= nk; ++left) {
        for (int right = -nq; right <= nk; ++right) {
          const Mask mask = {nk, left, right};
          for (int rows : {1, 2, 4}) {
            for (int begin = 0; begin < nq + rows; begin += rows) {
              for (int block_keys : {1, 2, 4}) {
                check(mask, begin, std::min(begin + rows, nq), block_keys);
              }
            }
          }
        }
      }
    }
  }
}

TEST(MaskTest, IsTheTwoDiagonals) {
  const Mask mask = {7, -2, 1};
  for (int row = 0; row < 12; ++row) {
    bool any = false;
    for (int key = 0; key < 7; ++key) {
      const bool expected = row - 2 <= key && key <= row + 1;
      EXPECT_EQ(mask.sees(row, key), expected) << row << ", " << key;
      any = any || expected;
    }
    EXPECT_EQ(mask.row_is_empty(row), !any) << row;
  }
}

TEST(BlockRangeTest, MatchesDenseMask) {
  int64_t wrong = 0;
  for_every_small_problem([&](const Mask& mask, int begin, int end, int block_keys) {
    const BlockRange range = block_range(mask, begin, end, block_keys);
    const int blocks = (mask.seqlen_k + block_keys - 1) / block_keys;
    for (int block = -1; block <= blocks; ++block) {
      bool some = false;
      bool all = true;
      for (int key = block * block_keys; key < (block + 1) * block_keys; ++key) {
        for (int row = begin; row < end; ++row) {
          const bool sees = key >= 0 && key < mask.seqlen_k && row + mask.diagonal_left <= key &&
                            key <= row + mask.diagonal_right;
          some = some || sees;
          all = all && sees;
        }
      }
      // Visited exactly when some pair is visible; unmasked exactly when all are.
      if (range.visits(block) != some) ++wrong;
      if (range.visits(block) && range.masks(block) == all) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(BlockRangeTest, StaysInInt32AtTheLargestSizes) {
  const int32_t most = 1 << 29;
  const Mask mask = {most, -most, most};
  const BlockRange range = block_range(mask, most - 128, most, 64);
  EXPECT_EQ(range.begin, 0);
  EXPECT_EQ(range.end, most / 64);
  EXPECT_EQ(range.full_begin, 0);
  EXPECT_EQ(range.full_end, most / 64);
}

TEST(SplitTest, PartsAreDisjointAndTheirUnionIsTheRange) {
  for (int begin = 0; begin < 5; ++begin) {
    for (int length = 0; length < 20; ++length) {
      BlockRange range;
      range.begin = begin;
      range.end = begin + length;
      for (int splits = 1; splits <= 8; ++splits) {
        std::vector<int> visits(begin + length + 2, 0);
        for (int split = 0; split < splits; ++split) {
          const BlockRange part = split_of(range, split, splits);
          for (int block = part.begin; block < part.end; ++block) ++visits[block];
        }
        for (int block = 0; block < begin + length + 2; ++block) {
          EXPECT_EQ(visits[block], range.visits(block) ? 1 : 0);
        }
      }
    }
  }
}

TEST(ScheduleTest, EveryTileIsComputedOnce) {
  for (const TileGrid grid :
       {TileGrid{5, 7, 1}, TileGrid{1, 9, 1}, TileGrid{3, 1, 4}, TileGrid{2, 3, 5},
        TileGrid{65537, 2, 1}, TileGrid{12, 5, 1, 4}, TileGrid{13, 5, 1, 4}, TileGrid{13, 1, 1, 1},
        TileGrid{7, 3, 2, 5}, TileGrid{6, 2, 3, 7}}) {
    const uint32_t ctas =
        static_cast<uint32_t>(grid.num_batch_heads) * grid.num_m_blocks * grid.num_splits;
    std::set<std::tuple<int, int, int>> seen;
    for (uint32_t cta = 0; cta < ctas; ++cta) {
      const TileCoord tile = tile_of(grid, cta);
      ASSERT_TRUE(tile.batch_head >= 0 && tile.batch_head < grid.num_batch_heads);
      ASSERT_TRUE(tile.m_block >= 0 && tile.m_block < grid.num_m_blocks);
      ASSERT_TRUE(tile.split >= 0 && tile.split < grid.num_splits);
      EXPECT_TRUE(seen.insert({tile.batch_head, tile.m_block, tile.split}).second);
    }
    EXPECT_EQ(seen.size(), ctas);
  }
}

TEST(ScheduleTest, LongestTilesComeFirstUnderACausalMask) {
  const TileGrid grid = {3, 16, 1};
  const Mask mask = {16 * 128, -16 * 128, 0};
  int longest = 1 << 30;
  for (uint32_t cta = 0; cta < 48; ++cta) {
    const TileCoord tile = tile_of(grid, cta);
    const BlockRange range = block_range(mask, tile.m_block * 128, (tile.m_block + 1) * 128, 64);
    EXPECT_LE(range.end - range.begin, longest);
    longest = range.end - range.begin;
  }
}

// Sections of heads follow one another, each with its longest tiles first.
TEST(ScheduleTest, SectionsComeOneAfterAnother) {
  const TileGrid grid = {11, 3, 1, 4};
  std::vector<std::pair<int, int>> order;
  for (uint32_t cta = 0; cta < 33; ++cta) {
    const TileCoord tile = tile_of(grid, cta);
    order.push_back({tile.batch_head, tile.m_block});
  }
  std::vector<std::pair<int, int>> expected;
  for (const auto& [first, end] : {std::pair{0, 4}, {4, 8}, {8, 11}}) {
    for (int m_block = 2; m_block >= 0; --m_block) {
      for (int head = first; head < end; ++head) expected.push_back({head, m_block});
    }
  }
  EXPECT_EQ(order, expected);
}

TEST(ScheduleTest, SectionsHoldKAndVThatFitL2) {
  constexpr int64_t kMiB = 1 << 20;
  // 256 heads of half a MiB on 132 multiprocessors; many tiles of few heads share anyway.
  EXPECT_EQ(section_heads(256, 256, kMiB / 2, 132), 32);
  EXPECT_EQ(section_heads(8, 8, 16 * kMiB, 132), 8);
  // All fit.
  EXPECT_EQ(section_heads(256, 256, kMiB / 16, 132), 256);
  // Grouped: 256 query heads on 64 K/V heads.
  EXPECT_EQ(section_heads(256, 64, kMiB, 132), 64);
  // A head larger than a section is a section.
  EXPECT_EQ(section_heads(100, 100, 40 * kMiB, 132), 1);
  // Sections of nearly one size.
  EXPECT_EQ(section_heads(67, 67, kMiB / 2, 132), 23);
  EXPECT_EQ(section_heads(0, 0, kMiB, 132), 0);
}

TEST(ScheduleTest, ReachesTheLastCtaOfAnAxis) {
  const TileGrid grid = {(1 << 30), 1, 1};
  const TileCoord tile = tile_of(grid, (1u << 30) - 1);
  EXPECT_EQ(tile.batch_head, (1 << 30) - 1);
  EXPECT_EQ(tile.m_block, 0);
}

}  // namespace
}  // namespace tilefold::layout
