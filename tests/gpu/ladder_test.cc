// Every rung of bench/ladder against the float64 reference.
#include <cmath>
#include <string>
#include <vector>

#include "gpu_test.h"
#include "ladder.h"

namespace tilefold::gpu_test {
namespace {

struct RungOfTile {
  ladder::Rung rung;
  int head_dim;
};

std::vector<RungOfTile> rungs_of_tiles() {
  std::vector<RungOfTile> all;
  for (const ladder::Rung& rung : ladder::rungs()) {
    for (const int head_dim : {64, 128}) all.push_back({rung, head_dim});
  }
  return all;
}

// The record has the rungs by these names, "ladder_<rung>".
class LadderTest : public testing::TestWithParam<RungOfTile> {};
INSTANTIATE_TEST_SUITE_P(Gpu, LadderTest, testing::ValuesIn(rungs_of_tiles()),
                         [](const testing::TestParamInfo<RungOfTile>& info) {
                           return std::string("ladder_") + info.param.rung.name + "_d" +
                                  std::to_string(info.param.head_dim);
                         });

TEST_P(LadderTest, MatchesTheReference) {
  if (!no_gpu_reason().empty()) GTEST_SKIP() << no_gpu_reason();
  for (const int64_t seqlen : {128, 384, 1024}) {
    for (const Values values : {Values::kNormal, Values::kLargeLogits}) {
      Case c;
      c.dtype = DType::kFloat16;
      c.heads = c.heads_kv = 3;
      c.seqlen_q = c.seqlen_k = seqlen;
      c.head_dim = c.head_dim_v = GetParam().head_dim;
      c.values = values;
      Instance instance = reference::make_instance(c);
      DeviceProblem device(instance, nullptr);
      device.upload();
      ladder::Problem problem;
      problem.num_heads = 3;
      problem.seqlen = static_cast<int>(seqlen);
      problem.head_dim = GetParam().head_dim;
      problem.scale = 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
      problem.q = static_cast<const uint16_t*>(device.q.dl()->data);
      problem.k = static_cast<const uint16_t*>(device.k.dl()->data);
      problem.v = static_cast<const uint16_t*>(device.v.dl()->data);
      problem.o = static_cast<uint16_t*>(device.o.dl()->data);
      problem.lse = static_cast<float*>(device.lse.dl()->data);
      const DeviceBuffer workspace(GetParam().rung.workspace_bytes(problem));
      ASSERT_CUDA(cudaMemset(workspace.data(), 0xff, workspace.bytes()));
      problem.workspace = workspace.data();
      const cudaError_t error = GetParam().rung.run(problem, nullptr);
      if (error == cudaErrorInvalidValue) {
        cudaGetLastError();
        GTEST_SKIP() << "this GPU has too little shared memory for the rung";
      }
      ASSERT_CUDA(error);
      device.o.download(&instance.o);
      device.lse.download(&instance.lse);
      ASSERT_CUDA(cudaDeviceSynchronize());
      EXPECT_TRUE(instance.o.surroundings_intact() && instance.lse.surroundings_intact());
      const reference::Result expected = reference::attention(*instance.q.dl(), *instance.k.dl(),
                                                              *instance.v.dl(), &instance.options);
      const reference::Comparison comparison =
          reference::compare(expected, *instance.o.dl(), instance.lse.dl());
      EXPECT_TRUE(comparison.ok) << c.to_string() << ": " << comparison.message();
    }
  }
}

}  // namespace
}  // namespace tilefold::gpu_test
