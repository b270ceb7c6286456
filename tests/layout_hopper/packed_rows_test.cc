// Packed rows: every query of every head of a group once, in boxes that end with it.
#include "layout/packed_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <utility>

#include "layout/hopper.h"

namespace tilefold::layout {
namespace {

constexpr int kMostQueries = kWarpgroupRows;

template <class Check>
void for_each_shape(const Check& check) {
  for (int heads = 1; heads <= 70; ++heads) {
    for (int queries = 1; queries <= kMostQueries; ++queries) check(heads, queries);
  }
}

TEST(PackedRowsTest, AHeadTakesThePowerOfTwoAtOrAboveItsQueries) {
  for_each_shape([](int heads, int queries) {
    const PackedRows packed(heads, queries);
    ASSERT_EQ(packed.rows_of_head(),
              static_cast<int>(std::bit_ceil(static_cast<unsigned>(queries))));
    ASSERT_EQ(packed.rows(), int64_t{heads} * packed.rows_of_head());
  });
}

TEST(PackedRowsTest, EveryQueryOfEveryHeadHasOneRow) {
  for_each_shape([](int heads, int queries) {
    const PackedRows packed(heads, queries);
    std::set<std::pair<int, int>> seen;
    // A tile may reach past the last row.
    for (int row = 0; row < packed.rows() + 4 * kWarpgroupRows; ++row) {
      if (!packed.exists(row)) continue;
      const int head = packed.head(row);
      const int query = packed.query(row);
      ASSERT_TRUE(head >= 0 && head < heads && query >= 0 && query < queries);
      ASSERT_LT(row, packed.rows());
      ASSERT_TRUE(seen.insert({head, query}).second);
    }
    ASSERT_EQ(seen.size(), static_cast<size_t>(heads) * queries);
  });
}

// What TMA makes of the box {64 columns, rows_of_head rows, 64 / rows_of_head heads} at the head of
// a warpgroup's first row.
TEST(PackedRowsTest, AWarpgroupsRowsAreABoxOfWholeHeads) {
  for_each_shape([](int heads, int queries) {
    const PackedRows packed(heads, queries);
    const int box_rows = packed.rows_of_head();
    const int box_heads = kWarpgroupRows / box_rows;
    ASSERT_EQ(box_rows * box_heads, kWarpgroupRows);
    for (int first = 0; first < packed.rows() + kWarpgroupRows; first += kWarpgroupRows) {
      ASSERT_EQ(packed.query(first), 0);
      for (int row = 0; row < kWarpgroupRows; ++row) {
        const int head = packed.head(first) + row / box_rows;
        const int query = row % box_rows;
        ASSERT_EQ(packed.head(first + row), head);
        ASSERT_EQ(packed.query(first + row), query);
        // The box keeps what lies in the group's heads and in the tensor's rows.
        ASSERT_EQ(packed.exists(first + row), head < heads && query < queries);
      }
    }
  });
}

}  // namespace
}  // namespace tilefold::layout
