// Sizes at which 32-bit arithmetic, grid limits and short tests give out, on every GPU row.
#include <algorithm>
#include <map>
#include <vector>

#include "gpu_test.h"

namespace tilefold::gpu_test {
namespace {

class SizeTest : public RowTest {
 protected:
  static int num_multiprocessors() {
    int count = 0;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0);
    return count;
  }

  // At least `tiles_per_cta` row tiles for every CTA that the GPU can hold, whatever the schedule.
  Case many_tiles(int causal, int64_t seqlen_q, int64_t seqlen_k) const {
    constexpr int64_t kTilesPerCta = 3;
    constexpr int64_t kCtasPerMultiprocessor = 2;
    constexpr int64_t kAnyBlock = 64;
    const int64_t block_m = GetParam().block_m > 0 ? GetParam().block_m : kAnyBlock;
    Case c = served_case(seqlen_q, seqlen_k, causal);
    const int64_t tiles = kTilesPerCta * kCtasPerMultiprocessor * num_multiprocessors() + 1;
    const int64_t m_blocks = (c.seqlen_q + block_m - 1) / block_m;
    c.heads_kv = 2;
    c.heads = 22;
    c.batch = (tiles + m_blocks * c.heads - 1) / (m_blocks * c.heads);
    return c;
  }

  // The least with which the CTAs of a persistent grid (sm90: one on every multiprocessor) take
  // three tiles each: a few K/V blocks a tile, of which under a causal mask warpgroups pass over
  // some, two tiles a head, one of them short; narrow, for the reference's sake. Rows that take few
  // queries have both heads of a group in one tile. A few tiles where each has a CTA of its own.
  Case three_tiles(int causal) const {
    constexpr int64_t kAnyBlock = 64;
    const Row& row = GetParam();
    const int64_t block_m = row.block_m > 0 ? row.block_m : kAnyBlock;
    const int64_t block_n = row.block_n > 0 ? row.block_n : kAnyBlock;
    Case c = served_case(block_m + 61, std::max(block_m, block_n) + 5, causal);
    c.head_dim = c.head_dim_v = 16;
    c.batch = 2;
    const int64_t tiles = row.backend == "sm90" ? 3 * num_multiprocessors() : 4;
    const int64_t tiles_per_group = c.seqlen_q < block_m ? 1 : 4;
    c.heads_kv = (tiles + c.batch * tiles_per_group - 1) / (c.batch * tiles_per_group);
    c.heads = 2 * c.heads_kv;
    return c;
  }

  void check_sampled(const Case& c) {
    constexpr int64_t kRowStep = 37;
    Instance instance = make_fast_instance(c);
    check(&instance, c.to_string(), std::min<int64_t>(kRowStep, c.seqlen_q / 3 + 1));
  }
};
TILEFOLD_GPU_ROWS(SizeTest);

TEST_P(SizeTest, MoreHeadsTimesBatchThanAGridAxisHolds) {
  constexpr int64_t kMany = 65537;
  for (const bool in_batch : {true, false}) {
    Case c = base_case(GetParam(), 1, 1);
    c.head_dim = 8;
    c.head_dim_v = GetParam().head_dim_v == GetParam().head_dim ? 8 : c.head_dim_v;
    c.batch = in_batch ? kMany : 1;
    c.heads = c.heads_kv = in_batch ? 1 : kMany;
    Instance instance = make_fast_instance(c);
    if (!run(&instance, c.to_string())) continue;
    // One key: O is V.
    EXPECT_TRUE(reference::same_bits(instance.v, instance.o)) << c.to_string();
  }
}

TEST_P(SizeTest, SeveralTilesForEveryCta) {
  for (const int causal : {0, 1, 2}) check_sampled(many_tiles(causal, 391, 500));
}

TEST_P(SizeTest, SeveralTilesForEveryCtaUnderWindows) {
  Case c = many_tiles(TILEFOLD_CAUSAL_NONE, 391, 500);
  c.window_left = 90;
  c.window_right = 40;
  check_sampled(c);
  c.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
  c.window_right = -1;
  check_sampled(c);
}

TEST_P(SizeTest, SeveralTilesForEveryCtaSomeOfThemWithoutAKey) {
  const int64_t queries = queries_if_served(500);
  Case c = many_tiles(TILEFOLD_CAUSAL_BOTTOM_RIGHT, queries, queries * 130 / 500);
  check_sampled(c);
  c.seqlen_k = 0;
  check_sampled(c);
}

TEST_P(SizeTest, SeveralTilesForEveryCtaOfFewQueries) {
  for (const int causal : {0, 2}) {
    Case c = many_tiles(causal, 3, 300);
    check_sampled(c);
    c.heads = 8 * c.heads_kv;  // few rows and many heads in a group: where packing pays
    check_sampled(c);
  }
}

// Small enough for memcheck and racecheck, which see here what only a CTA with several tiles does:
// it counts or steps to the next one, uses stages and ring slots again, and waits for the O before.
TEST_P(SizeTest, ThreeSmallTilesForEveryCta) { check_sampled(three_tiles(TILEFOLD_CAUSAL_NONE)); }

TEST_P(SizeTest, ThreeSmallTilesForEveryCtaUnderAMask) {
  check_sampled(three_tiles(TILEFOLD_CAUSAL_TOP_LEFT));
}

TEST_P(SizeTest, OneLongRowOfTiles) {
  Case c = served_case(4100, 4099, TILEFOLD_CAUSAL_TOP_LEFT);
  check_sampled(c);
  c.causal = TILEFOLD_CAUSAL_NONE;
  check_sampled(c);
}

TEST_P(SizeTest, OneQueryOnFourMillionKeys) {
  constexpr int64_t kKeys = int64_t{1} << 22;
  Case c = base_case(GetParam(), 1, kKeys);
  c.heads = 1;
  c.head_dim = 16;
  c.head_dim_v = GetParam().head_dim_v == GetParam().head_dim ? 16 : c.head_dim_v;
  // The inputs and the reference are the same for all rows of a dtype and shape.
  static std::map<std::pair<DType, int64_t>, std::pair<Instance, reference::Result>> known;
  const auto key = std::make_pair(c.dtype, c.head_dim_v);
  if (!known.count(key)) {
    {
      // Asked before 256 MB of inputs are made.
      Case small = c;
      small.seqlen_k = 64;
      Instance probe = make_fast_instance(small);
      if (!run(&probe, small.to_string())) return;
    }
    Instance instance = make_fast_instance(c);
    reference::Result result = reference::attention(*instance.q.dl(), *instance.k.dl(),
                                                    *instance.v.dl(), &instance.options);
    known.emplace(key, std::make_pair(std::move(instance), std::move(result)));
  }
  auto& [instance, expected] = known.at(key);
  instance.o.poison();
  instance.lse.poison();
  if (!run(&instance, c.to_string())) return;
  const reference::Comparison comparison =
      reference::compare(expected, *instance.o.dl(), instance.lse.dl());
  EXPECT_TRUE(comparison.ok) << comparison.message();
}

// Tensors of a few elements, spread so that offsets pass 2^31 elements, along one axis each time.
class FarTest : public SizeTest {
 protected:
  struct FarTensor {
    HostTensor host;   // the same elements, contiguous
    DLTensor dl = {};  // on the device, spread
    std::vector<int64_t> strides;
  };

  // Copies element runs (last axis) between the contiguous host tensor and its place on the device.
  static void copy(const FarTensor& tensor, bool to_device) {
    const auto& n = tensor.host.shape();
    const int64_t size = reference::dtype_bytes(tensor.host.dtype());
    for (int64_t b = 0; b < n[0]; ++b) {
      for (int64_t h = 0; h < n[1]; ++h) {
        char* device = static_cast<char*>(tensor.dl.data) +
                       (b * tensor.strides[0] + h * tensor.strides[1]) * size;
        char* host = reinterpret_cast<char*>(const_cast<std::byte*>(tensor.host.memory().data())) +
                     tensor.host.data_offset_bytes() + (b * n[1] + h) * n[2] * n[3] * size;
        const auto width = static_cast<size_t>(n[3] * size);
        const auto pitch = static_cast<size_t>(tensor.strides[2] * size);
        ASSERT_CUDA(
            to_device
                ? cudaMemcpy2D(device, pitch, host, width, width, n[2], cudaMemcpyHostToDevice)
                : cudaMemcpy2D(host, width, device, pitch, width, n[2], cudaMemcpyDeviceToHost));
      }
    }
  }

  // Both heads of K and V, then both heads of Q on one.
  void check_far(const char* what, const std::vector<int64_t>& strides) {
    for (const int64_t heads_kv : {2, 1}) {
      check_far(std::string(what) + ", " + std::to_string(heads_kv) + " K/V heads", strides,
                heads_kv);
    }
  }

  void check_far(const std::string& what, const std::vector<int64_t>& strides, int64_t heads_kv) {
    Case c = served_case(67, 67);
    c.batch = 2;
    c.heads = 2;
    c.heads_kv = heads_kv;
    Instance contiguous = make_fast_instance(c);
    const auto reach = [&](const HostTensor& tensor) {
      int64_t last = 0;
      for (size_t axis = 0; axis < 3; ++axis) last += strides[axis] * (tensor.shape()[axis] - 1);
      return last;
    };
    ASSERT_GT(reach(contiguous.q), int64_t{1} << 31);
    const int64_t elements =
        std::max(reach(contiguous.q), reach(contiguous.k)) + std::max(c.head_dim, c.head_dim_v);
    const int64_t size = reference::dtype_bytes(c.dtype);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    ASSERT_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    const auto needed = static_cast<size_t>(elements * size) * 2 + (64 << 20);
    if (free_bytes < needed) {
      GTEST_SKIP() << "needs " << needed << " bytes of device memory, " << free_bytes
                   << " are free";
    }
    // Inputs interleave in one piece of memory (each a few rows apart); the output has its own.
    constexpr int64_t kApart = 1 << 15;
    DeviceBuffer inputs(static_cast<size_t>((elements + 3 * kApart) * size));
    DeviceBuffer output(static_cast<size_t>(elements * size));
    DeviceTensor lse(contiguous.lse);
    FarTensor far[4];
    HostTensor* hosts[4] = {&contiguous.q, &contiguous.k, &contiguous.v, &contiguous.o};
    for (int i = 0; i < 4; ++i) {
      far[i].host = hosts[i]->clone();
      far[i].strides = strides;
      far[i].dl = *lse.dl();
      far[i].dl.ndim = 4;
      far[i].dl.dtype = reference::to_dl(c.dtype);
      far[i].dl.data =
          i == 3 ? output.data() : static_cast<char*>(inputs.data()) + i * kApart * size;
      far[i].dl.shape = const_cast<int64_t*>(far[i].host.shape().data());
      far[i].dl.strides = far[i].strides.data();
      copy(far[i], true);
    }
    tilefold_options options = contiguous.options;
    options.kernel = GetParam().name.c_str();
    size_t workspace_bytes = 0;
    const tilefold_status status = tilefold_forward_workspace_bytes(
        &far[0].dl, &far[1].dl, &far[2].dl, &far[3].dl, lse.dl(), &options, &workspace_bytes);
    if (status == TILEFOLD_ERROR_UNSUPPORTED) {
      ++unserved_;
      return;
    }
    ++served_;
    ASSERT_EQ(TILEFOLD_OK, status) << tilefold_last_error();
    DeviceBuffer workspace(workspace_bytes);
    ASSERT_EQ(
        TILEFOLD_OK,
        tilefold_forward(&far[0].dl, &far[1].dl, &far[2].dl, &far[3].dl, lse.dl(), &options,
                         workspace_bytes ? workspace.data() : nullptr, workspace_bytes, nullptr))
        << tilefold_last_error();
    ASSERT_CUDA(cudaDeviceSynchronize());
    copy(far[3], false);
    lse.download(&contiguous.lse);
    ASSERT_CUDA(cudaDeviceSynchronize());
    const reference::Result expected = reference::attention(
        *contiguous.q.dl(), *contiguous.k.dl(), *contiguous.v.dl(), &contiguous.options);
    const reference::Comparison comparison =
        reference::compare(expected, *far[3].host.dl(), contiguous.lse.dl());
    EXPECT_TRUE(comparison.ok) << what << ": " << comparison.message();
  }
};
TILEFOLD_GPU_ROWS(FarTest);

constexpr int64_t kFar = (int64_t{1} << 31) + 4096;
constexpr int64_t kHeadApart = int64_t{1} << 20;
constexpr int64_t kRowApart = 256;

TEST_P(FarTest, BatchesBeyondTwoToThe31) { check_far("batch", {kFar, kHeadApart, kRowApart, 1}); }

TEST_P(FarTest, HeadsBeyondTwoToThe31) { check_far("head", {kHeadApart, kFar, kRowApart, 1}); }

TEST_P(FarTest, RowsBeyondTwoToThe31) {
  constexpr int64_t kRows = (int64_t{1} << 25) + (int64_t{1} << 22);  // 60 of them pass 2^31
  check_far("row", {int64_t{1} << 18, int64_t{1} << 17, kRows, 1});
}

}  // namespace
}  // namespace tilefold::gpu_test
