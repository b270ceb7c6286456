// Every SIMD target that this processor runs, against the float64 reference.
#include <cmath>
#include <limits>

#include "emulated_amx.h"
#include "support.h"

namespace tilefold::cpu_test {
namespace {

using reference::Case;
using reference::DType;

// The compiled targets, and after them the emulated one.
const cpu::ForwardTarget& target_at(int index) {
  return index < cpu::num_forward_targets() ? cpu::forward_target(index) : *emulated_amx_target();
}

class CpuTargetTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const cpu::ForwardTarget& target = target_at(GetParam());
    if (!target.supported()) {
      GTEST_SKIP() << "this processor does not run " << target.name;
    }
    cpu::force_target(&target);
  }
  void TearDown() override { cpu::force_target(nullptr); }

  // Baselines that are not vectors at all, and emulations, get fewer cases.
  bool slow() const { return GetParam() + 2 >= cpu::num_forward_targets() + 1; }
};

TEST_P(CpuTargetTest, RandomCases) {
  for (uint64_t seed = 0; seed < (slow() ? 40 : 100); ++seed) {
    ASSERT_TRUE(matches_reference(reference::random_case(seed)));
  }
}

// Lengths around lanes, panels, key blocks and key tiles.
TEST_P(CpuTargetTest, LengthsAroundEveryBoundary) {
  const int64_t lengths[] = {0,  1,  2,  3,   4,   5,   7,   8,   9,   11,  12,  13,  15,
                             16, 17, 23, 24,  25,  31,  32,  33,  47,  48,  49,  63,  64,
                             65, 95, 97, 127, 128, 129, 191, 193, 255, 256, 257, 383, 385};
  int round = 0;
  for (const int64_t length : lengths) {
    for (const int causal : {0, 1, 2}) {
      const DType dtype = kDTypes[round++ % 3];
      ASSERT_TRUE(matches_reference(make_case(dtype, 1, 1, length, 70, 20, 20, causal)));
      ASSERT_TRUE(matches_reference(make_case(dtype, 1, 1, 50, length, 20, 20, causal)));
      ASSERT_TRUE(matches_reference(make_case(dtype, 1, 1, length, length, 8, 8, causal)));
    }
    ++round;
  }
}

TEST_P(CpuTargetTest, HeadDims) {
  for (int64_t head_dim = 1; head_dim <= 20; ++head_dim) {
    for (int64_t head_dim_v = 1; head_dim_v <= 20; head_dim_v += 3) {
      const DType dtype = kDTypes[head_dim % 3];
      ASSERT_TRUE(matches_reference(make_case(dtype, 1, 1, 40, 40, head_dim, head_dim_v, 1)));
    }
  }
  int round = 0;
  for (const int64_t head_dim : {31, 59, 63, 64, 65, 80, 111, 127, 128, 129, 192, 255, 256, 511}) {
    for (int repeat = 0; repeat < (slow() ? 1 : 3); ++repeat) {
      const DType dtype = kDTypes[round++ % 3];
      ASSERT_TRUE(matches_reference(make_case(dtype, 2, 1, 60, 140, head_dim, head_dim, 2)));
      ASSERT_TRUE(matches_reference(make_case(dtype, 1, 1, 30, 150, head_dim, 64)));
      ASSERT_TRUE(matches_reference(make_case(dtype, 1, 1, 30, 150, 64, head_dim)));
    }
  }
}

TEST_P(CpuTargetTest, WindowsAroundEveryBoundary) {
  for (const int64_t left : {-1, 0, 1, 3, 8, 31, 64, 130, 300}) {
    for (const int64_t right : {-1, 0, 1, 5, 40, 128, 300}) {
      for (const int align : {1, 2}) {
        const DType dtype = kDTypes[(left + right + align + 2) % 3];
        Case c = make_case(dtype, 1, 1, 150, 290, 16, 16);
        c.window_left = left;
        c.window_right = right;
        c.window_align = align;
        ASSERT_TRUE(matches_reference(c));
        c.seqlen_q = 290;
        c.seqlen_k = 100;
        ASSERT_TRUE(matches_reference(c));
      }
    }
  }
}

// Few queries and many keys: the keys are split among work items.
TEST_P(CpuTargetTest, SplitKeys) {
  for (const int64_t keys : {2047, 2048, 2049, 5000, 9000}) {
    for (const int causal : {0, 1, 2}) {
      for (const DType dtype : kDTypes) {
        ASSERT_TRUE(matches_reference(make_case(dtype, 2, 1, 3, keys, 24, 20, causal)));
      }
      Case windowed = make_case(DType::kFloat32, 4, 2, 5, keys, 16, 16, causal);
      windowed.window_left = 2500;
      ASSERT_TRUE(matches_reference(windowed));
    }
  }
}

TEST_P(CpuTargetTest, ValuesThatStressTheSoftmax) {
  for (int values = 0; values <= static_cast<int>(reference::Values::kOffset); ++values) {
    for (const DType dtype : kDTypes) {
      for (const int64_t keys : {97, 129, 400}) {
        Case c = make_case(dtype, 1, 1, 60, keys, 64, 64, keys == 129 ? 2 : 0);
        c.values = static_cast<reference::Values>(values);
        ASSERT_TRUE(matches_reference(c));
      }
    }
  }
}

TEST_P(CpuTargetTest, ScalesOfEverySize) {
  for (const float scale : {1.0f, 0.0f, -0.3f, 1e-38f, 1e-40f, -1e-44f}) {
    Case c = make_case(DType::kFloat32, 1, 1, 30, 70, 16, 16, 1);
    c.has_scale = true;
    c.scale = scale;
    ASSERT_TRUE(matches_reference(c));
  }
  // scale * log2(e) overflows, the logits do not.
  Case huge = make_case(DType::kFloat32, 1, 1, 30, 70, 16, 16);
  huge.has_scale = true;
  huge.scale = 3e38f;
  reference::Instance instance = reference::make_instance(huge);
  instance.q.fill(0.0f);
  ASSERT_EQ(run(instance), TILEFOLD_OK);
  const auto expected =
      reference::attention(*instance.q.dl(), *instance.k.dl(), *instance.v.dl(), &instance.options);
  EXPECT_TRUE(reference::compare(expected, *instance.o.dl(), instance.lse.dl()).ok);
}

// Values that are not finite reach the rows that see them, and no other.
TEST_P(CpuTargetTest, NonFiniteInputsReachTheRowsThatSeeThem) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : kDTypes) {
    for (const char tensor : {'q', 'k', 'v'}) {
      for (const float value : {nan, infinity, -infinity}) {
        for (const int64_t at : {0, 3, 30, 77, 149}) {
          Case c = make_case(dtype, 1, 1, 150, 150, 32, 32, TILEFOLD_CAUSAL_TOP_LEFT);
          c.window_left = 40;
          reference::Instance instance = reference::make_instance(c);
          (tensor == 'q'   ? instance.q
           : tensor == 'k' ? instance.k
                           : instance.v)
              .put(value, 0, 0, at, 5);
          ASSERT_EQ(run(instance), TILEFOLD_OK);
          const auto expected = reference::attention(*instance.q.dl(), *instance.k.dl(),
                                                     *instance.v.dl(), &instance.options);
          const auto comparison = reference::compare(expected, *instance.o.dl(), instance.lse.dl());
          ASSERT_TRUE(comparison.ok)
              << tensor << "[" << at << "] = " << value << ": " << comparison.message();
        }
      }
    }
  }
}

TEST_P(CpuTargetTest, FlashAttentionCriterion) {
  for (const DType dtype : kDTypes) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int causal : {0, 1}) {
        const Case c = make_case(dtype, 2, 2, 257, 515, head_dim, head_dim, causal);
        reference::Instance instance = reference::make_instance(c);
        ASSERT_EQ(run(instance), TILEFOLD_OK);
        const auto expected = reference::attention(*instance.q.dl(), *instance.k.dl(),
                                                   *instance.v.dl(), &instance.options);
        const auto naive = reference::naive_same_precision(*instance.q.dl(), *instance.k.dl(),
                                                           *instance.v.dl(), &instance.options);
        const auto result = reference::flash_attention_criterion(expected, naive, *instance.o.dl());
        EXPECT_TRUE(result.ok) << c.to_string() << ": error " << result.error << ", allowed "
                               << result.allowed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CpuTargetTest, testing::Range(0, cpu::num_forward_targets() + 1),
                         [](const testing::TestParamInfo<int>& info) {
                           return std::string(target_at(info.param).name);
                         });

}  // namespace
}  // namespace tilefold::cpu_test
