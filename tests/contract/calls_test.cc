// Repetition, threads, and random problems.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "support.h"

namespace tilefold::test {
namespace {

TEST(RepeatTest, TheSameCallGivesTheSameBits) {
  for (DType dtype : kDTypes) {
    Case c = simple_case(dtype, 4, 200, 333, 64);
    c.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
    Instance first = make_instance(c);
    ASSERT_EQ(forward(first), TILEFOLD_OK) << tilefold_last_error();
    for (int repeat = 0; repeat < 10; ++repeat) {
      Instance again = make_instance(c);
      ASSERT_EQ(forward(again), TILEFOLD_OK);
      ASSERT_TRUE(same_bits(first.o, again.o));
      ASSERT_TRUE(same_bits(first.lse, again.lse));
    }
  }
}

TEST(RepeatTest, TheNumberOfThreadsChangesNoBit) {
  for (DType dtype : kDTypes) {
    Case c = simple_case(dtype, 3, 150, 150, 64);
    Instance first = make_instance(c);
    first.options.num_threads = 1;
    ASSERT_EQ(forward(first), TILEFOLD_OK) << tilefold_last_error();
    for (int threads : {2, 3, 5, 64}) {
      Instance again = make_instance(c);
      again.options.num_threads = threads;
      ASSERT_EQ(forward(again), TILEFOLD_OK);
      EXPECT_TRUE(same_bits(first.o, again.o)) << threads << " threads";
      EXPECT_TRUE(same_bits(first.lse, again.lse)) << threads << " threads";
    }
  }
}

// OpenMP would end the process over a number of threads that it cannot start.
TEST(ThreadCountTest, AnAbsurdNumberIsCut) {
  Case c = simple_case(DType::kFloat32, 100000, 1, 1, 8);
  Instance in = make_instance(c);
  in.options.num_threads = 100000;
  ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
  in.options.num_threads = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
}

// Threads of this process; 0 where the system does not say.
int threads_of_process() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int count = 0;
  while (status >> word) {
    if (word == "Threads:") status >> count;
  }
  return count;
}

// Beyond the processors (or what OMP_NUM_THREADS says), a thread is only one more that may fail to
// start. OpenMP keeps its threads, so that they can be counted after the call.
TEST(ThreadCountTest, NoMoreThreadsThanProcessors) {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  const int most = std::max(processors, wanted != nullptr ? std::atoi(wanted) : 0);
  if (most == 0 || threads_of_process() == 0) GTEST_SKIP() << "the system does not say how many";
  Instance in = make_instance(simple_case(DType::kFloat32, 1000, 1, 1, 8));
  in.options.num_threads = 200;
  const int before = threads_of_process();
  ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_LE(threads_of_process() - before, most - 1);
}

// Host threads that call at once, each with problems of its own, while one of them makes mistakes.
TEST(ThreadsTest, HostThreadsDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 12;
  std::atomic<int> wrong{0};
  const auto work = [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      Case c = simple_case(kDTypes[thread % 3], 2, 40 + 13 * thread, 60 + 7 * round, 32);
      c.causal = round % 3;
      Instance in = make_instance(c);
      // The same OpenMP team size in each thread; half of the calls run on one thread.
      in.options.num_threads = round % 2;
      if (!run_and_judge(in)) ++wrong;
      if (thread == 0) {
        in.options.causal = 9;
        if (forward(in) != TILEFOLD_ERROR_INVALID_ARGUMENT) ++wrong;
      } else if (std::string(tilefold_last_error()) != "") {
        ++wrong;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

// Random problems from fixed seeds; a failure prints as the one line that reproduces it (`tilefold
// check --case '...'`). TILEFOLD_FUZZ_CASES and TILEFOLD_FUZZ_SEED widen the search.
int64_t environment_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

class FuzzTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shard, FuzzTest, ::testing::Range(0, 4));

TEST_P(FuzzTest, RandomProblemsMatchTheReference) {
  const int64_t count = environment_number("TILEFOLD_FUZZ_CASES", 240);
  const int64_t first = environment_number("TILEFOLD_FUZZ_SEED", 1);
  for (int64_t n = GetParam(); n < count; n += 4) {
    const Case c = reference::random_case(static_cast<uint64_t>(first + n));
    ASSERT_TRUE(run_and_judge(c));
  }
}

}  // namespace
}  // namespace tilefold::test
