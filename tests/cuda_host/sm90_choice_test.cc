// Which rows of the sm90 family take a problem on which GPU, the sentences of those that do not,
// and which row of both families an H200 is given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/sm90/forward_params.h"
#include "made_up.h"

namespace tilefold::sm90 {

// What sm90_kernels.cc refers to of each row, without the kernels: nothing here is launched.
#define TILEFOLD_SM80_ROW(name, ...)
#define TILEFOLD_SM90_ROW(name, ...) \
  const void* name##_kernel();       \
  const void* name##_kernel() { return nullptr; }
#include "cuda/kernels.def"
#undef TILEFOLD_SM90_ROW
#undef TILEFOLD_SM80_ROW

namespace {

constexpr Gpu kH200 = k90;
constexpr const char* kPlain = "sm90_fp16_d64_m256n64_s4";
constexpr const char* kPacked = "sm90_fp16_d64_m128n128_s4_packed";

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Contiguous, float16, without a mask; `group` query heads to a K/V head.
ForwardProblem shaped(int64_t head_dim, int64_t batch, int64_t heads, int64_t group, int64_t nq,
                      int64_t nk) {
  ForwardProblem p = problem_of(head_dim);
  p.batch = batch;
  p.num_heads = heads;
  p.num_heads_kv = heads / group;
  p.seqlen_q = nq;
  p.seqlen_k = nk;
  p.diagonal_left = -nq;
  p.diagonal_right = nk;
  set_strides(p);
  return p;
}

std::string reason(const char* name, const ForwardProblem& problem, const Gpu& gpu = kH200) {
  return reason_of(sm90_kernels(), name, problem, gpu);
}

bool taken(const char* name, const ForwardProblem& problem) {
  const KernelRow* row = row_named(sm90_kernels(), name);
  return row != nullptr && answer_of(*row, problem, kH200).wanted > 0;
}

// The row that dispatch picks: "d64_m256n64_s4" of "sm90_fp16_d64_m256n64_s4", all of an sm80 name.
std::string chosen(const ForwardProblem& problem, const Gpu& gpu = kH200) {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> all(sm90_kernels().begin(), sm90_kernels().end());
    all.insert(all.end(), sm80_kernels().begin(), sm80_kernels().end());
    return all;
  }();
  const KernelRow* row = best_of(rows, problem, gpu);
  const std::string name = row == nullptr ? "none" : row->name;
  return name.starts_with("sm90_fp16_") ? name.substr(10) : name;
}

TEST(Sm90ChoiceTest, TakesNothingOnOtherGpus) {
  const struct {
    Gpu gpu;
    const char* version;
  } others[] = {{k80, "8.0"}, {k89, "8.9"}, {k100, "10.0"}, {k120, "12.0"}};
  for (const auto& other : others) {
    for (const KernelRow& row : sm90_kernels()) {
      ForwardProblem problem = problem_of(row.head_dim, 64);
      EXPECT_EQ("the device's compute capability is " + std::string(other.version) + "; takes 9.0",
                reason(row.name, problem, other.gpu));
      EXPECT_TRUE(contains(chosen(problem, other.gpu), "sm80_")) << other.version;
    }
  }
}

TEST(Sm90ChoiceTest, DtypesAndHeadDims) {
  EXPECT_EQ("the dtype is float16; takes bfloat16",
            reason("sm90_bf16_d64_m256n64_s4", problem_of(64)));
  EXPECT_TRUE(taken(kPlain, problem_of(64)));
  EXPECT_EQ("D is 72; takes up to 64", reason(kPlain, problem_of(72)));
  const char* const latent = "sm90_fp16_d192v128_m128n128_s2";
  ForwardProblem problem = problem_of(192);
  EXPECT_EQ("Dv is 192; takes up to 128", reason(latent, problem));
  problem.head_dim_v = 128;
  set_strides(problem);
  EXPECT_TRUE(taken(latent, problem));
  EXPECT_EQ("none", chosen(problem_of(264)));
  // Of head dims only the strides are to be multiples of 8, which the sm80 rows ask of both.
  problem = problem_of(64);
  problem.head_dim = problem.head_dim_v = 60;
  EXPECT_EQ("d64_m256n64_s4", chosen(problem));
}

TEST(Sm90ChoiceTest, MasksAndOddScalesAreForMaskedRows) {
  for (const KernelRow& row : sm90_kernels()) {
    if (!contains(row.name, "fp16")) continue;
    const bool masked = contains(row.name, "_masked") || contains(row.name, "_packed");
    ForwardProblem window = problem_of(row.head_dim_v, 64);
    window.diagonal_left = -8;
    for (const ForwardProblem& problem : {problem_of(row.head_dim_v, 64, true), window}) {
      EXPECT_EQ(masked ? "" : "there is a mask; takes none (the masked rows take any)",
                answer_of(row, problem, kH200).text)
          << row.name;
    }
    ForwardProblem scaled = problem_of(row.head_dim_v, 64);
    for (const float scale : {-0.5f, 0.0f, FLT_MIN / 2, FLT_MAX}) {
      scaled.scale = scale;
      const std::string text = answer_of(row, scaled, kH200).text;
      EXPECT_EQ(masked, text.empty()) << row.name << ": " << text;
      EXPECT_EQ(!masked, contains(text, "; takes ordinary positive ones")) << row.name;
    }
    for (const float scale : {FLT_MIN, 2.0f, FLT_MAX / 2}) {
      scaled.scale = scale;
      EXPECT_TRUE(taken(row.name, scaled)) << row.name << " " << scale;
    }
  }
  ForwardProblem scaled = problem_of(64);
  scaled.scale = -0.5f;
  EXPECT_EQ("the scale is -0.5; takes ordinary positive ones (the masked rows take any)",
            reason(kPlain, scaled));
}

TEST(Sm90ChoiceTest, Sizes) {
  EXPECT_TRUE(taken(kPacked, shaped(64, 2, 16, 4, 64, 100)));
  EXPECT_EQ("Nq is 65; takes up to 64", reason(kPacked, shaped(64, 2, 16, 4, 65, 100)));
  constexpr int64_t kLongest = int64_t{1} << 29;
  EXPECT_TRUE(taken(kPlain, shaped(64, 1, 1, 1, kLongest, kLongest)));
  EXPECT_EQ("Nq is 536870913 and Nk is 1; takes up to 2^29",
            reason(kPlain, shaped(64, 1, 1, 1, kLongest + 1, 1)));
  EXPECT_EQ("Nq is 1 and Nk is 536870913; takes up to 2^29",
            reason(kPlain, shaped(64, 1, 1, 1, 1, kLongest + 1)));
  EXPECT_TRUE(taken(kPlain, shaped(64, 32768, 32768, 1, 256, 1)));
  EXPECT_EQ("there are more than 2^30 tiles (batch 32768, heads 32768, Nq 257); takes fewer",
            reason(kPlain, shaped(64, 32768, 32768, 1, 257, 1)));
  EXPECT_EQ("there are more than 2^30 tiles (batch 32769, heads 32768, Nq 0); takes fewer",
            reason(kPlain, shaped(64, 32769, 32768, 1, 0, 1)));
}

TEST(Sm90ChoiceTest, WhatTmaCannotAddress) {
  const struct {
    const char* name;
    Strides ForwardProblem::*strides;
  } operands[] = {{"q", &ForwardProblem::q_strides},
                  {"k", &ForwardProblem::k_strides},
                  {"v", &ForwardProblem::v_strides},
                  {"o", &ForwardProblem::o_strides}};
  const std::string takes = " elements; takes multiples of 8 from 0 to 2^40 bytes";
  for (const auto& operand : operands) {
    const std::string name = operand.name;
    ForwardProblem problem = problem_of(64);
    (problem.*operand.strides).row = 65;
    EXPECT_EQ(name + ": its row stride is 65" + takes, reason(kPlain, problem));
    (problem.*operand.strides).row = -64;
    EXPECT_EQ(name + ": its row stride is -64" + takes, reason(kPlain, problem));
    (problem.*operand.strides) = {0, 0, 64, 2};
    EXPECT_EQ(name + ": its last stride is 2; takes 1", reason(kPlain, problem));
  }
  // Where heads are packed, the stride from group to group has to fit too, if there are several.
  ForwardProblem problem = shaped(64, 1, 16, 8, 1, 100);
  problem.q_strides.head = int64_t{1} << 37;
  EXPECT_TRUE(taken(kPlain, problem));
  EXPECT_EQ("q: its group stride is 1099511627776" + takes, reason(kPacked, problem));
  problem = shaped(64, 1, 8, 8, 1, 100);
  problem.q_strides.head = int64_t{1} << 37;
  EXPECT_TRUE(taken(kPacked, problem));
  problem.q = static_cast<const char*>(problem.k) + 8;
  EXPECT_TRUE(contains(reason(kPlain, problem), "q: its address is 0x"));
}

// "64: <row>, 2048: <row>": the choices as N grows, at each N that changes it. 16384 rows in all,
// heads * head_dim = 2048, as in the measurements.
enum class Mask { kNone, kCausal, kWindow };
std::string choices(int64_t head_dim, int64_t head_dim_v, Mask mask, int64_t heads) {
  std::string text, last;
  for (const int64_t n : {64, 512, 1024, 2048, 4096, 16384}) {
    ForwardProblem p = shaped(head_dim, 16384 / n, heads, 1, n, n);
    p.head_dim_v = head_dim_v;
    set_strides(p);
    if (mask == Mask::kCausal) p.diagonal_right = 0;
    if (mask == Mask::kWindow) {
      p.diagonal_left = std::max<int64_t>(-n, -256);
      p.diagonal_right = 64;
    }
    const std::string row = chosen(p);
    if (row != last) text += (text.empty() ? "" : ", ") + std::to_string(n) + ": " + row;
    last = row;
  }
  return text;
}
std::string choices(int64_t head_dim, int64_t head_dim_v, Mask mask) {
  return choices(head_dim, head_dim_v, mask, 2048 / head_dim);
}

TEST(Sm90ChoiceTest, RowsOnAnH200) {
  const struct {
    int64_t head_dim, head_dim_v;
    const char* none;
    const char* causal;
    const char* window;
  } expected[] = {
      {40, 40, "64: d64_m128n128_s4_packed, 512: d64_m256n64_s4, 2048: d64_m192n128_s3",
       "64: d64_m128n128_s4_packed, 512: d64_m256n64_s4_masked, 2048: d64_m192n128_s3_masked",
       "64: d64_m128n128_s4_packed, 512: d64_m256n64_s4_masked, 1024: d64_m192n128_s3_masked, "
       "2048: d64_m256n64_s4_masked, 4096: d64_m192n128_s3_masked"},
      {64, 64, "64: d64_m128n128_s4_packed, 512: d64_m256n64_s4, 16384: d64_m192n128_s3",
       "64: d64_m128n128_s4_packed, 512: d64_m256n64_s4_masked, 2048: d64_m192n128_s3_masked",
       "64: d64_m128n128_s4_packed, 512: d64_m256n64_s4_masked, 1024: d64_m192n128_s3_masked, "
       "2048: d64_m256n64_s4_masked, 4096: d64_m192n128_s3_masked"},
      {72, 72, "64: d96_m128n128_s2, 1024: d96_m192n96_s2", "64: d96_m192n96_s2_masked",
       "64: d96_m128n128_s2, 512: d96_m192n96_s2_masked"},
      {96, 96, "64: d128_m128n128_s2_packed, 512: d96_m128n128_s2, 1024: d96_m192n96_s2",
       "64: d128_m128n128_s2_packed, 512: d96_m192n96_s2_masked",
       "64: d128_m128n128_s2_packed, 512: d96_m192n96_s2_masked"},
      {128, 128, "64: d128_m128n128_s2_packed, 512: d128_m128n128_s2, 2048: d128_m192n80_s3",
       "64: d128_m128n128_s2_packed, 512: d128_m192n64_s4_masked, 1024: d128_m192n80_s3_masked",
       "64: d128_m128n128_s2_packed, 512: d128_m192n64_s4_masked"},
      {160, 160, "64: d192_m128n80_s2", "64: d192_m128n64_s2_masked",
       "64: d192_m128n80_s2, 512: d192_m128n64_s2_masked"},
      {192, 192, "64: d192_m128n80_s2", "64: d256_m128n64_s2_packed, 512: d192_m128n64_s2_masked",
       "64: d192_m128n80_s2, 512: d192_m128n64_s2_masked"},
      {192, 128, "64: d192_m128n80_s2, 512: d192v128_m128n128_s2",
       "64: d192v128_m128n64_s3_masked, 2048: d192v128_m128n128_s2_masked",
       "64: d192_m128n80_s2, 512: d192v128_m128n64_s3_masked"},
      {256, 256, "64: d256_m128n64_s2_packed, 512: d256_m128n64_s2",
       "64: d256_m128n64_s2_packed, 512: d256_m128n64_s2_masked",
       "64: d256_m128n64_s2_packed, 512: d256_m128n64_s2_masked"},
  };
  for (const auto& e : expected) {
    EXPECT_EQ(e.none, choices(e.head_dim, e.head_dim_v, Mask::kNone)) << e.head_dim;
    EXPECT_EQ(e.causal, choices(e.head_dim, e.head_dim_v, Mask::kCausal)) << e.head_dim;
    EXPECT_EQ(e.window, choices(e.head_dim, e.head_dim_v, Mask::kWindow)) << e.head_dim;
  }
}

TEST(Sm90ChoiceTest, FewQueryRowsOfGroupsArePacked) {
  for (const int64_t head_dim : {8, 40, 64, 96, 128, 192, 256}) {
    const char* const packed = head_dim <= 64    ? "d64_m128n128_s4_packed"
                               : head_dim <= 128 ? "d128_m128n128_s2_packed"
                                                 : "d256_m128n64_s2_packed";
    for (const int64_t rows : {1, 4, 16}) {
      EXPECT_EQ(packed, chosen(shaped(head_dim, 16, 64, 8, rows, 4096))) << head_dim;
    }
  }
  EXPECT_EQ("d128_m128n128_s2", chosen(shaped(128, 2, 64, 8, 32, 4096)));  // these fill it once
}

// Tiles far wider than the problem are compared too where the table has no tighter ones.
TEST(Sm90ChoiceTest, NarrowProblemsGoToTheFastestOfTheTightestTiles) {
  for (const Mask mask : {Mask::kNone, Mask::kCausal, Mask::kWindow}) {
    for (const int64_t head_dim : {8, 16, 32, 40}) {
      // With as many tiles: the two without a mask are close.
      EXPECT_EQ(choices(64, 64, mask), choices(head_dim, head_dim, mask, 2048 / 64)) << head_dim;
    }
    EXPECT_EQ(choices(128, 128, mask), choices(128, 32, mask));
    EXPECT_EQ(choices(256, 256, mask), choices(256, 64, mask));
  }
}

TEST(Sm90ChoiceTest, AboveSm80RowsButWhereKeysAreSplit) {
  const auto compare = [](const ForwardProblem& problem, bool split) {
    int lowest[2] = {INT32_MAX, INT32_MAX}, highest[2] = {0, 0};
    for (const bool sm90 : {false, true}) {
      for (const KernelRow& row : sm90 ? sm90_kernels() : sm80_kernels()) {
        const Answer answer = answer_of(row, problem, kH200);
        if (answer.wanted == 0) continue;
        lowest[sm90] = std::min(lowest[sm90], answer.wanted);
        highest[sm90] = std::max(highest[sm90], answer.wanted);
        EXPECT_EQ(sm90 && split ? "few query tiles: kernels that split the keys come first" : "",
                  answer.text);
      }
    }
    EXPECT_GT(highest[true], 0);
    EXPECT_GT(highest[false], 0);
    EXPECT_LT(highest[split], lowest[!split]) << problem.head_dim << " " << split;
    EXPECT_GT(lowest[true], 1) << "the generic rows' 1";
  };
  for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    compare(shaped(head_dim, 4, 64, 8, 1, 8192), false);
    compare(problem_of(head_dim, 4096, true), false);
    compare(shaped(head_dim, 1, 2, 1, 64, 8192), true);
  }
  EXPECT_EQ("sm80_fp16_d128_m128n64_s2_tma", chosen(shaped(128, 1, 66, 1, 64, 8192)));
  EXPECT_EQ("d128_m128n128_s2_packed", chosen(shaped(128, 1, 67, 1, 64, 8192)));
}

TEST(Sm90ChoiceTest, MaskedRowsCountTheirTilesWhereThereAreMoreThanMultiprocessors) {
  const auto workspace = [](const char* name, int64_t heads) {
    const KernelRow* row = row_named(sm90_kernels(), name);
    return row->workspace_bytes(*row, shaped(64, 1, heads, 1, 64, 1024), device_of(kH200));
  };
  EXPECT_EQ(0u, workspace("sm90_fp16_d64_m256n64_s4_masked", 132));
  EXPECT_EQ(sizeof(TileCounter), workspace("sm90_fp16_d64_m256n64_s4_masked", 133));
  EXPECT_EQ(0u, workspace(kPlain, 133));
  EXPECT_EQ(0u, workspace(kPacked, 133));
}

}  // namespace
}  // namespace tilefold::sm90
