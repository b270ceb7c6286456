// Masks: causal of both alignments and windows, against a dense mask and against each other.
#include "support.h"

namespace tilefold::test {
namespace {

class MasksTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryDType, MasksTest, ::testing::ValuesIn(kDTypes), dtype_suffix);

TEST_P(MasksTest, FourWordingsOfCausalGiveTheSameBits) {
  for (int64_t n : {1, 31, 64, 129, 200}) {
    Case causal = simple_case(GetParam(), 2, n, n, 32);
    causal.causal = TILEFOLD_CAUSAL_TOP_LEFT;
    Instance expected = make_instance(causal);
    ASSERT_TRUE(run_and_judge(expected));
    for (int64_t left : {n, n - 1, int64_t{-1}}) {
      Case c = simple_case(GetParam(), 2, n, n, 32);
      c.window_left = left;
      c.window_right = 0;
      Instance in = make_instance(c);
      ASSERT_EQ(forward(in), TILEFOLD_OK);
      EXPECT_TRUE(same_bits(in.o, expected.o)) << c.to_string();
      EXPECT_TRUE(same_bits(in.lse, expected.lse)) << c.to_string();
    }
    Case bottom_right = causal;
    bottom_right.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
    Instance in = make_instance(bottom_right);
    ASSERT_EQ(forward(in), TILEFOLD_OK);
    EXPECT_TRUE(same_bits(in.o, expected.o)) << bottom_right.to_string();
  }
}

TEST_P(MasksTest, AWindowOfZeroCopiesV) {
  for (int64_t n : {1, 65, 200}) {
    Case c = simple_case(GetParam(), 2, n, n, 32);
    c.window_left = c.window_right = 0;
    Instance in = make_instance(c);
    ASSERT_TRUE(run_and_judge(in));
    EXPECT_TRUE(same_bits(in.o, in.v));
  }
}

TEST_P(MasksTest, ALeftBoundAlone) {
  Case c = simple_case(GetParam(), 1, 33, 300, 32);
  c.window_left = 37;
  ASSERT_TRUE(run_and_judge(c));
  c.window_align = TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT;
  ASSERT_TRUE(run_and_judge(c));
}

TEST_P(MasksTest, AWindowWiderThanTheProblemIsNoWindow) {
  Case plain = simple_case(GetParam(), 1, 257, 257, 32);
  Instance expected = make_instance(plain);
  ASSERT_TRUE(run_and_judge(expected));
  for (int64_t window : {int64_t{511}, int64_t{257}, int64_t{256}, int64_t{1} << 40,
                         std::numeric_limits<int64_t>::max()}) {
    Case c = plain;
    c.window_left = c.window_right = window;
    Instance in = make_instance(c);
    ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
    EXPECT_TRUE(same_bits(in.o, expected.o)) << c.to_string();
  }
}

TEST_P(MasksTest, BothAlignmentsOnOblongProblems) {
  const int64_t pairs[][2] = {{2, 5}, {5, 2}, {3, 128}, {128, 3}, {130, 70}, {70, 130}};
  for (const auto& pair : pairs) {
    for (int causal : {TILEFOLD_CAUSAL_TOP_LEFT, TILEFOLD_CAUSAL_BOTTOM_RIGHT}) {
      for (int align : {0, 1, 2}) {
        for (int64_t left : {-1, 0, 3, 64}) {
          Case c = simple_case(GetParam(), 1, pair[0], pair[1], 16);
          c.causal = causal;
          c.window_align = align;
          c.window_left = left;
          ASSERT_TRUE(run_and_judge(c));
        }
      }
    }
  }
}

TEST_P(MasksTest, WindowsCombineWithCausalByAnd) {
  for (int64_t left : {0, 5, 70}) {
    for (int64_t right : {0, 5, 70}) {
      for (int causal : {0, 1, 2}) {
        Case c = simple_case(GetParam(), 1, 100, 140, 16);
        c.window_left = left;
        c.window_right = right;
        c.causal = causal;
        ASSERT_TRUE(run_and_judge(c));
      }
    }
  }
}

TEST(MaskSweepTest, EverySmallProblemWithEveryWindow) {
  for (int64_t nq : {1, 2, 7, 17, 33}) {
    for (int64_t nk : {1, 2, 7, 16, 33}) {
      for (int64_t left : {-1, 0, 1, 6, 15, 16, 17, 40}) {
        for (int64_t right : {-1, 0, 1, 6, 15, 16, 17, 40}) {
          for (int align : {1, 2}) {
            Case c = simple_case(DType::kFloat32, 1, nq, nk, 8);
            c.window_left = left;
            c.window_right = right;
            c.window_align = align;
            ASSERT_TRUE(run_and_judge(c));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilefold::test
