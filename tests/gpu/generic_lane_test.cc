// The plain CUDA kernel on the lane machine: every dtype and form, on shapes and strides that only
// it takes, against the float64 reference. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cuda/generic/forward_kernel.cuh"
#include "forward_run.h"

namespace tilefold::lane_machine {
namespace {

// Fewer CTAs than tiles, so that a CTA takes several in turn.
constexpr int64_t kCtas = 3;

template <DType kDType, int kRowsPerThread, int kSlab>
void check_form(ForwardSetup& setup, uint64_t schedule) {
  constexpr generic::ForwardConfig kConfig{
      .dtype = kDType, .rows_per_thread = kRowsPerThread, .slab = kSlab};
  setup.poison_outputs();
  const generic::ForwardGrid grid = generic::forward_grid(setup.problem, kConfig.block_m(), kSlab);
  Launch launch;
  launch.kernel = "generic::forward_kernel";
  launch.grid.x = static_cast<unsigned>(std::min(grid.num_tiles, kCtas));
  launch.block.x = generic::ForwardConfig::kThreads;
  launch.shared_bytes = static_cast<uint32_t>(kConfig.smem_bytes());
  launch.seed = schedule;
  const RunReport report = run(launch, setup.memory, [&] {
    generic::forward_kernel<kDType, kRowsPerThread, kSlab>(setup.problem);
  });
  EXPECT_TRUE(report.hazards.empty()) << report.summary();
  const reference::Comparison comparison = setup.compare();
  EXPECT_TRUE(comparison.ok) << setup.c.to_string() << ", " << kRowsPerThread
                             << " rows a thread, slab " << kSlab << ": " << comparison.message();
}

template <DType kDType>
void check_dtype(const char* name) {
  const char* const cases[] = {
      "hq=2 hkv=1 nq=70 nk=131 d=59 dv=40 seed=1",
      "hq=1 nq=5 nk=70 d=8 dv=200 causal=bottom_right seed=2",
      "b=2 hq=1 nq=33 nk=65 d=33 dv=33 causal=top_left seed=3 values=large_logits",
      "hq=1 nq=90 nk=40 d=16 dv=64 wl=8 wr=4 empty=-inf seed=4",
      "hq=1 nq=20 nk=97 d=24 dv=7 values=negative seed=5",
      "hq=1 nq=66 nk=80 d=5 dv=129 scale=-0.3 seed=6",
      "hq=1 nq=3 nk=0 d=4 dv=4 seed=7",
      "hq=1 nq=1 nk=1 d=1 dv=1 seed=8",
  };
  uint64_t schedule = 0;
  for (const char* text : cases) {
    reference::Case c;
    std::string error;
    ASSERT_TRUE(reference::from_string(std::string("dtype=") + name + " b=1 " + text, &c, &error))
        << error;
    ForwardSetup setup(c);
    check_form<kDType, 1, 128>(setup, ++schedule);
    check_form<kDType, 4, 64>(setup, ++schedule);
    check_form<kDType, 4, 128>(setup, ++schedule);
  }
}

TEST(GenericLaneTest, Float32MatchesTheReference) { check_dtype<DType::kFloat32>("float32"); }
TEST(GenericLaneTest, Float16MatchesTheReference) { check_dtype<DType::kFloat16>("float16"); }
TEST(GenericLaneTest, BFloat16MatchesTheReference) { check_dtype<DType::kBFloat16>("bfloat16"); }

// An infinity or a NaN in V or K where a row does not see it.
TEST(GenericLaneTest, HiddenInfinitiesAndNansStayHidden) {
  reference::Case c;
  std::string error;
  ASSERT_TRUE(reference::from_string(
      "dtype=float32 b=1 hq=1 hkv=1 nq=100 nk=100 d=20 dv=20 causal=top_left seed=21", &c, &error))
      << error;
  ForwardSetup setup(c);
  setup.hide_non_finite();
  check_form<DType::kFloat32, 4, 64>(setup, 2);
  check_form<DType::kFloat32, 1, 128>(setup, 3);
}

}  // namespace
}  // namespace tilefold::lane_machine
