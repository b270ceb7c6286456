// Values on which online softmax goes wrong: large, negative, infinite, NaN.
#include <cmath>

#include "support.h"

namespace tilefold::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ValuesTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryDType, ValuesTest, ::testing::ValuesIn(kDTypes), dtype_suffix);

TEST_P(ValuesTest, AllLogitsNearMinus120) {
  for (int64_t nk = 97; nk <= 129; ++nk) {
    Case c = simple_case(GetParam(), 1, 65, nk, 64);
    c.values = Values::kNegative;
    ASSERT_TRUE(run_and_judge(c));
  }
}

TEST_P(ValuesTest, LogitsFarBelowZeroWithOneKeyHigher) {
  // q = e0, k = logit * e0: logits of -60000, one of -55000 (exact in bfloat16: multiples of 256).
  Case c = simple_case(GetParam(), 1, 5, 100, 16);
  c.has_scale = true;
  c.scale = 1.0f;
  Instance in = make_instance(c);
  in.q.fill([](auto n) { return n[3] == 0 ? 1.0f : 0.0f; });
  in.k.fill([](auto n) { return n[3] == 0 ? (n[2] == 61 ? -55296.0f : -60416.0f) : 0.0f; });
  ASSERT_TRUE(run_and_judge(in));
  for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(in.o.at(0, 0, 3, d), in.v.at(0, 0, 61, d));
  EXPECT_EQ(in.lse.at(0, 0, 3), -55296.0f);
}

TEST_P(ValuesTest, EqualLogitsFarBelowZeroShareTheWeight) {
  Case c = simple_case(GetParam(), 1, 3, 64, 16);
  c.has_scale = true;
  c.scale = 1.0f;
  Instance in = make_instance(c);
  in.q.fill([](auto n) { return n[3] == 0 ? 256.0f : 0.0f; });
  in.k.fill([](auto n) { return n[3] == 0 ? -32768.0f : 0.0f; });  // logits of -2^23
  in.v.fill([](auto n) { return n[2] % 2 == 0 ? 1.0f : 3.0f; });
  ASSERT_TRUE(run_and_judge(in));
  EXPECT_EQ(in.o.at(0, 0, 2, 7), 2.0f);
}

TEST_P(ValuesTest, OneKeyWhoseLogitIsMinus524288) {
  Case c = simple_case(GetParam(), 1, 4, 1, 16);
  c.has_scale = true;
  c.scale = 1.0f;
  Instance in = make_instance(c);
  in.q.fill([](auto n) { return n[3] == 0 ? 512.0f : 0.0f; });
  in.k.fill([](auto n) { return n[3] == 0 ? -1024.0f : 0.0f; });
  ASSERT_TRUE(run_and_judge(in));
  for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(in.o.at(0, 0, 2, d), in.v.at(0, 0, 0, d));
  EXPECT_EQ(in.lse.at(0, 0, 2), -524288.0f);
}

TEST_P(ValuesTest, LogitsBeyondTheLargestFloat16) {
  for (int causal : {0, 1, 2}) {
    Case c = simple_case(GetParam(), 2, 130, 130, 64);
    c.values = Values::kHugeLogits;
    c.causal = causal;
    c.has_scale = true;
    c.scale = 1.0f;
    ASSERT_TRUE(run_and_judge(c));
  }
}

TEST_P(ValuesTest, HugeFiniteLogitsOfBothSigns) {
  if (GetParam() == DType::kFloat16) GTEST_SKIP() << "float16 inputs cannot make such logits";
  // Logits of +-1e30: a finite stand-in for -infinity of that size would be beaten or would win.
  Case c = simple_case(GetParam(), 1, 3, 70, 16);
  c.has_scale = true;
  c.scale = 1.0f;
  Instance in = make_instance(c);
  in.q.fill([](auto n) { return n[3] == 0 ? 1e15f : 0.0f; });
  in.k.fill([](auto n) { return n[3] == 0 ? (n[2] == 5 ? -1e15f : -3e15f) : 0.0f; });
  ASSERT_TRUE(run_and_judge(in));
  EXPECT_EQ(in.o.at(0, 0, 1, 3), in.v.at(0, 0, 5, 3));
}

TEST_P(ValuesTest, AllNegativeLogitsUnderCausal) {
  for (int64_t n : {17, 64, 100, 129}) {
    Case c = simple_case(GetParam(), 1, n, n, 32);
    c.values = Values::kNegative;
    c.causal = TILEFOLD_CAUSAL_TOP_LEFT;
    ASSERT_TRUE(run_and_judge(c));
  }
}

TEST_P(ValuesTest, ANaNInOneKeyReachesExactlyTheRowsThatSeeIt) {
  for (int64_t bad : {0, 63, 64, 100}) {
    Case c = simple_case(GetParam(), 2, 130, 130, 32);
    c.causal = TILEFOLD_CAUSAL_TOP_LEFT;
    c.window_left = 40;
    Instance in = make_instance(c);
    in.k.put(kNaN, 0, 1, bad, 3);
    ASSERT_TRUE(run_and_judge(in)) << "NaN in key " << bad;
    for (int64_t i = 0; i < 130; ++i) {
      const bool sees = bad <= i && i - bad <= 40;
      EXPECT_EQ(std::isnan(in.o.at(0, 1, i, 0)), sees) << "row " << i << ", NaN in key " << bad;
      EXPECT_FALSE(std::isnan(in.o.at(0, 0, i, 0)));
    }
  }
}

TEST_P(ValuesTest, ANaNInAQueryReachesItsRowAlone) {
  Case c = simple_case(GetParam(), 1, 70, 90, 32);
  Instance in = make_instance(c);
  in.q.put(kNaN, 0, 0, 33, 31);
  ASSERT_TRUE(run_and_judge(in));
  for (int64_t i = 0; i < 70; ++i) EXPECT_EQ(std::isnan(in.o.at(0, 0, i, 31)), i == 33);
}

TEST_P(ValuesTest, ANaNInVReachesItsColumnOfTheRowsThatSeeIt) {
  Case c = simple_case(GetParam(), 1, 70, 70, 32);
  c.causal = TILEFOLD_CAUSAL_TOP_LEFT;
  Instance in = make_instance(c);
  in.v.put(kNaN, 0, 0, 50, 7);
  ASSERT_TRUE(run_and_judge(in));
  EXPECT_FALSE(std::isnan(in.o.at(0, 0, 49, 7)));
  EXPECT_TRUE(std::isnan(in.o.at(0, 0, 50, 7)));
  EXPECT_FALSE(std::isnan(in.o.at(0, 0, 50, 6)));
}

TEST_P(ValuesTest, ANaNInsideAnUnmaskedProblemReachesEveryRow) {
  Case c = simple_case(GetParam(), 1, 40, 300, 32);
  Instance in = make_instance(c);
  in.k.put(kNaN, 0, 0, 299, 0);
  ASSERT_TRUE(run_and_judge(in));
}

// The guards of every HostTensor are NaN: here they are zeros once, NaN once.
TEST_P(ValuesTest, NaNPastTheLastRowChangesNoBit) {
  for (int64_t nk : {1, 15, 33, 65, 127, 200}) {
    Case c = simple_case(GetParam(), 2, 66, nk, 24);
    Instance poisoned = make_instance(c);
    Instance zeros = make_instance(c);
    for (HostTensor* tensor : {&zeros.q, &zeros.k, &zeros.v}) {
      std::fill(tensor->memory().begin(), tensor->memory().end(), std::byte{0});
    }
    zeros.q.fill([&](auto n) { return poisoned.q.get(n); });
    zeros.k.fill([&](auto n) { return poisoned.k.get(n); });
    zeros.v.fill([&](auto n) { return poisoned.v.get(n); });
    ASSERT_EQ(forward(poisoned), TILEFOLD_OK) << tilefold_last_error();
    ASSERT_EQ(forward(zeros), TILEFOLD_OK) << tilefold_last_error();
    EXPECT_TRUE(same_bits(poisoned.o, zeros.o)) << "Nk = " << nk;
    EXPECT_TRUE(same_bits(poisoned.lse, zeros.lse)) << "Nk = " << nk;
  }
}

TEST_P(ValuesTest, InfinityInVAtAMaskedPositionDoesNotReachTheRow) {
  Case c = simple_case(GetParam(), 1, 100, 100, 32);
  c.causal = TILEFOLD_CAUSAL_TOP_LEFT;
  Instance in = make_instance(c);
  for (int64_t d = 0; d < 32; ++d) in.v.put(kInfinity, 0, 0, 70, d);
  ASSERT_TRUE(run_and_judge(in));
  EXPECT_TRUE(std::isfinite(in.o.at(0, 0, 69, 0)));
  EXPECT_FALSE(std::isfinite(in.o.at(0, 0, 70, 0)));
}

TEST_P(ValuesTest, InfinityInKAtAMaskedPositionDoesNotReachTheRow) {
  Case c = simple_case(GetParam(), 1, 100, 100, 32);
  c.causal = TILEFOLD_CAUSAL_TOP_LEFT;
  Instance in = make_instance(c);
  in.k.put(kInfinity, 0, 0, 70, 3);
  ASSERT_EQ(forward(in), TILEFOLD_OK);
  for (int64_t i = 0; i < 70; ++i) ASSERT_TRUE(std::isfinite(in.o.at(0, 0, i, 0))) << i;
}

TEST_P(ValuesTest, APlusInfinityLogitGivesNaN) {
  Case c = simple_case(GetParam(), 1, 8, 40, 16);
  Instance in = make_instance(c);
  in.q.fill(1.0f);
  in.k.put(kInfinity, 0, 0, 11, 0);
  ASSERT_EQ(forward(in), TILEFOLD_OK);
  for (int64_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(in.o.at(0, 0, i, 2))) << i;
}

TEST_P(ValuesTest, AMinusInfinityLogitHasNoWeight) {
  Case c = simple_case(GetParam(), 1, 8, 40, 16);
  Instance in = make_instance(c);
  in.q.fill(1.0f);
  for (int64_t j = 0; j < 39; ++j) in.k.put(-kInfinity, 0, 0, j, 0);
  ASSERT_TRUE(run_and_judge(in));
  EXPECT_EQ(in.o.at(0, 0, 4, 9), in.v.at(0, 0, 39, 9));
}

TEST_P(ValuesTest, OnlyMinusInfinityLogitsGiveNaNAndMinusInfinity) {
  for (int64_t nk : {1, 16, 70, 200}) {
    Case c = simple_case(GetParam(), 1, 8, nk, 16);
    Instance in = make_instance(c);
    in.q.fill(1.0f);
    in.k.fill([](auto n) { return n[3] == 0 ? -kInfinity : 0.5f; });
    ASSERT_TRUE(run_and_judge(in)) << "Nk = " << nk;
    EXPECT_TRUE(std::isnan(in.o.at(0, 0, 0, 0)));
    EXPECT_EQ(in.lse.at(0, 0, 0), -kInfinity);
  }
}

TEST_P(ValuesTest, EveryScale) {
  for (float scale : {1.0f, 0.125f, 0.1147f, 0.0f, -0.3f, -1.0f, 1e-40f, 1e-30f, 3e38f, -3e38f}) {
    for (int causal : {0, 1}) {
      Case c = simple_case(GetParam(), 1, 70, 90, 64);
      c.has_scale = true;
      c.scale = scale;
      c.causal = causal;
      if (std::fabs(scale) > 1e30f) {
        // Keeps the logits finite: one product of 2^-60 * 2^-60 * 3e38 (not in float16, which has
        // no such numbers).
        if (GetParam() == DType::kFloat16) continue;
        Instance in = make_instance(c);
        in.q.fill([](auto n) { return n[3] == 0 ? 0x1p-60f * (1 + n[2] % 3) : 0.0f; });
        in.k.fill([](auto n) { return n[3] == 0 ? 0x1p-60f * (n[2] % 5 - 2) : 0.0f; });
        ASSERT_TRUE(run_and_judge(in)) << c.to_string();
        continue;
      }
      ASSERT_TRUE(run_and_judge(c));
    }
  }
}

TEST_P(ValuesTest, ScaleZeroIsAMeanWhateverTheLogits) {
  Case c = simple_case(GetParam(), 1, 5, 64, 16);
  c.has_scale = true;
  c.scale = 0.0f;
  Instance in = make_instance(c);
  in.v.fill([](auto n) { return n[2] % 2 == 0 ? 1.0f : 2.0f; });
  ASSERT_TRUE(run_and_judge(in));
  EXPECT_EQ(in.o.at(0, 0, 3, 3), 1.5f);
}

TEST_P(ValuesTest, ZeroQueriesGiveTheMeanOfVisibleValues) {
  for (int causal : {0, 1, 2}) {
    Case c = simple_case(GetParam(), 1, 90, 70, 64);
    c.values = Values::kZeroQueries;
    c.causal = causal;
    ASSERT_TRUE(run_and_judge(c));
  }
}

TEST_P(ValuesTest, ValuesOfOneGiveOne) {
  for (int64_t n : {1, 40, 129, 700}) {
    Case c = simple_case(GetParam(), 1, 33, n, 64);
    Instance in = make_instance(c);
    in.v.fill(1.0f);
    ASSERT_TRUE(run_and_judge(in));
    const double u = reference::unit_roundoff(GetParam());
    for (int64_t i = 0; i < 33; ++i) EXPECT_NEAR(in.o.at(0, 0, i, 5), 1.0, 8 * u);
  }
}

TEST_P(ValuesTest, OneHotValuesGiveTheProbabilities) {
  Case c = simple_case(GetParam(), 1, 50, 64, 32);
  c.head_dim_v = 64;
  c.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
  Instance in = make_instance(c);
  in.v.fill([](auto n) { return n[2] == n[3] ? 1.0f : 0.0f; });
  ASSERT_TRUE(run_and_judge(in));
  for (int64_t i = 0; i < 50; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < 64; ++j) {
      const float p = in.o.at(0, 0, i, j);
      sum += p;
      if (j > i + 14) {
        EXPECT_EQ(p, 0.0f) << "row " << i << " key " << j;
      }
    }
    EXPECT_NEAR(sum, 1.0, 64 * reference::unit_roundoff(GetParam()));
  }
}

TEST_P(ValuesTest, EveryDistribution) {
  for (int values = 0; values <= static_cast<int>(Values::kOffset); ++values) {
    Case c = simple_case(GetParam(), 2, 140, 200, 64);
    c.values = static_cast<Values>(values);
    ASSERT_TRUE(run_and_judge(c));
  }
}

// A rising row maximum in every tile: each tile rescales what came before.
TEST_P(ValuesTest, AMaximumThatRisesWithEveryKey) {
  Case c = simple_case(GetParam(), 1, 9, 1000, 16);
  c.has_scale = true;
  c.scale = 1.0f;
  Instance in = make_instance(c);
  in.q.fill([](auto n) { return n[3] == 0 ? 1.0f : 0.0f; });
  in.k.fill([](auto n) { return n[3] == 0 ? static_cast<float>(n[2]) / 8 : 0.0f; });
  ASSERT_TRUE(run_and_judge(in));
}

// Subnormal inputs stay what they are: no flush to zero may change the answer.
TEST_P(ValuesTest, SubnormalValuesSurvive) {
  Case c = simple_case(GetParam(), 1, 3, 1, 16);
  Instance in = make_instance(c);
  const float tiny = GetParam() == DType::kFloat16 ? 0x1p-24f : 0x1p-130f;
  in.v.fill(tiny);
  ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_EQ(in.o.at(0, 0, 1, 1), tiny);
}

}  // namespace
}  // namespace tilefold::test
