// Empty and short problems: every length, and rows that see no key.
#include "support.h"

namespace tilefold::test {
namespace {

class LengthsTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryDType, LengthsTest, ::testing::ValuesIn(kDTypes), dtype_suffix);

TEST_P(LengthsTest, NoKeysGiveZeroAndTheEmptyRowLse) {
  for (int causal :
       {TILEFOLD_CAUSAL_NONE, TILEFOLD_CAUSAL_TOP_LEFT, TILEFOLD_CAUSAL_BOTTOM_RIGHT}) {
    for (int empty :
         {TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY, TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY}) {
      Case c = simple_case(GetParam(), 2, 70, 0, 64);
      c.causal = causal;
      c.empty_row_lse = empty;
      Instance in = make_instance(c);
      ASSERT_TRUE(run_and_judge(in)) << c.to_string();
      EXPECT_EQ(in.o.at(0, 1, 69, 63), 0.0f);
      EXPECT_EQ(in.lse.at(0, 0, 0), empty == TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY
                                        ? std::numeric_limits<float>::infinity()
                                        : -std::numeric_limits<float>::infinity());
    }
  }
}

TEST_P(LengthsTest, NoKeysNeedNoMemoryOfKAndV) {
  Case c = simple_case(GetParam(), 2, 5, 0, 16);
  Instance in = make_instance(c);
  in.k.dl()->data = nullptr;
  in.v.dl()->data = nullptr;
  ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_EQ(in.o.at(0, 1, 4, 15), 0.0f);
}

TEST_P(LengthsTest, NoQueriesNoBatchNoHeadsWriteNothing) {
  for (int which = 0; which < 3; ++which) {
    Case c = simple_case(GetParam(), 2, 5, 7, 16);
    if (which == 0) c.seqlen_q = 0;
    if (which == 1) c.batch = 0;
    if (which == 2) c.heads = c.heads_kv = 0;
    Instance in = make_instance(c);
    ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
    EXPECT_TRUE(in.o.untouched());
    EXPECT_TRUE(in.lse.untouched());
  }
}

TEST_P(LengthsTest, NoQueryHeadsOverSomeKeyHeadsIsLegal) {
  Case c = simple_case(GetParam(), 2, 5, 7, 16);
  c.heads = 0;
  Instance in = make_instance(c);
  EXPECT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
}

TEST_P(LengthsTest, BottomRightWithMoreQueriesThanKeysLeavesTheFirstRowsEmpty) {
  Case c = simple_case(GetParam(), 8, 3, 2, 64);
  c.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
  Instance in = make_instance(c);
  ASSERT_TRUE(run_and_judge(in));
  EXPECT_EQ(in.o.at(0, 7, 0, 5), 0.0f);
  EXPECT_EQ(in.lse.at(0, 7, 0), std::numeric_limits<float>::infinity());
  // Row 1 sees key 0 alone.
  EXPECT_EQ(in.o.at(0, 7, 1, 5), in.v.at(0, 7, 0, 5));
}

TEST_P(LengthsTest, AWindowMayLeaveRowsWithoutAKey) {
  Case c = simple_case(GetParam(), 2, 300, 40, 64);
  c.window_left = 8;
  c.window_right = 4;
  for (int empty : {0, 1}) {
    c.empty_row_lse = empty;
    Instance in = make_instance(c);
    ASSERT_TRUE(run_and_judge(in));
    EXPECT_EQ(in.o.at(0, 1, 48, 0), 0.0f);  // the first row whose window lies beyond key 39
    EXPECT_NE(in.o.at(0, 1, 47, 0), 0.0f);
  }
}

TEST_P(LengthsTest, EveryLengthToAHundredAndThirty) {
  for (int64_t n = 1; n <= 130; ++n) {
    const int64_t pairs[][2] = {{n, n}, {n, 130}, {130, n}, {1, n}, {n, 1}, {n, 65}, {64, n}};
    for (const auto& pair : pairs) {
      Case c = simple_case(GetParam(), 1, pair[0], pair[1], 16);
      c.causal = static_cast<int>((pair[0] + pair[1]) % 3);
      ASSERT_TRUE(run_and_judge(c));
    }
  }
}

TEST_P(LengthsTest, LengthsAroundLargerTiles) {
  for (int64_t n : {255, 256, 257, 1023, 1025}) {
    for (int causal : {0, 1, 2}) {
      for (int64_t nk : {n, int64_t{129}}) {
        Case c = simple_case(GetParam(), 1, n, nk, 32);
        c.causal = causal;
        ASSERT_TRUE(run_and_judge(c));
      }
      Case c = simple_case(GetParam(), 1, 63, n, 32);
      c.causal = causal;
      ASSERT_TRUE(run_and_judge(c));
    }
  }
}

TEST_P(LengthsTest, OneQueryUnderTopLeftSeesKeyZeroAlone) {
  Case c = simple_case(GetParam(), 2, 1, 77, 64);
  c.causal = TILEFOLD_CAUSAL_TOP_LEFT;
  Instance in = make_instance(c);
  ASSERT_TRUE(run_and_judge(in));
  for (int64_t d = 0; d < 64; ++d) EXPECT_EQ(in.o.at(0, 1, 0, d), in.v.at(0, 1, 0, d));
}

TEST_P(LengthsTest, OneQueryUnderBottomRightSeesEveryKey) {
  Case c = simple_case(GetParam(), 2, 1, 77, 64);
  Case causal = c;
  causal.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
  Instance a = make_instance(c);
  Instance b = make_instance(causal);
  ASSERT_TRUE(run_and_judge(a));
  ASSERT_TRUE(run_and_judge(b));
  EXPECT_TRUE(same_bits(a.o, b.o));
}

}  // namespace
}  // namespace tilefold::test
