// Shapes, strides and sizes: every layout gives the bits of the contiguous one, every size the
// right answer.
#include <sys/mman.h>

#include <cmath>

#include "support.h"

namespace tilefold::test {
namespace {

class LayoutsTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryDType, LayoutsTest, ::testing::ValuesIn(kDTypes), dtype_suffix);

Case grouped_case(DType dtype) {
  Case c;
  c.dtype = dtype;
  c.batch = 2;
  c.heads = 6;
  c.heads_kv = 2;
  c.seqlen_q = 70;
  c.seqlen_k = 90;
  c.head_dim = c.head_dim_v = 32;
  c.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
  c.seed = 11;
  return c;
}

TEST_P(LayoutsTest, RandomStridesGiveTheBitsOfContiguous) {
  const Case plain = grouped_case(GetParam());
  Instance expected = make_instance(plain);
  ASSERT_TRUE(run_and_judge(expected));
  int different = 0;
  for (uint64_t seed = 0; different < 12; ++seed) {
    // The strides of a random case of the same extents.
    reference::CaseLimits limits;
    Case c = plain;
    const auto layout = [&](std::vector<int64_t> shape, uint64_t salt) {
      // Axes in a random order with gaps; every third layout with a negative stride.
      std::vector<size_t> order(shape.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (size_t i = order.size(); i-- > 1;) {
        std::swap(order[i], order[reference::random_bits(seed * 8 + salt, i) % (i + 1)]);
      }
      reference::Layout l;
      l.strides.assign(shape.size(), 0);
      int64_t stride = 1;
      for (size_t i = order.size(); i-- > 0;) {
        stride += static_cast<int64_t>(reference::random_bits(seed * 8 + salt, 10 + i) % 4);
        const bool negative = reference::random_bits(seed * 8 + salt, 20 + i) % 3 == 0;
        l.strides[order[i]] = negative ? -stride : stride;
        stride *= shape[order[i]];
      }
      l.offset_elems = static_cast<int64_t>(reference::random_bits(seed * 8 + salt, 30) % 8);
      return l;
    };
    c.q = layout({c.batch, c.heads, c.seqlen_q, c.head_dim}, 1);
    c.k = layout({c.batch, c.heads_kv, c.seqlen_k, c.head_dim}, 2);
    c.v = layout({c.batch, c.heads_kv, c.seqlen_k, c.head_dim_v}, 3);
    c.o = layout({c.batch, c.heads, c.seqlen_q, c.head_dim_v}, 4);
    c.lse = layout({c.batch, c.heads, c.seqlen_q}, 5);
    Instance in = make_instance(c);
    ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error() << "\n" << c.to_string();
    EXPECT_TRUE(same_bits(in.o, expected.o)) << c.to_string();
    EXPECT_TRUE(same_bits(in.lse, expected.lse)) << c.to_string();
    EXPECT_TRUE(in.o.surroundings_intact()) << c.to_string();
    EXPECT_TRUE(in.lse.surroundings_intact()) << c.to_string();
    ++different;
  }
}

TEST_P(LayoutsTest, SequenceMajorStorageGivesTheSameBits) {
  const Case plain = grouped_case(GetParam());
  Instance expected = make_instance(plain);
  ASSERT_EQ(forward(expected), TILEFOLD_OK) << tilefold_last_error();
  Case c = plain;
  const auto bnhd = [](int64_t heads, int64_t n, int64_t d) {
    return reference::Layout{{n * heads * d, d, heads * d, 1}, 0};
  };
  c.q = c.o = bnhd(c.heads, c.seqlen_q, 32);
  c.k = c.v = bnhd(c.heads_kv, c.seqlen_k, 32);
  Instance in = make_instance(c);
  ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_TRUE(same_bits(in.o, expected.o));
  EXPECT_TRUE(same_bits(in.lse, expected.lse));
}

TEST_P(LayoutsTest, NullStridesMeanContiguous) {
  Instance in = make_instance(grouped_case(GetParam()));
  ASSERT_TRUE(run_and_judge(in));
  Instance bare = make_instance(grouped_case(GetParam()));
  for (HostTensor* tensor : {&bare.q, &bare.k, &bare.v, &bare.o, &bare.lse}) {
    tensor->dl()->strides = nullptr;
  }
  ASSERT_EQ(forward(bare), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_TRUE(same_bits(in.o, bare.o));
}

TEST_P(LayoutsTest, TheByteOffsetCounts) {
  Instance in = make_instance(grouped_case(GetParam()));
  ASSERT_TRUE(run_and_judge(in));
  Instance moved = make_instance(grouped_case(GetParam()));
  for (HostTensor* tensor : {&moved.q, &moved.k, &moved.v, &moved.o, &moved.lse}) {
    tensor->dl()->byte_offset = static_cast<uint64_t>(tensor->data_offset_bytes());
    tensor->dl()->data = tensor->memory().data();
  }
  ASSERT_EQ(forward(moved), TILEFOLD_OK) << tilefold_last_error();
  for (HostTensor* tensor : {&moved.o, &moved.lse}) {
    tensor->dl()->data = static_cast<char*>(tensor->dl()->data) + tensor->dl()->byte_offset;
    tensor->dl()->byte_offset = 0;
  }
  EXPECT_TRUE(same_bits(in.o, moved.o));
}

TEST_P(LayoutsTest, TheStrideOfAnAxisOfLengthOneIsIgnored) {
  for (int64_t absurd : {int64_t{0}, int64_t{7}, int64_t{1} << 40, -(int64_t{1} << 62),
                         std::numeric_limits<int64_t>::max()}) {
    Case c = simple_case(GetParam(), 1, 1, 40, 16);
    Instance expected = make_instance(c);
    ASSERT_TRUE(run_and_judge(expected));
    Case odd = c;
    odd.q.strides = odd.o.strides = {absurd, absurd, absurd, 1};
    odd.k.strides = odd.v.strides = {absurd, absurd, 16, 1};
    odd.lse.strides = {absurd, absurd, absurd};
    Instance in = make_instance(odd);
    ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
    EXPECT_TRUE(same_bits(in.o, expected.o)) << absurd;
    EXPECT_TRUE(same_bits(in.lse, expected.lse)) << absurd;
  }
}

TEST_P(LayoutsTest, BroadcastKeysAndValuesEqualExpandedOnes) {
  const Case plain = grouped_case(GetParam());
  for (int axis : {0, 1, 2}) {
    Case c = plain;
    c.k.strides = c.v.strides = {2 * 90 * 32, 90 * 32, 32, 1};
    c.k.strides[axis] = c.v.strides[axis] = 0;
    Instance broadcast = make_instance(c);
    Instance expanded = make_instance(plain);
    expanded.k.fill([&](auto n) { return broadcast.k.get(n); });
    expanded.v.fill([&](auto n) { return broadcast.v.get(n); });
    ASSERT_EQ(forward(broadcast), TILEFOLD_OK) << tilefold_last_error();
    ASSERT_EQ(forward(expanded), TILEFOLD_OK) << tilefold_last_error();
    EXPECT_TRUE(same_bits(broadcast.o, expanded.o)) << "axis " << axis;
  }
}

TEST_P(LayoutsTest, ABaseOffByOneElementAndAnOddRowStride) {
  Case c = simple_case(GetParam(), 2, 70, 90, 64);
  Instance expected = make_instance(c);
  ASSERT_TRUE(run_and_judge(expected));
  for (int64_t offset : {1, 3, 7}) {
    c.q.offset_elems = c.k.offset_elems = c.v.offset_elems = c.o.offset_elems = offset;
    c.q.strides = c.o.strides = {2 * 70 * 65, 70 * 65, 65, 1};
    c.k.strides = c.v.strides = {2 * 90 * 65, 90 * 65, 65, 1};
    Instance in = make_instance(c);
    ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
    EXPECT_TRUE(same_bits(in.o, expected.o)) << offset;
    EXPECT_TRUE(in.o.surroundings_intact());
  }
}

TEST_P(LayoutsTest, EveryHeadDim) {
  std::vector<int64_t> dims = {1, 2, 3, 5, 7, 59, 65, 111, 127, 129, 257, 320, 512};
  for (int64_t d = 8; d <= 256; d += 8) dims.push_back(d);
  for (int64_t d : dims) {
    Case c = simple_case(GetParam(), 1, 40, 70, d);
    c.causal = TILEFOLD_CAUSAL_BOTTOM_RIGHT;
    ASSERT_TRUE(run_and_judge(c));
  }
}

TEST_P(LayoutsTest, ValuesOfAnotherWidth) {
  const int64_t pairs[][2] = {{64, 128}, {192, 128}, {128, 64}, {16, 1},   {1, 16},
                              {59, 111}, {64, 512},  {576, 64}, {32, 100}, {256, 8}};
  for (const auto& pair : pairs) {
    Case c = simple_case(GetParam(), 1, 50, 70, pair[0]);
    c.head_dim_v = pair[1];
    ASSERT_TRUE(run_and_judge(c));
  }
}

TEST_P(LayoutsTest, GroupsEqualExpandedHeads) {
  for (int64_t group = 1; group <= 16; ++group) {
    Case c = simple_case(GetParam(), 2, 20, 40, 16);
    c.heads = 2 * group;
    Instance grouped = make_instance(c);
    ASSERT_TRUE(run_and_judge(grouped));
    Case wide = c;
    wide.heads_kv = c.heads;
    Instance expanded = make_instance(wide);
    const auto from = [&](const HostTensor& tensor) {
      return [&tensor, group](std::span<const int64_t> n) {
        return tensor.at(n[0], n[1] / group, n[2], n[3]);
      };
    };
    expanded.k.fill(from(grouped.k));
    expanded.v.fill(from(grouped.v));
    ASSERT_EQ(forward(expanded), TILEFOLD_OK) << tilefold_last_error();
    EXPECT_TRUE(same_bits(grouped.o, expanded.o)) << "group " << group;
  }
}

TEST_P(LayoutsTest, MoreHeadsThanAGridAxisHolds) {
  Case c = simple_case(GetParam(), 1, 1, 1, 8);
  c.heads = c.heads_kv = 65537;
  c.seed = 5;
  Instance in = make_instance(c);
  ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_TRUE(same_bits(in.o, in.v));  // one key: its value
  Case batches = simple_case(GetParam(), 1, 1, 2, 8);
  batches.batch = 65537;
  ASSERT_TRUE(run_and_judge(batches));
}

// Nq = 1 over 4M keys: counters and sums of that length.
TEST(SizeTest, OneQueryOverFourMillionKeys) {
  constexpr int64_t kKeys = int64_t{1} << 22;
  constexpr int64_t kD = 16;
  Case c = simple_case(DType::kFloat16, 1, 1, 0, kD);
  Instance in = make_instance(c);
  in.k = HostTensor(DType::kFloat16, {1, 1, kKeys, kD});
  in.v = HostTensor(DType::kFloat16, {1, 1, kKeys, kD});
  // Written in place: the element-wise fill of 2^27 values would take half a minute.
  auto* k = static_cast<uint16_t*>(in.k.dl()->data);
  auto* v = static_cast<uint16_t*>(in.v.dl()->data);
  uint16_t table[1024];
  for (int i = 0; i < 1024; ++i) {
    table[i] = reference::float_to_half(static_cast<float>(reference::random_normal(3, i)));
  }
  for (int64_t i = 0; i < kKeys * kD; ++i) {
    k[i] = table[(i * 2654435761u >> 7) & 1023];
    v[i] = table[(i * 2246822519u >> 9) & 1023];
  }
  ASSERT_EQ(forward(in), TILEFOLD_OK) << tilefold_last_error();
  const auto expected = reference::attention(*in.q.dl(), *in.k.dl(), *in.v.dl(), &in.options);
  const auto comparison = reference::compare(expected, *in.o.dl(), in.lse.dl());
  EXPECT_TRUE(comparison.ok) << comparison.message();
}

// Memory of 4 GiB and more that is reserved, not used: only touched pages exist.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseMemory() {
    if (ok()) munmap(data_, bytes_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

TEST(SizeTest, ElementOffsetsBeyondTwoToTheThirtyOne) {
  // [1, 2, 3, 8], heads 2^31 + 8 elements apart, rows 2^29 + 16.
  constexpr int64_t kHead = (int64_t{1} << 31) + 8;
  constexpr int64_t kRow = (int64_t{1} << 29) + 16;
  constexpr size_t kBytes = (kHead + 2 * kRow + 64) * 2;
  Case c = simple_case(DType::kBFloat16, 2, 3, 3, 8);
  Instance plain = make_instance(c);
  ASSERT_TRUE(run_and_judge(plain));
  SparseMemory memory[4] = {SparseMemory(kBytes), SparseMemory(kBytes), SparseMemory(kBytes),
                            SparseMemory(kBytes)};
  int64_t shape[4] = {1, 2, 3, 8};
  int64_t strides[4] = {1, kHead, kRow, 1};
  DLTensor tensors[4];
  const HostTensor* sources[4] = {&plain.q, &plain.k, &plain.v, nullptr};
  for (int t = 0; t < 4; ++t) {
    if (!memory[t].ok()) GTEST_SKIP() << "the system reserves no " << kBytes << " bytes";
    tensors[t] = *plain.q.dl();
    tensors[t].data = memory[t].data();
    tensors[t].shape = shape;
    tensors[t].strides = strides;
    if (sources[t] == nullptr) continue;
    auto* out = static_cast<uint16_t*>(memory[t].data());
    reference::for_each_index(shape, [&](std::span<const int64_t> n) {
      out[n[1] * kHead + n[2] * kRow + n[3]] = static_cast<uint16_t>(sources[t]->bits_at(n));
    });
  }
  ASSERT_EQ(
      forward(&tensors[0], &tensors[1], &tensors[2], &tensors[3], plain.lse.dl(), &plain.options),
      TILEFOLD_OK)
      << tilefold_last_error();
  const auto* o = static_cast<const uint16_t*>(memory[3].data());
  reference::for_each_index(shape, [&](std::span<const int64_t> n) {
    EXPECT_EQ(o[n[1] * kHead + n[2] * kRow + n[3]], plain.o.bits_at(n));
  });
}

}  // namespace
}  // namespace tilefold::test
