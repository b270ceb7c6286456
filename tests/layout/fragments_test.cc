// The fragment maps of mma.m16n8k16 and ldmatrix.
#include "layout/fragments.h"
#include "layout/ldmatrix_narrow.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

namespace tilefold::layout {
namespace {

TEST(FragmentTest, EveryElementOfAIsHeldOnce) {
  std::set<std::pair<int, int>> seen;
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int half = 0; half < 2; ++half) {
        const Coord c = mma_m16n8k16_a(lane, reg, half);
        ASSERT_TRUE(c.row >= 0 && c.row < 16 && c.column >= 0 && c.column < 16);
        EXPECT_TRUE(seen.insert({c.row, c.column}).second);
      }
    }
  }
  EXPECT_EQ(seen.size(), 256u);
}

TEST(FragmentTest, EveryElementOfBIsHeldOnce) {
  std::set<std::pair<int, int>> seen;
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 2; ++reg) {
      for (int half = 0; half < 2; ++half) {
        const Coord c = mma_m16n8k16_b(lane, reg, half);
        ASSERT_TRUE(c.row >= 0 && c.row < 16 && c.column >= 0 && c.column < 8);
        EXPECT_TRUE(seen.insert({c.row, c.column}).second);
      }
    }
  }
  EXPECT_EQ(seen.size(), 128u);
}

TEST(FragmentTest, EveryElementOfTheAccumulatorIsHeldOnceAndARowByOneQuad) {
  std::set<std::pair<int, int>> seen;
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      const Coord c = mma_m16n8k16_c(lane, reg);
      ASSERT_TRUE(c.row >= 0 && c.row < 16 && c.column >= 0 && c.column < 8);
      EXPECT_EQ(c.row % 8, lane / 4);
      EXPECT_TRUE(seen.insert({c.row, c.column}).second);
    }
  }
  EXPECT_EQ(seen.size(), 128u);
}

// P = softmax(S) goes from accumulator to operand without leaving the lane.
TEST(FragmentTest, TwoAccumulatorsAreOneAOperand) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int half = 0; half < 2; ++half) {
        const Coord a = mma_m16n8k16_a(lane, reg, half);
        const int block = reg / 2;  // which of the two n8 accumulators
        Coord c = mma_m16n8k16_c(lane, 2 * (reg % 2) + half);
        c.column += 8 * block;
        EXPECT_EQ(a, c);
      }
    }
  }
}

// What lane `lane` receives in register `reg` of an .x4 load whose addresses are those of `map`
// over a row-major [16, 16] block: matrix i consists of the rows that lanes 8 i .. 8 i + 7 point
// to.
template <typename Map>
Coord loaded(const Map& map, bool trans, int lane, int reg, int half) {
  const Coord inside = trans ? ldmatrix_trans_element(lane, half) : ldmatrix_element(lane, half);
  const Coord address = map(8 * reg + inside.row);
  return {address.row, address.column * 8 + inside.column};
}

TEST(FragmentTest, LdmatrixOfQGivesTheAOperand) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int half = 0; half < 2; ++half) {
        EXPECT_EQ(loaded(ldmatrix_x4_a, false, lane, reg, half), mma_m16n8k16_a(lane, reg, half));
      }
    }
  }
}

// K is stored [key, column]; B of S = Q K^T is [column, key].
TEST(FragmentTest, LdmatrixOfKGivesTheBOperandsOfTwoBlocksOfKeys) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int half = 0; half < 2; ++half) {
        const Coord b = mma_m16n8k16_b(lane, reg % 2, half);
        const Coord expected = {b.column + 8 * (reg / 2), b.row};
        EXPECT_EQ(loaded(ldmatrix_x4_b, false, lane, reg, half), expected);
      }
    }
  }
}

// V is stored [key, column], as B of O += P V wants it; .trans gives each lane two keys of a
// column.
TEST(FragmentTest, LdmatrixTransOfVGivesTheBOperandsOfTwoBlocksOfColumns) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int half = 0; half < 2; ++half) {
        const Coord b = mma_m16n8k16_b(lane, reg % 2, half);
        const Coord expected = {b.row, b.column + 8 * (reg / 2)};
        EXPECT_EQ(loaded(ldmatrix_x4_b_trans, true, lane, reg, half), expected);
      }
    }
  }
}

TEST(FragmentTest, NarrowLdmatrixGivesTheBOperandOfOneBlock) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int half = 0; half < 2; ++half) {
      EXPECT_EQ(loaded(ldmatrix_x1_rows, false, lane, 0, half), ldmatrix_element(lane, half));
      EXPECT_EQ(loaded(ldmatrix_x1_rows, true, lane, 0, half), ldmatrix_trans_element(lane, half));
      for (int reg = 0; reg < 2; ++reg) {
        const Coord b = mma_m16n8k16_b(lane, reg, half);
        EXPECT_EQ(loaded(ldmatrix_x2_b, false, lane, reg, half), (Coord{b.column, b.row}));
        EXPECT_EQ(loaded(ldmatrix_x2_b_trans, true, lane, reg, half), b);
      }
    }
  }
}

// All lanes point into the block, those beyond the first eight or sixteen too.
TEST(FragmentTest, NarrowLdmatrixPointsIntoItsBlock) {
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_LT(ldmatrix_x1_rows(lane).row, 8);
    EXPECT_EQ(ldmatrix_x1_rows(lane).column, 0);
    EXPECT_LT(ldmatrix_x2_b(lane).row, 8);
    EXPECT_LT(ldmatrix_x2_b(lane).column, 2);
    EXPECT_LT(ldmatrix_x2_b_trans(lane).row, 16);
    EXPECT_EQ(ldmatrix_x2_b_trans(lane).column, 0);
  }
}

}  // namespace
}  // namespace tilefold::layout
