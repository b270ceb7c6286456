// Causal masks and windows of every GPU row against the float64 reference.
#include <vector>

#include "gpu_test.h"

namespace tilefold::gpu_test {
namespace {

class MaskTest : public RowTest {};
TILEFOLD_GPU_ROWS(MaskTest);

Case windowed(Case c, int64_t left, int64_t right, int align = TILEFOLD_WINDOW_ALIGN_AUTO) {
  c.window_left = left;
  c.window_right = right;
  c.window_align = align;
  return c;
}

TEST_P(MaskTest, FourWaysToSayCausalAreEqualBitForBit) {
  for (const int64_t queries : {96, 257}) {
    const int64_t n = queries_if_served(queries);
    const Case none = base_case(GetParam(), n, n);
    Case causal = none;
    causal.causal = TILEFOLD_CAUSAL_TOP_LEFT;
    const Case same[] = {causal, windowed(none, n, 0), windowed(none, n - 1, 0),
                         windowed(none, -1, 0)};
    Instance first = reference::make_instance(same[0]);
    if (!check(&first, same[0].to_string())) continue;
    for (const Case& c : same) {
      Instance instance = reference::make_instance(c);
      if (!run(&instance, c.to_string())) continue;
      EXPECT_TRUE(reference::same_bits(first.o, instance.o)) << c.to_string();
      EXPECT_TRUE(reference::same_bits(first.lse, instance.lse)) << c.to_string();
    }
  }
}

TEST_P(MaskTest, ZeroWindowGivesTheValues) {
  const int64_t n = queries_if_served(150);
  const Case c = windowed(base_case(GetParam(), n, n), 0, 0);
  Instance instance = reference::make_instance(c);
  if (!check(&instance, c.to_string())) return;
  for (int64_t i = 0; i < c.seqlen_q; ++i) {
    ASSERT_EQ(instance.v.at(0, 0, i, 3), instance.o.at(0, 1, i, 3)) << "row " << i;
  }
}

TEST_P(MaskTest, WindowsThatReachFar) {
  check(windowed(base_case(GetParam(), 33, 300), 37, -1));
  check(windowed(base_case(GetParam(), 257, 257), 511, -1));
  check(windowed(base_case(GetParam(), 257, 257), 511, 511));
  check(windowed(base_case(GetParam(), 257, 257, 1), int64_t{1} << 62, int64_t{1} << 62));
}

TEST_P(MaskTest, WindowThatLeavesRowsWithoutAKey) {
  for (const int empty : {0, 1}) {
    Case c = windowed(served_case(300, 40), 8, 4);
    c.empty_row_lse = empty;
    check(c);
  }
}

TEST_P(MaskTest, BottomRightWithMoreQueriesThanKeys) {
  for (const auto& [nq, nk] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 2}, {5, 2}, {128, 3}, {200, 70}, {300, 1}}) {
    for (const int empty : {0, 1}) {
      Case c = base_case(GetParam(), nq, nk, TILEFOLD_CAUSAL_BOTTOM_RIGHT);
      c.empty_row_lse = empty;
      check(c);
    }
  }
}

TEST_P(MaskTest, BothAlignmentsOnUnequalLengths) {
  for (const auto& [nq, nk] : std::vector<std::pair<int64_t, int64_t>>{
           {2, 5}, {5, 2}, {3, 128}, {128, 3}, {130, 257}, {257, 130}, {1, 500}}) {
    for (const int causal : {1, 2}) check(base_case(GetParam(), nq, nk, causal));
  }
}

TEST_P(MaskTest, WindowsOfEverySizeAroundTheTile) {
  constexpr int64_t kAnyBlock = 64;
  const int64_t n = GetParam().block_n > 0 ? GetParam().block_n : kAnyBlock;
  int turn = 0;
  for (const int64_t left : {int64_t{-1}, int64_t{0}, int64_t{1}, n / 2, n - 1, n, n + 1, 2 * n}) {
    for (const int64_t right : {int64_t{-1}, int64_t{0}, int64_t{5}, n - 1, n, 2 * n + 3}) {
      const int causal = turn % 3;
      const int align = turn / 3 % 3;
      const int64_t nk = turn % 2 == 0 ? 290 : 170;
      check(windowed(served_case(210, nk, causal), left, right, align));
      ++turn;
    }
  }
}

}  // namespace
}  // namespace tilefold::gpu_test
