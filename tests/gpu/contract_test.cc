// Lengths, shapes and layouts of every GPU row against the float64 reference.
#include <algorithm>
#include <limits>
#include <vector>

#include "gpu_test.h"

namespace tilefold::gpu_test {
namespace {

class LengthTest : public RowTest {};
class LayoutTest : public RowTest {};
class ShapeTest : public RowTest {};
TILEFOLD_GPU_ROWS(LengthTest);
TILEFOLD_GPU_ROWS(LayoutTest);
TILEFOLD_GPU_ROWS(ShapeTest);

TEST_P(LengthTest, EveryLengthUpTo130) {
  for (int64_t n = 1; n <= 130; ++n) {
    check(base_case(GetParam(), n, n % 2 == 0 ? n : 131 - n, static_cast<int>(n % 3)));
    if (n % 3 != 0) check(base_case(GetParam(), 131 - n, n));
  }
}

TEST_P(LengthTest, LongerLengthsAroundPowersOfTwo) {
  for (const int64_t n : {255, 256, 257, 1023, 1025}) {
    for (const int causal : {0, 1, 2}) {
      check(served_case(n, n, causal));
      check(served_case(65, n, causal));
      check(served_case(n, 65, causal));
    }
  }
}

TEST_P(LengthTest, LengthsAroundTheTile) {
  constexpr int64_t kAnyBlock = 64;
  const int64_t m = GetParam().block_m > 0 ? GetParam().block_m : kAnyBlock;
  const int64_t n = GetParam().block_n > 0 ? GetParam().block_n : kAnyBlock;
  for (const int64_t nq : {m - 1, m, m + 1, 2 * m, 2 * m + 1, 3 * m - 1}) {
    for (const int64_t nk : {n - 1, n, n + 1, 2 * n, 2 * n + 1, 3 * n, 4 * n, 5 * n - 1}) {
      check(served_case(nq, nk, static_cast<int>((nq + nk) % 3)));
    }
  }
}

TEST_P(LengthTest, NoKeysGiveZerosAndTheEmptyRowLse) {
  for (const int causal : {0, 1, 2}) {
    for (const int empty : {0, 1}) {
      Case c = served_case(70, 0, causal);
      c.empty_row_lse = empty;
      check(c);
    }
  }
}

TEST_P(LengthTest, NoQueriesOrNoBatchOrNoHeadsWriteNothing) {
  for (const int which : {0, 1, 2}) {
    Case c = base_case(GetParam(), which == 0 ? 0 : 5, 7);
    if (which == 1) c.batch = 0;
    if (which == 2) c.heads = 0;
    Instance instance = reference::make_instance(c);
    if (!run(&instance, c.to_string())) continue;
    EXPECT_TRUE(instance.o.untouched());
    EXPECT_TRUE(instance.lse.untouched());
  }
}

TEST_P(LengthTest, OneQueryUnderTopLeftSeesKeyZeroAlone) {
  Case c = base_case(GetParam(), 1, 77, TILEFOLD_CAUSAL_TOP_LEFT);
  Instance instance = reference::make_instance(c);
  if (!check(&instance, c.to_string())) return;
  for (int64_t d = 0; d < c.head_dim_v; ++d) {
    EXPECT_EQ(instance.v.at(0, 0, 0, d), instance.o.at(0, 0, 0, d));
  }
}

TEST_P(ShapeTest, EveryHeadDimUpToTheTile) {
  const int64_t largest = GetParam().head_dim > 0 ? GetParam().head_dim : 96;
  for (int64_t d = 8; d <= largest; d += 8) {
    Case c = served_case(70, 131, static_cast<int>(d / 8 % 2));
    c.head_dim = d;
    c.head_dim_v = GetParam().head_dim_v == GetParam().head_dim ? d : c.head_dim_v;
    check(c);
  }
}

TEST_P(ShapeTest, OddAndDifferentHeadDims) {
  for (const int64_t d : {1, 2, 3, 7, 24, 40, 59, 72, 111, 128, 264, 321}) {
    Case c = base_case(GetParam(), 37, 90, causal_if_served(TILEFOLD_CAUSAL_BOTTOM_RIGHT));
    c.head_dim = d;
    c.head_dim_v = d;
    check(c);
    c.head_dim_v = d + 8;
    check(c);
    c.head_dim_v = std::max<int64_t>(d / 2 / 8 * 8, 1);
    check(c);
  }
}

TEST_P(ShapeTest, EveryGroupSizeEqualsTheExpandedHeads) {
  for (int64_t group = 1; group <= 16; ++group) {
    Case c = base_case(GetParam(), group % 2 == 0 ? 33 : 5, 150, static_cast<int>(group % 3));
    c.batch = 2;
    c.heads_kv = 2;
    c.heads = 2 * group;
    Instance grouped = reference::make_instance(c);
    if (!check(&grouped, c.to_string())) continue;
    // The same keys and values, written out for every query head.
    Case expanded_case = c;
    expanded_case.heads_kv = c.heads;
    Instance expanded = reference::make_instance(expanded_case);
    expanded.q = grouped.q.clone();
    for (HostTensor Instance::*member : {&Instance::k, &Instance::v}) {
      const HostTensor& from = grouped.*member;
      (expanded.*member).fill([&](std::span<const int64_t> i) {
        return from.at(i[0], i[1] / group, i[2], i[3]);
      });
    }
    check(&expanded, expanded_case.to_string());
  }
}

// A tensor of [B, N, H, D] storage under the logical order [B, H, N, D].
HostTensor stored_bnhd(const HostTensor& from) {
  const auto& n = from.shape();
  HostTensor to(from.dtype(), n, {n[2] * n[1] * n[3], n[3], n[1] * n[3], 1});
  to.fill([&](std::span<const int64_t> i) { return from.get(i); });
  return to;
}

TEST_P(LayoutTest, StorageOrderDoesNotChangeABit) {
  for (const int causal : {0, 1}) {
    Case c = served_case(100, 200, causal);
    c.batch = 2;
    c.heads = 4;
    c.heads_kv = 2;
    Instance bhnd = reference::make_instance(c);
    if (!check(&bhnd, c.to_string())) continue;
    Instance bnhd = reference::make_instance(c);
    bnhd.q = stored_bnhd(bhnd.q);
    bnhd.k = stored_bnhd(bhnd.k);
    bnhd.v = stored_bnhd(bhnd.v);
    bnhd.o = stored_bnhd(bhnd.o);
    bnhd.o.poison();
    if (!run(&bnhd, "[B, N, H, D] storage of " + c.to_string())) continue;
    EXPECT_TRUE(reference::same_bits(bhnd.o, bnhd.o));
    EXPECT_TRUE(reference::same_bits(bhnd.lse, bnhd.lse));
  }
}

TEST_P(LayoutTest, PaddedRowsAndNegativeStrides) {
  Case c = served_case(90, 140, causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT));
  c.batch = 2;
  const auto layout = [](int64_t heads, int64_t rows, int64_t columns, int64_t pad, int sign) {
    const int64_t row = columns + pad;
    return reference::Layout{{sign * heads * rows * row, rows * row, sign * row, 1}, 0};
  };
  for (const int64_t pad : {0, 8, 1, 24}) {
    for (const int sign : {1, -1}) {
      c.q = layout(c.heads, c.seqlen_q, c.head_dim, pad, sign);
      c.k = layout(c.heads_kv, c.seqlen_k, c.head_dim, pad, sign);
      c.v = layout(c.heads_kv, c.seqlen_k, c.head_dim_v, pad, sign);
      c.o = layout(c.heads, c.seqlen_q, c.head_dim_v, pad, sign);
      check(c);
    }
  }
}

TEST_P(LayoutTest, BasesOffByOneElement) {
  for (const int64_t offset : {1, 8, 4}) {
    Case c = served_case(66, 130);
    c.q.offset_elems = c.k.offset_elems = c.v.offset_elems = c.o.offset_elems = offset;
    c.lse.offset_elems = offset;
    check(c);
    Case single = served_case(66, 130);
    single.k.offset_elems = offset;
    check(single);
    Case output = served_case(66, 130);
    output.o.offset_elems = offset;
    check(output);
  }
}

TEST_P(LayoutTest, StridesOfAxesOfLengthOneAreIgnored) {
  Case plain = served_case(66, 99, causal_if_served(TILEFOLD_CAUSAL_BOTTOM_RIGHT));
  plain.heads = 1;
  Instance expected = reference::make_instance(plain);
  if (!check(&expected, plain.to_string())) return;
  for (const int64_t absurd : {int64_t{0}, int64_t{7}, int64_t{1} << 40}) {
    Case c = plain;
    c.q.strides = {absurd, absurd, c.head_dim, 1};
    c.k.strides = {absurd, absurd, c.head_dim, 1};
    c.v.strides = {absurd, absurd, c.head_dim_v, 1};
    c.o.strides = {absurd, absurd, c.head_dim_v, 1};
    Instance instance = reference::make_instance(c);
    if (!run(&instance, c.to_string())) continue;
    EXPECT_TRUE(reference::same_bits(expected.o, instance.o)) << "stride " << absurd;
    EXPECT_TRUE(reference::same_bits(expected.lse, instance.lse)) << "stride " << absurd;
  }
}

TEST_P(LayoutTest, StrideZeroEqualsTheExpandedTensor) {
  Case c = base_case(GetParam(), 50, 120);
  c.batch = 3;
  c.heads = 4;
  c.heads_kv = 2;
  c.k.strides = {0, 0, c.head_dim, 1};
  c.v.strides = {0, c.seqlen_k * c.head_dim_v, c.head_dim_v, 1};
  c.q.strides = {0, c.seqlen_q * c.head_dim, c.head_dim, 1};
  check(c);
}

// Transposed storage, broadcast rows, interleaved heads: rows that do not serve them say so.
TEST_P(LayoutTest, ColumnsThatAreNotContiguous) {
  Case c = base_case(GetParam(), 40, 75, causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT));
  c.q.strides = {c.heads * c.head_dim * c.seqlen_q, c.head_dim * c.seqlen_q, 1, c.seqlen_q};
  check(c);
  c.k.strides = {c.head_dim * c.seqlen_k, c.head_dim * c.seqlen_k, 1, c.seqlen_k};
  c.v.strides = {2 * c.head_dim_v * c.seqlen_k, 2 * c.head_dim_v * c.seqlen_k, 2 * c.head_dim_v, 2};
  check(c);
  c.o.strides = {c.heads * c.head_dim_v * c.seqlen_q, c.head_dim_v * c.seqlen_q, 1, c.seqlen_q};
  check(c);
  c.k.strides = {0, 0, 0, 1};
  check(c);
}

TEST_P(LayoutTest, OutputsHaveStridesOfTheirOwn) {
  Case c = served_case(77, 130, causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT));
  c.batch = 2;
  const int64_t row = c.head_dim_v + 16;
  c.o.strides = {c.seqlen_q * row, 2 * c.seqlen_q * row, row, 1};
  c.lse.strides = {3 * c.heads, 3, 3 * c.heads * c.batch};
  check(c);
  c.want_lse = false;
  check(c);
}

}  // namespace
}  // namespace tilefold::gpu_test
