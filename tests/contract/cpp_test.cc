// The C++ interface: the same answers and the same sentences as the C interface.
#include <tilefold/tilefold.hpp>

#include "support.h"

namespace tilefold::test {
namespace {

struct Buffers {
  Instance in = make_instance(simple_case(DType::kFloat32, 2, 9, 9, 16));
  const float* q() const { return static_cast<const float*>(in.q.dl()->data); }
  const float* k() const { return static_cast<const float*>(in.k.dl()->data); }
  const float* v() const { return static_cast<const float*>(in.v.dl()->data); }
  float* o() { return static_cast<float*>(in.o.dl()->data); }
  float* lse() { return static_cast<float*>(in.lse.dl()->data); }
};

const Extents kShape = {1, 2, 9, 16};

TEST(CppForwardTest, EqualsTheCInterface) {
  Buffers c;
  c.in.options.causal = TILEFOLD_CAUSAL_TOP_LEFT;
  ASSERT_EQ(forward(c.in), TILEFOLD_OK) << tilefold_last_error();
  Buffers b;
  Workspace workspace(0);
  tilefold::Workspace grown;
  tilefold::forward({b.q(), kShape}, {b.k(), kShape}, {b.v(), kShape}, {b.o(), kShape},
                    {b.lse(), {1, 2, 9}}, {.causal = Causal::kTopLeft}, &grown);
  EXPECT_TRUE(same_bits(b.in.o, c.in.o));
  EXPECT_TRUE(same_bits(b.in.lse, c.in.lse));
}

TEST(CppForwardTest, SwappedAxesAreTheSameProblem) {
  Buffers plain;
  tilefold::forward({plain.q(), kShape}, {plain.k(), kShape}, {plain.v(), kShape},
                    {plain.o(), kShape});
  Buffers b;
  Case c = simple_case(DType::kFloat32, 2, 9, 9, 16);
  c.q.strides = {288, 16, 32, 1};
  const Instance swapped = make_instance(c);
  const tilefold::ConstTensor q(static_cast<const float*>(swapped.q.dl()->data), {1, 9, 2, 16});
  tilefold::forward(q.swap_axes(1, 2), {b.k(), kShape}, {b.v(), kShape}, {b.o(), kShape});
  EXPECT_TRUE(same_bits(b.in.o, plain.in.o));
}

TEST(CppErrorTest, CarriesStatusAndSentence) {
  Buffers b;
  try {
    tilefold::forward({b.q(), kShape}, {b.k(), {1, 2, 9, 8}}, {b.v(), kShape}, {b.o(), kShape});
    FAIL() << "accepted";
  } catch (const tilefold::Error& error) {
    EXPECT_EQ(error.status(), TILEFOLD_ERROR_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(), "k: its head dim is 8, but that of q is 16; they must be equal");
  }
  EXPECT_TRUE(b.in.o.untouched());
}

TEST(CppErrorTest, StridesMustFitTheShape) {
  Buffers b;
  EXPECT_THROW(tilefold::ConstTensor(b.q(), kShape, {1, 2}), tilefold::Error);
  EXPECT_THROW(tilefold::Extents({1, 2, 3, 4, 5, 6, 7, 8, 9}), tilefold::Error);
  EXPECT_THROW(tilefold::ConstTensor(b.q(), kShape).swap_axes(1, 4), tilefold::Error);
}

TEST(CppOptionsTest, EqualTheDefaultsOfTheCInterface) {
  tilefold_options expected;
  ASSERT_EQ(tilefold_options_init(&expected, sizeof(expected)), TILEFOLD_OK);
  const tilefold_options actual = tilefold::Options{}.c_options();
  EXPECT_EQ(actual.causal, expected.causal);
  EXPECT_EQ(actual.has_scale, expected.has_scale);
  EXPECT_EQ(actual.scale, expected.scale);
  EXPECT_EQ(actual.empty_row_lse, expected.empty_row_lse);
  EXPECT_EQ(actual.window_left, expected.window_left);
  EXPECT_EQ(actual.window_right, expected.window_right);
  EXPECT_EQ(actual.window_align, expected.window_align);
  EXPECT_EQ(actual.num_threads, expected.num_threads);
  EXPECT_EQ(actual.kernel, nullptr);
}

TEST(CppExplainTest, SplitsTheText) {
  Buffers b;
  const auto explanation =
      tilefold::explain({b.q(), kShape}, {b.k(), kShape}, {b.v(), kShape}, {b.o(), kShape});
  EXPECT_NE(explanation.kernel, "none");
  EXPECT_EQ(explanation.rows.size(), tilefold::kernels().size());
  EXPECT_TRUE(b.in.o.untouched());
}

TEST(CppExplainTest, AnUnknownKernelThrowsAsInForward) {
  Buffers b;
  try {
    tilefold::explain({b.q(), kShape}, {b.k(), kShape}, {b.v(), kShape}, {b.o(), kShape},
                      {.kernel = "no_such_kernel"});
    FAIL() << "nothing was thrown";
  } catch (const tilefold::Error& error) {
    EXPECT_EQ(error.status(), TILEFOLD_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(std::string_view(error.what()).starts_with("kernel 'no_such_kernel'"))
        << error.what();
  }
}

TEST(CppWorkspaceTest, GrowsAndMoves) {
  tilefold::Workspace workspace;
  workspace.reserve(1000);
  EXPECT_GE(workspace.size_bytes(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace.data()) % tilefold::Workspace::kAlignment, 0u);
  void* const before = workspace.data();
  workspace.reserve(10);
  EXPECT_EQ(workspace.data(), before);
  tilefold::Workspace moved = std::move(workspace);
  EXPECT_EQ(moved.data(), before);
  moved = tilefold::Workspace();
  EXPECT_EQ(moved.data(), nullptr);
}

TEST(CppListsTest, DevicesAndKernels) {
  ASSERT_FALSE(tilefold::devices().empty());
  EXPECT_EQ(tilefold::devices()[0].device, tilefold::Device::cpu());
  EXPECT_EQ(static_cast<int32_t>(tilefold::kernels().size()), tilefold_kernel_count());
  EXPECT_EQ(tilefold::version(), TILEFOLD_VERSION_STRING);
}

}  // namespace
}  // namespace tilefold::test
