// The same bits whatever the number of threads, run after run.
#include "support.h"

namespace tilefold::cpu_test {
namespace {

using reference::Case;
using reference::DType;

void expect_same_bits_for_every_thread_count(const Case& c) {
  reference::Instance one = reference::make_instance(c);
  ASSERT_EQ(run(one, 1), TILEFOLD_OK);
  for (const int num_threads : {1, 2, 3, 7, 16}) {
    reference::Instance other = reference::make_instance(c);
    ASSERT_EQ(run(other, num_threads), TILEFOLD_OK);
    ASSERT_TRUE(reference::same_bits(one.o, other.o)) << c.to_string() << " " << num_threads;
    ASSERT_TRUE(reference::same_bits(one.lse, other.lse)) << c.to_string() << " " << num_threads;
  }
}

TEST(CpuThreadsTest, SameBitsForEveryThreadCount) {
  for (uint64_t seed = 1000; seed < 1060; ++seed) {
    expect_same_bits_for_every_thread_count(reference::random_case(seed));
  }
}

TEST(CpuThreadsTest, SameBitsForEveryThreadCountInLargeProblems) {
  for (const DType dtype : kDTypes) {
    expect_same_bits_for_every_thread_count(make_case(dtype, 2, 1, 900, 700, 64, 64, 1));
    // Split keys.
    expect_same_bits_for_every_thread_count(make_case(dtype, 2, 1, 3, 9000, 64, 64, 2));
  }
}

// One mask said in four ways is one problem.
TEST(CpuThreadsTest, SameBitsForEveryWordingOfACausalMask) {
  Case c = make_case(DType::kFloat32, 1, 1, 300, 300, 64, 64, TILEFOLD_CAUSAL_TOP_LEFT);
  reference::Instance causal = reference::make_instance(c);
  ASSERT_EQ(run(causal), TILEFOLD_OK);
  c.causal = TILEFOLD_CAUSAL_NONE;
  c.window_right = 0;
  for (const int64_t left : {-1, 299, 300, 1000}) {
    c.window_left = left;
    reference::Instance window = reference::make_instance(c);
    ASSERT_EQ(run(window), TILEFOLD_OK);
    EXPECT_TRUE(reference::same_bits(causal.o, window.o)) << left;
  }
}

}  // namespace
}  // namespace tilefold::cpu_test
