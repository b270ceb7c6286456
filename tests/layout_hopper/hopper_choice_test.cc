// The expected speeds that the choice among Hopper rows goes by: at the points that were measured,
// the fastest row is the one expected to be.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/sm90/forward_cost.h"

namespace tilefold::sm90 {
namespace {

struct Row {
  std::string name;
  ForwardConfig config;
};

std::vector<Row> rows() {
  std::vector<Row> all;
#define TILEFOLD_SM80_ROW(name, ...)
#define TILEFOLD_SM90_ROW(name, ...) all.push_back({#name, ForwardConfig{__VA_ARGS__}});
#include "cuda/kernels.def"
#undef TILEFOLD_SM90_ROW
#undef TILEFOLD_SM80_ROW
  return all;
}

DeviceProperties h200() {
  DeviceProperties device;
  device.type = DeviceType::kCuda;
  device.compute_capability = 90;
  device.num_multiprocessors = 132;
  return device;
}

// batch * n = 16384, heads * head_dim = 2048, as in the measurements.
ForwardProblem problem(int head_dim, int n, bool causal) {
  ForwardProblem p;
  p.dtype = DType::kFloat16;
  p.batch = 16384 / n;
  p.num_heads = p.num_heads_kv = 2048 / head_dim;
  p.seqlen_q = p.seqlen_k = n;
  p.head_dim = p.head_dim_v = head_dim;
  p.diagonal_left = -n;
  p.diagonal_right = causal ? 0 : n;
  return p;
}

std::string best(const ForwardProblem& p) {
  double highest = 0;
  std::string name;
  for (const Row& row : rows()) {
    const bool takes = row.config.dtype == p.dtype && row.config.head_dim >= p.head_dim &&
                       row.config.dim_v() >= p.head_dim_v &&
                       (row.config.masked || !(p.masks_left() || p.masks_right()));
    if (!takes) continue;
    const double efficiency = expected_efficiency(row.config, p, h200());
    if (efficiency > highest) {
      highest = efficiency;
      name = row.name;
    }
  }
  return name;
}

TEST(HopperChoiceTest, FastestMeasuredRowComesFirst) {
  EXPECT_EQ(best(problem(64, 512, false)), "sm90_fp16_d64_m256n64_s4");
  EXPECT_EQ(best(problem(64, 1024, false)), "sm90_fp16_d64_m256n64_s4");
  EXPECT_EQ(best(problem(64, 8192, false)), "sm90_fp16_d64_m192n128_s3");
  EXPECT_EQ(best(problem(64, 16384, false)), "sm90_fp16_d64_m192n128_s3");
  EXPECT_EQ(best(problem(128, 512, false)), "sm90_fp16_d128_m128n128_s2");
  EXPECT_EQ(best(problem(128, 1024, false)), "sm90_fp16_d128_m128n128_s2");
  EXPECT_EQ(best(problem(128, 4096, false)), "sm90_fp16_d128_m192n80_s3");
  EXPECT_EQ(best(problem(128, 512, true)), "sm90_fp16_d128_m192n64_s4_masked");
  EXPECT_EQ(best(problem(128, 1024, true)), "sm90_fp16_d128_m192n80_s3_masked");
  EXPECT_EQ(best(problem(128, 8192, true)), "sm90_fp16_d128_m192n80_s3_masked");
  EXPECT_EQ(best(problem(128, 16384, true)), "sm90_fp16_d128_m192n80_s3_masked");
}

TEST(HopperChoiceTest, TheTightestHeadDimComesFirst) {
  EXPECT_NE(best(problem(64, 4096, false)).find("_d64_"), std::string::npos);
  EXPECT_NE(best(problem(96, 4096, false)).find("_d96_"), std::string::npos);
  EXPECT_NE(best(problem(112, 4096, true)).find("_d128_"), std::string::npos);
  EXPECT_NE(best(problem(160, 4096, false)).find("_d192_"), std::string::npos);
  ForwardProblem latent = problem(192, 4096, true);
  latent.head_dim_v = 128;
  EXPECT_NE(best(latent).find("_d192v128_"), std::string::npos);
}

// One batch of float16 problems with few query rows.
ForwardProblem few_rows(int head_dim, int64_t batch, int64_t heads, int64_t group, int64_t rows,
                        int64_t keys) {
  ForwardProblem p = problem(head_dim, 512, false);
  p.batch = batch;
  p.num_heads = heads;
  p.num_heads_kv = heads / group;
  p.seqlen_q = rows;
  p.seqlen_k = keys;
  p.diagonal_left = -rows;
  p.diagonal_right = keys;
  return p;
}

TEST(HopperChoiceTest, PackedHeadsWhereTheyWereMeasuredToBeFaster) {
  const std::string packed = "sm90_fp16_d128_m128n128_s2_packed";
  const std::string plain = "sm90_fp16_d128_m128n128_s2";
  for (const int64_t keys : {1024, 4096, 16384}) {
    for (const int64_t batch : {2, 4, 8, 16, 128}) {
      EXPECT_EQ(best(few_rows(128, batch, 64, 8, 1, keys)), packed) << batch << " " << keys;
      EXPECT_EQ(best(few_rows(128, batch, 64, 8, 4, keys)), packed) << batch << " " << keys;
    }
    EXPECT_EQ(best(few_rows(128, 2, 64, 8, 32, keys)), plain);  // 128 tiles fill the GPU once
    EXPECT_EQ(best(few_rows(128, 4, 64, 8, 32, keys)), packed);
    EXPECT_EQ(best(few_rows(128, 2, 64, 8, 64, keys)), plain);
    EXPECT_EQ(best(few_rows(128, 4, 64, 8, 64, keys)), packed);
    EXPECT_EQ(best(few_rows(128, 16, 64, 8, 65, keys)).find("packed"), std::string::npos);
    EXPECT_EQ(best(few_rows(64, 16, 64, 1, 1, keys)), "sm90_fp16_d64_m128n128_s4_packed");
    EXPECT_EQ(best(few_rows(256, 32, 64, 8, 16, keys)), "sm90_fp16_d256_m128n64_s2_packed");
  }
  for (const int64_t group : {2, 4, 6, 16}) {
    EXPECT_EQ(best(few_rows(128, 16, 60 / group * group, group, 1, 4096)), packed) << group;
  }
}

// Packed tiles are 64, 128 and 256 wide: a problem between takes the next wider one rather than a
// tighter tile that computes 128 or 192 rows for each head.
TEST(HopperChoiceTest, PackedHeadsOfEveryWidth) {
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    const std::string row = head_dim <= 64    ? "sm90_fp16_d64_m128n128_s4_packed"
                            : head_dim <= 128 ? "sm90_fp16_d128_m128n128_s2_packed"
                                              : "sm90_fp16_d256_m128n64_s2_packed";
    for (const int64_t queries : {1, 8, 16}) {
      EXPECT_EQ(best(few_rows(head_dim, 32, 64, 8, queries, 4096)), row)
          << head_dim << " " << queries;
    }
    // More rows than are packed.
    EXPECT_EQ(best(few_rows(head_dim, 32, 64, 8, 512, 4096)).find("packed"), std::string::npos);
  }
  // One head alone gains too little (D = 128: 469 us against 475) to be worth a wider tile.
  EXPECT_NE(best(few_rows(72, 32, 64, 1, 8, 4096)).find("_d96_"), std::string::npos);
  EXPECT_NE(best(few_rows(160, 32, 64, 1, 8, 4096)).find("_d192_"), std::string::npos);
  ForwardProblem latent = few_rows(192, 32, 64, 8, 1, 4096);
  latent.head_dim_v = 128;
  EXPECT_EQ(best(latent), "sm90_fp16_d256_m128n64_s2_packed");
}

TEST(HopperChoiceTest, PackedHeadsAndSplitKeys) {
  ForwardConfig config;
  for (const Row& row : rows()) {
    if (row.name == "sm90_fp16_d128_m128n128_s2_packed") config = row.config;
  }
  ASSERT_TRUE(config.pack_heads);
  EXPECT_TRUE(wants_split_keys(config, few_rows(128, 1, 64, 8, 1, 4096), h200()));
  EXPECT_TRUE(wants_split_keys(config, few_rows(128, 1, 8, 8, 1, 2048), h200()));
  EXPECT_FALSE(wants_split_keys(config, few_rows(128, 1, 8, 8, 1, 1024), h200()));
  EXPECT_FALSE(wants_split_keys(config, few_rows(128, 2, 64, 8, 1, 16384), h200()));
}

TEST(HopperChoiceTest, EfficiencyIsAFraction) {
  for (const Row& row : rows()) {
    for (const int n : {1, 63, 64, 65, 1000, 4096}) {
      for (const bool causal : {false, true}) {
        const double efficiency = expected_efficiency(row.config, problem(64, n, causal), h200());
        EXPECT_GE(efficiency, 0.0) << row.name << " N = " << n;
        EXPECT_LE(efficiency, 1.0) << row.name << " N = " << n;
      }
    }
  }
}

TEST(HopperChoiceTest, FewTilesWithManyKeysAreLeftToSplitKeys) {
  const ForwardConfig config = rows().front().config;
  ForwardProblem p = problem(64, 16384, false);
  EXPECT_FALSE(wants_split_keys(config, p, h200()));
  p.seqlen_q = 1;
  p.num_heads = p.num_heads_kv = 8;
  EXPECT_TRUE(wants_split_keys(config, p, h200()));
  p.seqlen_k = 256;
  EXPECT_FALSE(wants_split_keys(config, p, h200()));
}

}  // namespace
}  // namespace tilefold::sm90
