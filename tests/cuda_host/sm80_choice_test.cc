// Which rows of the sm80 family take a problem on which GPU, and which of them is chosen; and the
// sentences of those that take it nowhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuda/sm80/combine.h"
#include "cuda/sm80/compiled_row.h"
#include "made_up.h"

namespace tilefold {

// As src/core/validate.cc has it, which needs the rest of the library.
const char* dtype_name(DType dtype) { return dtype == DType::kFloat16 ? "float16" : "bfloat16"; }

namespace sm80 {

// The rows of kernels.def without their kernels: nothing here is launched.
#define TILEFOLD_SM80_ROW(name, ...) \
  extern const CompiledRow name;     \
  const CompiledRow name = {#name, ForwardConfig{__VA_ARGS__}, nullptr};
#include "sm80_rows.inc"
#undef TILEFOLD_SM80_ROW
cudaError_t launch_combine(DType, const ForwardParams&, cudaStream_t) { return cudaErrorUnknown; }

namespace {

constexpr Gpu kAll[] = {k80, k86, k87, k89, k90, k100, k120, k121};

// An sm80 row says nothing to what it takes.
const KernelRow* best_row(const ForwardProblem& problem, const Gpu& gpu) {
  for (const KernelRow& row : sm80_kernels()) {
    const Answer answer = answer_of(row, problem, gpu);
    EXPECT_EQ(answer.wanted == 0, !answer.text.empty()) << row.name;
  }
  return best_of(sm80_kernels(), problem, gpu);
}

// "d64_m128n64_s2" of "sm80_fp16_d64_m128n64_s2"; "none" if no row takes it.
std::string chosen(const ForwardProblem& problem, const Gpu& gpu) {
  const KernelRow* row = best_row(problem, gpu);
  return row == nullptr ? "none" : std::string(row->name).substr(std::string("sm80_fp16_").size());
}

std::string reason_of(const char* name, const ForwardProblem& problem, const Gpu& gpu) {
  return reason_of(sm80_kernels(), name, problem, gpu);
}

TEST(Sm80ChoiceTest, TilesByTheSharedMemoryOfTheGpu) {
  const struct {
    int64_t head_dim;
    const char* kib99;
    const char* kib163;
    const char* kib227;
  } expected[] = {
      {32, "d32_m128n128_s2", "d32_m128n128_s2", "d32_m128n128_s2"},
      {64, "d64_m128n64_s2", "d64_m128n64_s2", "d64_m128n64_s3_tma"},
      {96, "d96_m128n64_s1", "d96_m128n64_s1", "d96_m128n64_s3_tma"},
      {128, "d128_m128n32_s1", "d128_m128n64_s1", "d128_m128n64_s2_tma"},
      {160, "d160_m64n64_s1_pair", "d160_m64n64_s1_pair", "d160_m128n128_s1_pair_tma"},
      {192, "d192_m64n64_s1_pair", "d192_m64n64_s1_pair", "d192_m128n128_s1_pair_tma"},
      {224, "d224_m64n64_s1_pair", "d224_m128n64_s1_pair", "d224_m128n128_s1_pair_tma"},
      {256, "d256_m64n32_s1_pair", "d256_m128n64_s1_pair", "d256_m128n128_s1_pair_tma"},
  };
  for (const auto& e : expected) {
    const ForwardProblem problem = problem_of(e.head_dim);
    for (const Gpu& gpu : {k86, k89, k120, k121}) {
      EXPECT_EQ(e.kib99, chosen(problem, gpu)) << gpu.compute_capability;
    }
    for (const Gpu& gpu : {k80, k87}) {
      EXPECT_EQ(e.kib163, chosen(problem, gpu)) << gpu.compute_capability;
    }
    for (const Gpu& gpu : {k90, k100}) {
      EXPECT_EQ(e.kib227, chosen(problem, gpu)) << gpu.compute_capability;
    }
  }
}

TEST(Sm80ChoiceTest, SmallTilesWhereTheMaskCutsShortRows) {
  for (const Gpu& gpu : {k90, k100}) {
    EXPECT_EQ("d256_m64n64_s1_pair_tma", chosen(problem_of(256, 512, true), gpu));
    EXPECT_EQ("d256_m128n128_s1_pair_tma", chosen(problem_of(256, 512, false), gpu));
    EXPECT_EQ("d256_m128n128_s1_pair_tma", chosen(problem_of(256, 4096, true), gpu));
  }
}

TEST(Sm80ChoiceTest, EveryHeadDimGoesToTheNextTileOnEveryGpu) {
  for (const Gpu& gpu : kAll) {
    for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
      const KernelRow* row = best_row(problem_of(head_dim), gpu);
      ASSERT_NE(nullptr, row) << head_dim << " on " << gpu.compute_capability;
      EXPECT_EQ((head_dim + 31) / 32 * 32, row->head_dim) << gpu.compute_capability;
      EXPECT_LE(row->shared_memory_bytes, 1024 * gpu.shared_kib) << row->name;
    }
    EXPECT_EQ("none", chosen(problem_of(264), gpu));
    EXPECT_EQ("none", chosen(problem_of(60), gpu));
  }
}

TEST(Sm80ChoiceTest, NoTmaWhereThereIsNoneOrNoRoom) {
  for (const Gpu& gpu : {k80, k86, k87, k89, k120, k121}) {
    for (int64_t head_dim = 32; head_dim <= 256; head_dim += 32) {
      EXPECT_EQ(std::string::npos, chosen(problem_of(head_dim), gpu).find("tma"));
    }
  }
  const char* const row = "sm80_fp16_d64_m128n64_s3_tma";
  EXPECT_EQ("the device's compute capability is 8.0; takes 9.0 and later",
            reason_of(row, problem_of(64), k80));
  EXPECT_EQ("the device gives a CTA 99 KiB of shared memory; takes 227 KiB and more",
            reason_of(row, problem_of(64), k120));
}

TEST(Sm80ChoiceTest, TmasLimitsLeaveCpAsync) {
  ForwardProblem problem = problem_of(128);
  problem.k_strides.row = -problem.k_strides.row;
  EXPECT_EQ("d128_m128n64_s1", chosen(problem, k90));
  EXPECT_EQ("k: its row stride is -128 elements; takes multiples of 8 from 0 to 2^40 bytes",
            reason_of("sm80_fp16_d128_m128n64_s2_tma", problem, k90));
}

TEST(Sm80ChoiceTest, TooLittleSharedMemoryIsSaid) {
  // A GPU of 7.5 is refused before any row is asked (DeviceNotesTest); were it not, no row would
  // take it either. Nor would a slice of an 8.0 that gives a CTA no more.
  for (const Gpu& gpu : {k75, Gpu{80, 64, 10}}) {
    for (int64_t head_dim = 32; head_dim <= 256; head_dim += 32) {
      EXPECT_EQ("none", chosen(problem_of(head_dim), gpu)) << gpu.compute_capability;
    }
    EXPECT_EQ("the device gives a CTA 64 KiB of shared memory; takes 99 KiB and more",
              reason_of("sm80_fp16_d64_m128n64_s2", problem_of(64), gpu));
  }
}

TEST(Sm80ChoiceTest, KeysAreSplitByTheGpusSize) {
  ForwardProblem problem = problem_of(128, 8192);
  problem.batch = 1;
  problem.num_heads = problem.num_heads_kv = 2;
  problem.seqlen_q = 64;  // two tiles
  for (const Gpu& gpu : kAll) {
    const KernelRow* row = best_row(problem, gpu);
    ASSERT_NE(nullptr, row);
    // float32 O and (row_max, row_sum) of each split; two CTAs a multiprocessor.
    const int64_t blocks = 8192 / row->block_n;
    const int64_t splits =
        std::min<int64_t>({2 * gpu.num_multiprocessors / 2, blocks / 4, int64_t{64}});
    EXPECT_EQ(static_cast<size_t>(splits * 2 * 64 * (128 + 2) * 4),
              row->workspace_bytes(*row, problem, device_of(gpu)))
        << gpu.compute_capability << ": " << row->name;
  }
}

}  // namespace
}  // namespace sm80
}  // namespace tilefold
