// Few query rows under grouped heads on every GPU row: the shapes whose heads rows may pack into
// one tile, with what that could get wrong (whose row is whose, and where a head or a group ends).
#include <limits>
#include <vector>

#include "gpu_test.h"

namespace tilefold::gpu_test {
namespace {

class GroupedTest : public RowTest {
 protected:
  static Case grouped(int64_t seqlen_q, int64_t seqlen_k, int64_t group, int causal = 0) {
    Case c = base_case(GetParam(), seqlen_q, seqlen_k, causal);
    c.heads_kv = 2;
    c.heads = 2 * group;
    return c;
  }
};
TILEFOLD_GPU_ROWS(GroupedTest);

TEST_P(GroupedTest, FewQueriesOfGroupsOfEverySize) {
  int turn = 0;
  for (const int64_t group : {1, 2, 3, 4, 6, 8, 12, 16, 64}) {
    for (const int64_t nq : {1, 2, 4, 7, 8, 9, 16, 20, 33, 64}) {
      Case c = grouped(nq, turn % 2 == 0 ? 150 : 61, group, turn % 3);
      if (turn % 4 == 3) c.window_left = 20;
      if (turn % 5 == 4) c.window_right = 3;
      c.empty_row_lse = turn % 2;
      check(c);
      ++turn;
    }
  }
}

TEST_P(GroupedTest, RowsWithoutAKey) {
  for (const int64_t group : {2, 3, 8}) {
    for (const int64_t nq : {3, 9, 33, 64}) {
      for (const int64_t nk : {int64_t{0}, int64_t{1}, nq - 1}) {
        check(grouped(nq, nk, group, TILEFOLD_CAUSAL_BOTTOM_RIGHT));
      }
    }
  }
}

TEST_P(GroupedTest, ManyTilesForEveryCta) {
  for (const auto& [nq, group] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {5, 6}, {33, 4}, {64, 3}}) {
    Case c = grouped(nq, 150, group, group == 8 ? 0 : 2);
    c.batch = nq < 33 ? 200 : 100;  // three tiles of packed heads for each of 132 CTAs
    Instance instance = make_fast_instance(c);
    check(&instance, c.to_string(), nq < 33 ? 3 : 17);
  }
}

TEST_P(GroupedTest, StorageOfEveryKind) {
  for (const int64_t group : {3, 8}) {
    for (const int64_t nq : {1, 5, 20}) {
      Case c = grouped(nq, 130, group, nq == 5 ? 2 : 0);
      c.batch = 2;
      const auto bnhd = [&](int64_t heads, int64_t rows, int64_t columns, int64_t pad) {
        const int64_t row = heads * (columns + pad);
        return reference::Layout{{rows * row, columns + pad, row, 1}, 0};
      };
      const auto padded = [&](int64_t heads, int64_t rows, int64_t columns) {
        const int64_t head = (rows + 2) * (columns + 8);
        return reference::Layout{{heads * head + 16, head, columns + 8, 1}, 0};
      };
      // [B, N, H, D] storage, padded.
      Case stored = c;
      stored.q = bnhd(c.heads, nq, c.head_dim, 8);
      stored.k = bnhd(c.heads_kv, c.seqlen_k, c.head_dim, 0);
      stored.v = bnhd(c.heads_kv, c.seqlen_k, c.head_dim_v, 16);
      stored.o = bnhd(c.heads, nq, c.head_dim_v, 8);
      stored.lse.strides = {c.heads * nq * 2, 2, c.heads * 2};
      check(stored);
      // Gaps after rows, heads and batches.
      Case gaps = c;
      gaps.q = padded(c.heads, nq, c.head_dim);
      gaps.k = padded(c.heads_kv, c.seqlen_k, c.head_dim);
      gaps.v = padded(c.heads_kv, c.seqlen_k, c.head_dim_v);
      gaps.o = padded(c.heads, nq, c.head_dim_v);
      gaps.lse.strides = {c.heads * (nq + 3) + 1, nq + 3, 1};
      check(gaps);
      // One Q for all heads, or for all batches; heads in descending order.
      Case broadcast = c;
      broadcast.q.strides = {nq * c.head_dim, 0, c.head_dim, 1};
      check(broadcast);
      broadcast.q.strides = {0, nq * c.head_dim, c.head_dim, 1};
      broadcast.k.strides = {0, 0, c.head_dim, 1};
      check(broadcast);
      Case descending = c;
      descending.q.strides = {c.heads * nq * c.head_dim, -nq * c.head_dim, c.head_dim, 1};
      check(descending);
    }
  }
}

TEST_P(GroupedTest, NarrowerThanTheTile) {
  for (const int64_t dv : {int64_t{8}, GetParam().head_dim_v / 2 / 8 * 8}) {
    Case c = grouped(6, 140, 8, TILEFOLD_CAUSAL_BOTTOM_RIGHT);
    c.head_dim = c.head_dim - 8;
    if (dv > 0) c.head_dim_v = dv;
    check(c);
  }
}

TEST_P(GroupedTest, EveryKindOfValue) {
  for (const Values values : {Values::kLargeLogits, Values::kHugeLogits, Values::kZeroQueries,
                              Values::kNegative, Values::kOneHotKey, Values::kOffset}) {
    for (const int64_t nq : {1, 12}) {
      Case c = grouped(nq, 170, 6, nq == 1 ? 0 : 2);
      c.values = values;
      check(c);
      c.has_scale = true;
      c.scale = -0.3f;
      check(c);
    }
  }
}

// A value that is not finite reaches the rows that see it and no other: computed again by row.
TEST_P(GroupedTest, NonFiniteValuesReachTheRowsThatSeeThem) {
  for (const int64_t nq : {3, 8, 20, 50}) {
    for (const int64_t group : {3, 8}) {
      const Case c = grouped(nq, 140, group, TILEFOLD_CAUSAL_BOTTOM_RIGHT);
      Instance instance = reference::make_instance(c);
      const int64_t last = c.seqlen_k - 1;
      instance.v.put(std::numeric_limits<float>::infinity(), 0, 0, last - nq / 2, 3);
      instance.v.put(std::numeric_limits<float>::quiet_NaN(), 0, 1, last, 5);
      instance.k.put(std::numeric_limits<float>::quiet_NaN(), 0, 1, last - nq / 3, 1);
      check(&instance, "hidden values not finite, " + c.to_string());
    }
  }
}

}  // namespace
}  // namespace tilefold::gpu_test
