// Misuse of the C interface: every refusal comes before any work, with a sentence, and leaves the
// outputs untouched.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "support.h"

namespace tilefold::test {
namespace {

// A sound call, of which each refusal below spoils one thing.
struct Call {
  Instance in;
  const DLTensor* q;
  const DLTensor* k;
  const DLTensor* v;
  const DLTensor* o;
  const DLTensor* lse;
  const tilefold_options* options;

  Call() {
    Case c;
    c.batch = 2;
    c.heads = 4;
    c.heads_kv = 2;
    c.seqlen_q = 5;
    c.seqlen_k = 7;
    c.head_dim = 16;
    c.head_dim_v = 8;
    in = make_instance(c);
    q = in.q.dl();
    k = in.k.dl();
    v = in.v.dl();
    o = in.o.dl();
    lse = in.lse.dl();
    options = &in.options;
  }
};

struct Refusal {
  const char* name;
  std::function<void(Call&)> spoil;
  tilefold_status status;
  const char* sentence;  // the whole of it, or, around "...", how it begins and how it ends;
                         // null: that for CUDA device 77
};

// What is said of CUDA device 77; of a build that has CUDA, the devices at hand decide.
std::string sentence_for_cuda_device_77() {
#ifdef TILEFOLD_TESTS_OF_CUDA_BUILD
  const int32_t num_cuda = tilefold_device_count() - 1;  // the first device is the CPU
  if (num_cuda == 0) return "q: it is on CUDA device 77, but the CUDA runtime shows no device: ...";
  return "q: it is on CUDA device 77; the devices here are 0 to " + std::to_string(num_cuda - 1);
#else
  return "q: it is on CUDA device 77, but this build of tilefold has no CUDA back end; build with "
         "nvcc (-DTILEFOLD_CUDA=ON)";
#endif
}

void expect_sentence(const std::string& wanted, const std::string& sentence) {
  const size_t dots = wanted.find("...");
  if (dots == std::string::npos) {
    EXPECT_EQ(sentence, wanted);
    return;
  }
  const std::string begin = wanted.substr(0, dots);
  const std::string end = wanted.substr(dots + 3);
  EXPECT_TRUE(sentence.starts_with(begin)) << sentence;
  EXPECT_TRUE(sentence.ends_with(end)) << sentence;
  EXPECT_GT(sentence.size(), begin.size() + end.size()) << sentence;
}

void set_shape(HostTensor& tensor, std::vector<int64_t> shape) {
  std::copy(shape.begin(), shape.end(), tensor.dl()->shape);
  tensor.dl()->strides = nullptr;
}

void set_strides(HostTensor& tensor, std::vector<int64_t> strides) {
  std::copy(strides.begin(), strides.end(), tensor.dl()->strides);
}

constexpr tilefold_status kInvalid = TILEFOLD_ERROR_INVALID_ARGUMENT;

const Refusal kRefusals[] = {
    // Missing things.
    {"QIsNull", [](Call& c) { c.q = nullptr; }, kInvalid, "q is NULL; a DLTensor is needed"},
    {"KIsNull", [](Call& c) { c.k = nullptr; }, kInvalid, "k is NULL; a DLTensor is needed"},
    {"VIsNull", [](Call& c) { c.v = nullptr; }, kInvalid, "v is NULL; a DLTensor is needed"},
    {"OIsNull", [](Call& c) { c.o = nullptr; }, kInvalid, "o is NULL; a DLTensor is needed"},
    {"ShapeIsNull", [](Call& c) { c.in.k.dl()->shape = nullptr; }, kInvalid,
     "k: its shape is NULL; an array of 4 extents is needed"},
    {"DataIsNull", [](Call& c) { c.in.v.dl()->data = nullptr; }, kInvalid,
     "v: its data pointer is NULL, but it has elements (shape [2, 2, 7, 8]); NULL is accepted for "
     "an empty tensor alone"},
    {"OutputDataIsNull", [](Call& c) { c.in.lse.dl()->data = nullptr; }, kInvalid,
     "lse: its data pointer is NULL, but it has elements (shape [2, 4, 5]); NULL is accepted for "
     "an empty tensor alone"},

    // Ranks and extents.
    {"RankOfQ", [](Call& c) { c.in.q.dl()->ndim = 3; }, kInvalid,
     "q: its rank is 3; accepted: 4, as [batch, heads, Nq, D]"},
    {"RankOfK", [](Call& c) { c.in.k.dl()->ndim = 5; }, kInvalid,
     "k: its rank is 5; accepted: 4, as [batch, kv heads, Nk, D]"},
    {"RankOfV", [](Call& c) { c.in.v.dl()->ndim = 0; }, kInvalid,
     "v: its rank is 0; accepted: 4, as [batch, kv heads, Nk, Dv]"},
    {"RankOfO", [](Call& c) { c.in.o.dl()->ndim = -1; }, kInvalid,
     "o: its rank is -1; accepted: 4, as [batch, heads, Nq, Dv]"},
    {"RankOfLse", [](Call& c) { c.in.lse.dl()->ndim = 4; }, kInvalid,
     "lse: its rank is 4; accepted: 3, as [batch, heads, Nq]"},
    {"NegativeExtent", [](Call& c) { c.in.q.dl()->shape[2] = -5; }, kInvalid,
     "q: the extent of axis 2 (Nq) is -5; it must be 0 or more"},
    {"HugeExtent", [](Call& c) { c.in.k.dl()->shape[2] = int64_t{1} << 41; }, kInvalid,
     "k: the extent of axis 2 (Nk) is 2199023255552; accepted: 0 to 1099511627776"},
    {"TooManyElements",
     [](Call& c) {
       for (HostTensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.in.o}) t->dl()->strides = nullptr;
       c.in.q.dl()->shape[0] = c.in.k.dl()->shape[0] = c.in.v.dl()->shape[0] =
           c.in.o.dl()->shape[0] = int64_t{1} << 40;
       c.in.q.dl()->shape[2] = c.in.o.dl()->shape[2] = int64_t{1} << 40;
       c.lse = nullptr;
     },
     kInvalid,
     "q: shape [1099511627776, 4, 1099511627776, 16] has more elements than a signed 64-bit number "
     "can count"},
    {"StridesBeyondTheAddressSpace",
     [](Call& c) { c.in.k.dl()->strides[1] = std::numeric_limits<int64_t>::max(); }, kInvalid,
     "k: its strides reach beyond the address space (shape [2, 2, 7, 16]); element offsets must "
     "stay "
     "within +-576460752303423487"},
    {"StridesBeyondTheAddressSpaceBelow",
     [](Call& c) { c.in.k.dl()->strides[0] = std::numeric_limits<int64_t>::min(); }, kInvalid,
     "k: its strides reach beyond the address space (shape [2, 2, 7, 16]); element offsets must "
     "stay "
     "within +-576460752303423487"},

    // Extents that do not agree.
    {"BatchOfK",
     [](Call& c) {
       set_shape(c.in.k, {1, 2, 7, 16});
     },
     kInvalid, "k: its batch is 1, but that of q is 2; they must be equal"},
    {"BatchOfV",
     [](Call& c) {
       set_shape(c.in.v, {1, 2, 7, 8});
     },
     kInvalid, "v: its batch is 1, but that of q is 2; they must be equal"},
    {"BatchOfO",
     [](Call& c) {
       set_shape(c.in.o, {1, 4, 5, 8});
     },
     kInvalid, "o: its batch is 1, but that of q is 2; they must be equal"},
    {"HeadDimOfK",
     [](Call& c) {
       set_shape(c.in.k, {2, 2, 7, 8});
     },
     kInvalid, "k: its head dim is 8, but that of q is 16; they must be equal"},
    {"HeadsOfV",
     [](Call& c) {
       set_shape(c.in.v, {2, 1, 7, 8});
     },
     kInvalid, "v: its number of heads is 1, but that of k is 2; they must be equal"},
    {"LengthOfV",
     [](Call& c) {
       set_shape(c.in.v, {2, 2, 6, 8});
     },
     kInvalid, "v: its length is 6, but that of k is 7; they must be equal"},
    {"HeadsOfO",
     [](Call& c) {
       set_shape(c.in.o, {2, 2, 5, 8});
     },
     kInvalid, "o: its number of heads is 2, but that of q is 4; they must be equal"},
    {"LengthOfO",
     [](Call& c) {
       set_shape(c.in.o, {2, 4, 4, 8});
     },
     kInvalid, "o: its length is 4, but that of q is 5; they must be equal"},
    {"HeadDimOfO",
     [](Call& c) {
       set_shape(c.in.o, {2, 4, 5, 4});
     },
     kInvalid, "o: its head dim is 4, but that of v is 8; they must be equal"},
    {"BatchOfLse",
     [](Call& c) {
       set_shape(c.in.lse, {1, 4, 5});
     },
     kInvalid, "lse: its batch is 1, but that of q is 2; they must be equal"},
    {"HeadsOfLse",
     [](Call& c) {
       set_shape(c.in.lse, {2, 2, 5});
     },
     kInvalid, "lse: its number of heads is 2, but that of q is 4; they must be equal"},
    {"LengthOfLse",
     [](Call& c) {
       set_shape(c.in.lse, {2, 4, 4});
     },
     kInvalid, "lse: its length is 4, but that of q is 5; they must be equal"},
    {"HeadDimZero",
     [](Call& c) {
       set_shape(c.in.q, {2, 4, 5, 0});
       set_shape(c.in.k, {2, 2, 7, 0});
     },
     kInvalid, "q: its head dim (D) is 0; accepted: 1 and more"},
    {"HeadDimVZero",
     [](Call& c) {
       set_shape(c.in.v, {2, 2, 7, 0});
       set_shape(c.in.o, {2, 4, 5, 0});
     },
     kInvalid, "v: its head dim (Dv) is 0; accepted: 1 and more"},
    {"HeadsNotAMultiple",
     [](Call& c) {
       set_shape(c.in.q, {2, 3, 5, 16});
       set_shape(c.in.o, {2, 3, 5, 8});
       set_shape(c.in.lse, {2, 3, 5});
     },
     kInvalid, "q: its number of heads is 3, which is not a multiple of that of k and v, 2"},
    {"NoKeyHeads",
     [](Call& c) {
       set_shape(c.in.k, {2, 0, 7, 16});
       set_shape(c.in.v, {2, 0, 7, 8});
     },
     kInvalid, "q: its number of heads is 4, which is not a multiple of that of k and v, 0"},

    // dtypes.
    {"IntegerInputs",
     [](Call& c) {
       c.in.q.dl()->dtype = {kDLInt, 32, 1};
     },
     kInvalid, "q: its dtype is int32; accepted: float16, bfloat16, float32"},
    {"DoubleInputs",
     [](Call& c) {
       c.in.v.dl()->dtype = {kDLFloat, 64, 1};
     },
     kInvalid, "v: its dtype is float64; accepted: float16, bfloat16, float32"},
    {"VectorLanes",
     [](Call& c) {
       c.in.k.dl()->dtype = {kDLFloat, 32, 4};
     },
     kInvalid, "k: its dtype is (code 2, bits 32, lanes 4); accepted: float16, bfloat16, float32"},
    {"MixedInputs",
     [](Call& c) {
       c.in.k.dl()->dtype = {kDLFloat, 16, 1};
     },
     kInvalid,
     "k: its dtype is float16, but that of q is float32; q, k, v and o must have one dtype"},
    {"OutputOfAnotherDType",
     [](Call& c) {
       c.in.o.dl()->dtype = {kDLBfloat, 16, 1};
     },
     kInvalid,
     "o: its dtype is bfloat16, but that of q is float32; q, k, v and o must have one dtype"},
    {"LseNotFloat32",
     [](Call& c) {
       c.in.lse.dl()->dtype = {kDLFloat, 16, 1};
     },
     kInvalid, "lse: its dtype is float16; accepted: float32"},

    // Devices.
    {"UnknownDevice",
     [](Call& c) {
       for (HostTensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.in.o, &c.in.lse}) {
         t->dl()->device = {kDLOpenCL, 0};
       }
     },
     kInvalid,
     "q: its device type is 4; accepted: 1 (CPU), 2 (CUDA), 3 (CUDA pinned host), 13 (CUDA "
     "managed)"},
    {"MixedDevices",
     [](Call& c) {
       c.in.v.dl()->device = {kDLCUDA, 0};
     },
     kInvalid,
     "v: it is on CUDA device 0 (device type 2), but q is on CPU device 0; all tensors must be on "
     "one device"},
    {"MixedDeviceNumbers",
     [](Call& c) {
       for (HostTensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.in.o, &c.in.lse}) {
         t->dl()->device = {kDLCUDA, 1};
       }
       c.in.o.dl()->device = {kDLCUDA, 2};
     },
     kInvalid,
     "o: it is on CUDA device 2 (device type 2), but q is on CUDA device 1; all tensors must be on "
     "one device"},
    {"NoSuchCudaDevice",
     [](Call& c) {
       for (HostTensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.in.o, &c.in.lse}) {
         t->dl()->device = {kDLCUDA, 77};
       }
     },
     TILEFOLD_ERROR_DEVICE, nullptr},

    // Memory.
    {"ByteOffsetBeyondTheAddressSpace",
     [](Call& c) { c.in.q.dl()->byte_offset = std::numeric_limits<uint64_t>::max() - 3; }, kInvalid,
     "q: its byte_offset is 18446744073709551612; data + byte_offset must be an address, at most "
     "0xffffffffffffffff"},
    {"ByteOffsetOfTheOutput",
     [](Call& c) { c.in.lse.dl()->byte_offset = std::numeric_limits<uint64_t>::max() - 3; },
     kInvalid,
     "lse: its byte_offset is 18446744073709551612; data + byte_offset must be an address, at most "
     "0xffffffffffffffff"},
    {"Misaligned", [](Call& c) { c.in.k.dl()->byte_offset = 2; }, kInvalid,
     "k: its address 0x... (data + byte_offset) is not a multiple of the element size, 4 bytes"},
    {"OutputWithStrideZero",
     [](Call& c) {
       set_strides(c.in.o, {0, 40, 8, 1});
     },
     kInvalid,
     "o: its strides do not nest (axis 0 (batch), stride 0 elements, shape [2, 4, 5, 8]), so that "
     "elements may share memory; an output's strides must each be larger than all that the smaller "
     "ones reach"},
    {"OutputRowsThatOverlap",
     [](Call& c) {
       set_strides(c.in.o, {160, 40, 7, 1});
     },
     kInvalid,
     "o: its strides do not nest (axis 2 (Nq), stride 7 elements, shape [2, 4, 5, 8]), so that "
     "elements may share memory; an output's strides must each be larger than all that the smaller "
     "ones reach"},
    {"LseWithStrideZero",
     [](Call& c) {
       set_strides(c.in.lse, {20, 5, 0});
     },
     kInvalid,
     "lse: its strides do not nest (axis 2 (Nq), stride 0 elements, shape [2, 4, 5]), so that "
     "elements may share memory; an output's strides must each be larger than all that the smaller "
     "ones reach"},
    {"OutputIsQ",
     [](Call& c) { c.in.o.dl()->data = static_cast<char*>(c.in.q.dl()->data) + 4 * 100; }, kInvalid,
     "o: the span of its bytes, first to last, overlaps that of q; an output needs a span of its "
     "own"},
    {"OutputOverlapsK",
     [](Call& c) {
       c.in.o.dl()->data = static_cast<char*>(c.in.k.dl()->data) + 4 * (2 * 2 * 7 * 16 - 1);
     },
     kInvalid,
     "o: the span of its bytes, first to last, overlaps that of k; an output needs a span of its "
     "own"},
    {"LseOverlapsV", [](Call& c) { c.in.lse.dl()->data = c.in.v.dl()->data; }, kInvalid,
     "lse: the span of its bytes, first to last, overlaps that of v; an output needs a span of its "
     "own"},
    {"LseOverlapsO", [](Call& c) { c.in.lse.dl()->data = c.in.o.dl()->data; }, kInvalid,
     "lse: the span of its bytes, first to last, overlaps that of o; an output needs a span of its "
     "own"},

    // Options.
    {"OptionsWithoutSize", [](Call& c) { c.in.options.struct_bytes = 0; }, kInvalid,
     "options.struct_bytes is 0; it must be sizeof(tilefold_options), at least 56: call "
     "tilefold_options_init() first"},
    {"OptionsOfUnbelievableSize", [](Call& c) { c.in.options.struct_bytes = 1000000; }, kInvalid,
     "options.struct_bytes is 1000000; it must be sizeof(tilefold_options), at most 4096: call "
     "tilefold_options_init() first"},
    {"Causal", [](Call& c) { c.in.options.causal = 3; }, kInvalid,
     "options.causal is 3; accepted: 0 (none), 1 (top-left), 2 (bottom-right)"},
    {"CausalNegative", [](Call& c) { c.in.options.causal = -1; }, kInvalid,
     "options.causal is -1; accepted: 0 (none), 1 (top-left), 2 (bottom-right)"},
    {"HasScale", [](Call& c) { c.in.options.has_scale = 2; }, kInvalid,
     "options.has_scale is 2; accepted: 0, 1"},
    {"ScaleNaN",
     [](Call& c) {
       c.in.options.has_scale = 1;
       c.in.options.scale = std::nanf("");
     },
     kInvalid, "options.scale is nan; accepted: any finite number"},
    {"ScaleInfinite",
     [](Call& c) {
       c.in.options.has_scale = 1;
       c.in.options.scale = -std::numeric_limits<float>::infinity();
     },
     kInvalid, "options.scale is -inf; accepted: any finite number"},
    {"ScaleWithoutItsSwitch", [](Call& c) { c.in.options.scale = 0.25f; }, kInvalid,
     "options.scale is 0.25 while options.has_scale is 0; set has_scale to 1 to use it, or leave "
     "scale at 0"},
    {"EmptyRowLse", [](Call& c) { c.in.options.empty_row_lse = 7; }, kInvalid,
     "options.empty_row_lse is 7; accepted: 0 (+inf), 1 (-inf)"},
    {"WindowLeft", [](Call& c) { c.in.options.window_left = -2; }, kInvalid,
     "options.window_left is -2; accepted: -1 (unbounded), or 0 and more"},
    {"WindowRight", [](Call& c) { c.in.options.window_right = -9; }, kInvalid,
     "options.window_right is -9; accepted: -1 (unbounded), or 0 and more"},
    {"WindowAlign", [](Call& c) { c.in.options.window_align = 3; }, kInvalid,
     "options.window_align is 3; accepted: 0 (auto), 1 (top-left), 2 (bottom-right)"},
    {"NumThreads", [](Call& c) { c.in.options.num_threads = -1; }, kInvalid,
     "options.num_threads is -1; accepted: 0 (as OpenMP decides), or 1 and more"},
    {"UnknownKernel", [](Call& c) { c.in.options.kernel = "sm70_of_old"; }, kInvalid,
     "kernel 'sm70_of_old' (from options.kernel) is not in this build; tilefold_get_kernel_info() "
     "and `tilefold info --kernels` list the ... that are"},
};

class RefusalTest : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(Arguments, RefusalTest, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(RefusalTest, SaysWhyAndTouchesNothing) {
  const Refusal& refusal = GetParam();
  Call c;
  refusal.spoil(c);
  EXPECT_EQ(tilefold_forward(c.q, c.k, c.v, c.o, c.lse, c.options, nullptr, 0, nullptr),
            refusal.status);
  const std::string sentence = tilefold_last_error();
  expect_sentence(refusal.sentence != nullptr ? refusal.sentence : sentence_for_cuda_device_77(),
                  sentence);
  EXPECT_TRUE(c.in.o.untouched());
  EXPECT_TRUE(c.in.lse.untouched());

  // The queries refuse the same call in the same words, and write nothing either.
  size_t bytes = 12345;
  EXPECT_EQ(tilefold_forward_workspace_bytes(c.q, c.k, c.v, c.o, c.lse, c.options, &bytes),
            refusal.status);
  EXPECT_EQ(tilefold_last_error(), sentence);
  EXPECT_EQ(bytes, 12345u);
  size_t needed = 12345;
  char text[8] = "before";
  const tilefold_status explained =
      tilefold_explain(c.q, c.k, c.v, c.o, c.lse, c.options, text, sizeof(text), &needed);
  if (std::string(refusal.name) == "UnknownKernel") return;  // explain answers "none"
  EXPECT_EQ(explained, refusal.status);
  EXPECT_EQ(tilefold_last_error(), sentence);
  EXPECT_EQ(needed, 12345u);
  EXPECT_STREQ(text, "before");
}

TEST(SoundCallTest, IsAccepted) {
  Call c;
  EXPECT_EQ(forward(c.q, c.k, c.v, c.o, c.lse, c.options), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_FALSE(c.in.o.untouched());
}

TEST(SoundCallTest, NullOptionsAreTheDefaults) {
  Call c;
  Call other;
  ASSERT_EQ(forward(c.q, c.k, c.v, c.o, c.lse, c.options), TILEFOLD_OK) << tilefold_last_error();
  ASSERT_EQ(forward(other.q, other.k, other.v, other.o, other.lse, nullptr), TILEFOLD_OK);
  EXPECT_TRUE(same_bits(c.in.o, other.in.o));
}

TEST(SoundCallTest, LseIsOptionalAndChangesNoBitOfO) {
  Call with;
  Call without;
  ASSERT_EQ(forward(with.q, with.k, with.v, with.o, with.lse, nullptr), TILEFOLD_OK);
  ASSERT_EQ(forward(without.q, without.k, without.v, without.o, nullptr, nullptr), TILEFOLD_OK);
  EXPECT_TRUE(same_bits(with.in.o, without.in.o));
  EXPECT_TRUE(without.in.lse.untouched());
}

TEST(SoundCallTest, InputsMayShareMemory) {
  Case c = simple_case(DType::kFloat32, 2, 6, 6, 16);
  Instance in = make_instance(c);
  Instance apart = make_instance(c);
  apart.k.fill([&](auto n) { return in.q.get(n); });
  apart.v.fill([&](auto n) { return in.q.get(n); });
  ASSERT_EQ(forward(in.q.dl(), in.q.dl(), in.q.dl(), in.o.dl(), nullptr, nullptr), TILEFOLD_OK);
  ASSERT_EQ(forward(apart), TILEFOLD_OK);
  EXPECT_TRUE(same_bits(in.o, apart.o));
}

TEST(SoundCallTest, AnOutputMayLieRightBesideAnInput) {
  Call c;
  // O right after the last element of K.
  std::vector<float> memory(2 * 2 * 7 * 16 + 2 * 4 * 5 * 8);
  DLTensor k = *c.in.k.dl();
  DLTensor o = *c.in.o.dl();
  reference::for_each_index(c.in.k.shape(), [&](std::span<const int64_t> n) {
    memory[((n[0] * 2 + n[1]) * 7 + n[2]) * 16 + n[3]] = c.in.k.get(n);
  });
  k.data = memory.data();
  o.data = memory.data() + 2 * 2 * 7 * 16;
  EXPECT_EQ(forward(c.q, &k, c.v, &o, nullptr, nullptr), TILEFOLD_OK) << tilefold_last_error();
}

TEST(EnvironmentTest, AForcedKernelThatIsUnknownIsRefused) {
  Call c;
  setenv("TILEFOLD_FORCE_KERNEL", "no_such_kernel", 1);
  EXPECT_EQ(tilefold_forward(c.q, c.k, c.v, c.o, c.lse, c.options, nullptr, 0, nullptr), kInvalid);
  unsetenv("TILEFOLD_FORCE_KERNEL");
  EXPECT_EQ(
      "kernel 'no_such_kernel' (from TILEFOLD_FORCE_KERNEL) is not in this build; "
      "tilefold_get_kernel_info() and `tilefold info --kernels` list the " +
          std::to_string(tilefold_kernel_count()) + " that are",
      tilefold_last_error());
  EXPECT_TRUE(c.in.o.untouched());
}

TEST(EnvironmentTest, AnEmptyVariableForcesNothing) {
  Call c;
  setenv("TILEFOLD_FORCE_KERNEL", "", 1);
  EXPECT_EQ(forward(c.q, c.k, c.v, c.o, c.lse, c.options), TILEFOLD_OK) << tilefold_last_error();
  unsetenv("TILEFOLD_FORCE_KERNEL");
}

TEST(ForcedKernelTest, EveryRowServesOrSaysWhyNot) {
  for (int32_t index = 0; index < tilefold_kernel_count(); ++index) {
    tilefold_kernel_info info = {};
    info.struct_bytes = sizeof(info);
    ASSERT_EQ(tilefold_get_kernel_info(index, &info), TILEFOLD_OK);
    Call c;
    c.in.options.kernel = info.name;
    const tilefold_status status = forward(c.q, c.k, c.v, c.o, c.lse, c.options);
    if (std::string(info.backend) == "cpu") {
      EXPECT_EQ(status, TILEFOLD_OK) << tilefold_last_error();
    } else {
      EXPECT_EQ(status, TILEFOLD_ERROR_UNSUPPORTED);
      EXPECT_EQ(tilefold_last_error(), "kernel '" + std::string(info.name) +
                                           "' cannot serve this problem: the tensors are on a CPU "
                                           "device");
      EXPECT_TRUE(c.in.o.untouched());
    }
  }
}

}  // namespace
}  // namespace tilefold::test
