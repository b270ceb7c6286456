// The GPU kernels of the table, lane by lane: no hazard, no bank conflict, as many mma as the tiles
// imply, and the reference's result, whatever the order in which lanes run.
#include <gtest/gtest.h>

#include "forward_run.h"

namespace tilefold::lane_machine {
namespace {

// The dtype and the head dims are the kernel's own. `split` counts for the sm80 family alone.
struct TestCase {
  const char* text;
  bool masked;
  int num_splits = 1;
};
constexpr TestCase kCases[] = {
    {"hq=1 nq=128 nk=256 seed=1", false},
    {"b=2 hq=2 hkv=1 nq=33 nk=97 seed=2", false},
    {"hq=3 hkv=1 nq=1 nk=1 seed=3", false},
    {"hq=1 nq=70 nk=257 seed=4 values=large_logits", false},
    {"hq=1 nq=65 nk=63 seed=5 values=negative lse=0", false},
    {"hq=2 hkv=1 nq=200 nk=200 causal=top_left seed=6", true},
    {"hq=1 nq=130 nk=70 causal=bottom_right seed=7", true},
    {"hq=1 nq=70 nk=300 causal=bottom_right seed=8 values=offset", true},
    {"hq=1 nq=150 nk=260 wl=37 wr=20 seed=9", true},
    {"hq=1 nq=300 nk=40 wl=8 wr=4 seed=10 empty=-inf", true},
    {"hq=1 nq=64 nk=129 wl=0 wr=0 seed=11", true},
    {"hq=1 nq=40 nk=190 scale=-0.3 seed=12", true},
    {"hq=1 nq=40 nk=130 values=huge_logits seed=13", true},
    {"hq=1 nq=5 nk=0 seed=14", false},
    {"hq=1 nq=50 nk=90 d=24 dv=16 seed=17", false},
    {"b=2 hq=12 hkv=2 nq=5 nk=150 causal=bottom_right seed=18", true},
    {"hq=8 hkv=1 nq=1 nk=200 seed=19 values=large_logits", false},
    {"hq=6 hkv=2 nq=33 nk=20 causal=bottom_right seed=20", true},
    {"b=2 hq=3 hkv=3 nq=50 nk=90 seed=23", false},                    // six tiles of every row
    {"hq=1 nq=189 nk=133 d=16 dv=16 causal=top_left seed=24", true},  // warps pass over blocks
    {"hq=2 hkv=1 nq=20 nk=700 seed=15", false, 3},
    {"hq=1 nq=150 nk=500 causal=bottom_right seed=16", true, 2},
};
constexpr uint64_t kSeedsPerCase = 2;

class LaneMachineKernelTest : public testing::TestWithParam<std::string> {
 protected:
  const ForwardKernel& kernel() { return *find_kernel(GetParam()); }
};

TEST_P(LaneMachineKernelTest, MatchesTheReferenceWithoutHazards) {
  uint64_t schedule = 0;
  for (const TestCase& test_case : kCases) {
    if (test_case.masked && !kernel().masked) continue;
    if (test_case.num_splits > 1 && std::string(kernel().family) != "sm80") continue;
    ForwardSetup setup = setup_for(kernel(), test_case.text);
    if (setup.c.seqlen_q > kernel().most_queries) continue;
    for (uint64_t i = 0; i < kSeedsPerCase; ++i) {
      ForwardRun how;
      how.seed = i == 0 ? 0 : ++schedule;
      how.num_splits = test_case.num_splits;
      const ForwardOutcome outcome = kernel().run(setup, how);
      EXPECT_TRUE(outcome.ok()) << setup.c.to_string() << ", schedule " << how.seed << "\n"
                                << outcome.message();
    }
  }
}

// Values that are not finite where a row does not see them must not reach it.
TEST_P(LaneMachineKernelTest, HiddenInfinitiesAndNansStayHidden) {
  if (!kernel().masked) GTEST_SKIP() << "the kernel takes no masks";
  for (const char* text : {"nonfinite hq=1 nq=100 nk=100 causal=top_left seed=21",
                           "nonfinite hq=6 hkv=2 nq=12 nk=20 causal=bottom_right seed=22",
                           "nonfinite b=2 hq=2 nq=70 nk=70 d=24 dv=16 causal=top_left seed=23"}) {
    ForwardSetup setup = setup_for(kernel(), text);
    if (setup.c.seqlen_q > kernel().most_queries) continue;
    ForwardRun how;
    how.seed = 2;
    const ForwardOutcome outcome = kernel().run(setup, how);
    EXPECT_TRUE(outcome.report.hazards.empty()) << text << "\n" << outcome.report.summary();
    EXPECT_TRUE(outcome.comparison.ok) << text << "\n" << outcome.comparison.message();
  }
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const ForwardKernel& kernel : forward_kernels()) names.push_back(kernel.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Rows, LaneMachineKernelTest, testing::ValuesIn(kernel_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tilefold::lane_machine
