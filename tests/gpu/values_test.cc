// Extreme values on every GPU row: where a constant, a pad or a NaN in the wrong place would show.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gpu_test.h"

namespace tilefold::gpu_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class ValuesTest : public RowTest {
 protected:
  // Row i of Q and row j of K become multiples of the first unit vector, so that their logit is
  // q_value * k_value with scale 1.
  static void set_along_first_axis(HostTensor* tensor, int64_t row, float value) {
    for (int64_t b = 0; b < tensor->shape()[0]; ++b) {
      for (int64_t h = 0; h < tensor->shape()[1]; ++h) {
        for (int64_t d = 0; d < tensor->shape()[3]; ++d) {
          tensor->put(d == 0 ? value : 0.0f, b, h, row, d);
        }
      }
    }
  }
};
TILEFOLD_GPU_ROWS(ValuesTest);

TEST_P(ValuesTest, EveryKindOfValueUnmaskedAndCausal) {
  for (const Values values :
       {Values::kNormal, Values::kUniform, Values::kLargeLogits, Values::kHugeLogits,
        Values::kZeroQueries, Values::kNegative, Values::kOneHotKey, Values::kOffset}) {
    for (const int causal : {0, 1, 2}) {
      Case c = served_case(140, 275, causal);
      c.values = values;
      check(c);
    }
  }
}

TEST_P(ValuesTest, LogitsNear120BelowZeroAtEveryTail) {
  for (int64_t nk = 97; nk <= 129; ++nk) {
    Case c = base_case(GetParam(), 20, nk, static_cast<int>(nk % 3));
    c.values = Values::kNegative;
    check(c);
  }
}

TEST_P(ValuesTest, LogitsFarBelowZeroWithOneKeyAbove) {
  Case c = base_case(GetParam(), 9, 130);
  c.has_scale = true;
  c.scale = 1.0f;
  Instance instance = reference::make_instance(c);
  for (int64_t i = 0; i < c.seqlen_q; ++i) set_along_first_axis(&instance.q, i, 240.0f);
  for (int64_t j = 0; j < c.seqlen_k; ++j) set_along_first_axis(&instance.k, j, -256.0f);
  set_along_first_axis(&instance.k, 71, -235.0f);  // 5040 higher
  check(&instance, "logits of -61440, one of -56400");
}

TEST_P(ValuesTest, OneKeyOfAHugeNegativeLogit) {
  Case c = base_case(GetParam(), 3, 1);
  c.has_scale = true;
  c.scale = 1.0f;
  Instance instance = reference::make_instance(c);
  for (int64_t i = 0; i < c.seqlen_q; ++i) set_along_first_axis(&instance.q, i, 1024.0f);
  set_along_first_axis(&instance.k, 0, -512.0f);
  if (!check(&instance, "one logit of -524288")) return;
  for (int64_t d = 0; d < c.head_dim_v; ++d) {
    EXPECT_EQ(instance.v.at(0, 0, 0, d), instance.o.at(0, 0, 2, d));
  }
  EXPECT_EQ(-524288.0f, instance.lse.at(0, 0, 2));
}

// bfloat16 and float32 reach logits near the end of float32's range.
TEST_P(ValuesTest, LogitsNearTheEndOfTheRange) {
  if (GetParam().dtype == DType::kFloat16) {
    GTEST_SKIP() << "float16 inputs cannot make such logits";
  }
  for (const float sign : {1.0f, -1.0f}) {
    Case c = base_case(GetParam(), 5, 70);
    c.has_scale = true;
    c.scale = 1.0f;
    Instance instance = reference::make_instance(c);
    for (int64_t i = 0; i < c.seqlen_q; ++i) set_along_first_axis(&instance.q, i, 0x1p60f);
    for (int64_t j = 0; j < c.seqlen_k; ++j) set_along_first_axis(&instance.k, j, sign * 0x1p62f);
    set_along_first_axis(&instance.k, 33, sign * 0x1p61f);
    check(&instance, "logits of +-2^122");
  }
}

TEST_P(ValuesTest, ANaNInOneKeyReachesExactlyTheRowsThatSeeIt) {
  for (const int causal : {0, 1, 2}) {
    for (const int64_t row : {0, 70, 129}) {
      Case c = served_case(130, 130, causal);
      Instance instance = reference::make_instance(c);
      instance.k.put(kNaN, 0, 0, row, 5);
      check(&instance, "NaN in K row " + std::to_string(row) + " of " + c.to_string());
    }
  }
}

TEST_P(ValuesTest, ANaNInOneQueryStaysInItsRow) {
  Case c = served_case(130, 200);
  Instance instance = reference::make_instance(c);
  instance.q.put(kNaN, 0, 1, c.seqlen_q / 2 - 1, 2);
  check(&instance, "NaN in the middle row of Q");
}

TEST_P(ValuesTest, InfinityAndNaNInMaskedValuesDoNotReachARow) {
  for (const float value : {kInfinity, -kInfinity, kNaN}) {
    for (const int64_t row : {100, 129, 64, 1}) {
      Case c = served_case(130, 130, TILEFOLD_CAUSAL_TOP_LEFT);
      Instance instance = reference::make_instance(c);
      instance.v.put(value, 0, 0, row, 3);
      check(&instance, std::to_string(value) + " in V row " + std::to_string(row));
      c.window_left = 20;
      Instance windowed = reference::make_instance(c);
      windowed.v.put(value, 0, 0, row, 3);
      check(&windowed, std::to_string(value) + " in V row " + std::to_string(row) + ", window");
    }
  }
}

TEST_P(ValuesTest, InfinityInAMaskedKeyDoesNotReachARow) {
  for (const int64_t row : {100, 129}) {
    Case c = served_case(130, 130, TILEFOLD_CAUSAL_TOP_LEFT);
    Instance instance = reference::make_instance(c);
    set_along_first_axis(&instance.k, row, kInfinity);
    check(&instance, "inf in K row " + std::to_string(row));
  }
}

// The logits of one key, or of all, are -inf; the formula gives NaN only where nothing else is
// seen.
TEST_P(ValuesTest, LogitsOfMinusInfinity) {
  Case c = served_case(70, 130, causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT));
  c.has_scale = true;
  c.scale = 0.5f;
  for (const bool all : {false, true}) {
    Instance instance = reference::make_instance(c);
    for (int64_t i = 0; i < c.seqlen_q; ++i) set_along_first_axis(&instance.q, i, 1.0f);
    for (int64_t j = 0; j < c.seqlen_k; ++j) {
      set_along_first_axis(&instance.k, j,
                           all || j < 3 ? -kInfinity : 0.25f * static_cast<float>(j % 7));
    }
    // 0 * inf is NaN: away from the first axis Q and K are 0, so only that product is infinite.
    check(&instance, all ? "all logits -inf" : "the first three logits -inf");
  }
}

TEST_P(ValuesTest, LogitsOfPlusInfinityGiveNaN) {
  Case c = served_case(70, 130, causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT));
  Instance instance = reference::make_instance(c);
  for (int64_t i = 0; i < c.seqlen_q; ++i) set_along_first_axis(&instance.q, i, 1.0f);
  set_along_first_axis(&instance.k, 40, kInfinity);
  check(&instance, "logit 40 is +inf");
}

TEST_P(ValuesTest, ScalesOfEverySignAndSize) {
  for (const float scale : {1.0f, 0.1147f, 0.0f, -0.0f, -1.0f, -0.125f, 1e-30f, -1e-38f, 1e-44f,
                            8.0f, 1e4f, -1e4f, 1e30f, 2e38f, -3e38f}) {
    for (const int causal : {0, 1}) {
      Case c = served_case(75, 140, causal);
      c.has_scale = true;
      c.scale = scale;
      // Large scales meet small values, so that logits stay within float32.
      c.values = Values::kNormal;
      Instance instance = reference::make_instance(c);
      if (std::fabs(scale) > 1e5f) {
        const float shrink = GetParam().dtype == DType::kFloat16 ? 0.0f : 3e-18f;
        for (HostTensor* tensor : {&instance.q, &instance.k}) {
          const HostTensor full = tensor->clone();
          tensor->fill([&](std::span<const int64_t> i) { return full.get(i) * shrink; });
        }
      }
      check(&instance, "scale " + std::to_string(scale) + " of " + c.to_string());
    }
  }
}

TEST_P(ValuesTest, ValuesOfOneGiveOne) {
  Case c = served_case(100, 333);
  Instance instance = reference::make_instance(c);
  instance.v.fill(1.0f);
  check(&instance, "V = 1");
}

TEST_P(ValuesTest, OneHotValuesGiveTheProbabilities) {
  Case c = served_case(100, 0, causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT));
  c.seqlen_k = c.head_dim_v;
  Instance instance = reference::make_instance(c);
  instance.v.fill([](std::span<const int64_t> i) { return i[2] == i[3] ? 1.0f : 0.0f; });
  check(&instance, "V one-hot in the key");
}

// NaN against zeros in the memory that follows the last row: the same bits.
TEST_P(ValuesTest, WhatLiesBeyondTheEndsDoesNotMatter) {
  for (const int64_t nk : {1, 63, 65, 130}) {
    Case c = base_case(GetParam(), nk + 3, nk, TILEFOLD_CAUSAL_NONE);
    Instance poisoned = reference::make_instance(c);
    if (!check(&poisoned, c.to_string())) continue;
    Instance zeros = reference::make_instance(c);
    for (HostTensor* tensor : {&zeros.q, &zeros.k, &zeros.v}) {
      const int64_t elements = tensor->num_elements() * reference::dtype_bytes(c.dtype);
      const auto memory = tensor->memory();
      const size_t begin = static_cast<size_t>(tensor->data_offset_bytes());
      std::memset(memory.data(), 0, begin);
      std::memset(memory.data() + begin + elements, 0, memory.size() - begin - elements);
    }
    if (!run(&zeros, c.to_string())) continue;
    EXPECT_TRUE(reference::same_bits(poisoned.o, zeros.o)) << c.to_string();
    EXPECT_TRUE(reference::same_bits(poisoned.lse, zeros.lse)) << c.to_string();
  }
}

}  // namespace
}  // namespace tilefold::gpu_test
