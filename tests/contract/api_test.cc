// The rest of the C interface: versions, statuses, options that grow, explanations, devices,
// kernels.
#include <cstring>
#include <thread>

#include "support.h"

namespace tilefold::test {
namespace {

TEST(VersionTest, IsThatOfTheHeader) {
  EXPECT_STREQ(tilefold_version(), TILEFOLD_VERSION_STRING);
  EXPECT_EQ(std::to_string(TILEFOLD_VERSION_MAJOR) + "." + std::to_string(TILEFOLD_VERSION_MINOR) +
                "." + std::to_string(TILEFOLD_VERSION_PATCH),
            tilefold_version());
}

TEST(StatusTest, EveryStatusHasAName) {
  const char* names[] = {
      "ok",         "invalid argument", "unsupported",   "workspace", "device not usable",
      "CUDA error", "out of memory",    "internal error"};
  for (int status = 0; status < 8; ++status) {
    EXPECT_STREQ(tilefold_status_string(static_cast<tilefold_status>(status)), names[status]);
  }
}

TEST(LastErrorTest, BelongsToTheThread) {
  ASSERT_EQ(tilefold_options_init(nullptr, 0), TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(tilefold_last_error(),
               "tilefold_options_init: options is NULL; a tilefold_options is needed");
  std::string other = "unset";
  std::thread([&] { other = tilefold_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_STREQ(tilefold_last_error(),
               "tilefold_options_init: options is NULL; a tilefold_options is needed");
}

TEST(OptionsTest, InitGivesTheDefaults) {
  tilefold_options options;
  std::memset(&options, 0xab, sizeof(options));
  ASSERT_EQ(tilefold_options_init(&options, sizeof(options)), TILEFOLD_OK);
  EXPECT_EQ(options.struct_bytes, sizeof(options));
  EXPECT_EQ(options.causal, TILEFOLD_CAUSAL_NONE);
  EXPECT_EQ(options.has_scale, 0);
  EXPECT_EQ(options.scale, 0.0f);
  EXPECT_EQ(options.empty_row_lse, TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY);
  EXPECT_EQ(options.window_left, -1);
  EXPECT_EQ(options.window_right, -1);
  EXPECT_EQ(options.window_align, TILEFOLD_WINDOW_ALIGN_AUTO);
  EXPECT_EQ(options.num_threads, 0);
  EXPECT_EQ(options.kernel, nullptr);
}

TEST(OptionsTest, InitRefusesNullAndTooSmall) {
  tilefold_options options;
  std::memset(&options, 0xab, sizeof(options));
  EXPECT_EQ(tilefold_options_init(&options, 8), TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(tilefold_last_error(),
               "tilefold_options_init: struct_bytes is 8; it must be sizeof(tilefold_options), at "
               "least 56");
  unsigned char expected[sizeof(options)];
  std::memset(expected, 0xab, sizeof(expected));
  EXPECT_EQ(std::memcmp(&options, expected, sizeof(options)), 0) << "written on refusal";
}

// A size that was never set: nothing may be written.
TEST(OptionsTest, InitRefusesUnbelievableSizes) {
  tilefold_options options;
  std::memset(&options, 0xab, sizeof(options));
  for (size_t bytes : {size_t{4097}, size_t{1} << 30, ~size_t{0}}) {
    EXPECT_EQ(tilefold_options_init(&options, bytes), TILEFOLD_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(tilefold_last_error(), "tilefold_options_init: struct_bytes is " +
                                         std::to_string(bytes) +
                                         "; it must be sizeof(tilefold_options), at most 4096");
  }
  unsigned char expected[sizeof(options)];
  std::memset(expected, 0xab, sizeof(expected));
  EXPECT_EQ(std::memcmp(&options, expected, sizeof(options)), 0) << "written on refusal";
  std::vector<unsigned char> largest(4096 + 1, 0xab);
  EXPECT_EQ(tilefold_options_init(reinterpret_cast<tilefold_options*>(largest.data()), 4096),
            TILEFOLD_OK);
  EXPECT_EQ(largest[4095], 0);
  EXPECT_EQ(largest[4096], 0xab);
}

// A struct of a later release: more members, at its end.
struct LaterOptions {
  tilefold_options base;
  int64_t future[3];
};

TEST(OptionsTest, ALaterStructIsInitialisedAndAcceptedWhileItsNewMembersAreZero) {
  LaterOptions later;
  std::memset(&later, 0xab, sizeof(later));
  ASSERT_EQ(tilefold_options_init(&later.base, sizeof(later)), TILEFOLD_OK);
  EXPECT_EQ(later.base.struct_bytes, sizeof(later));
  EXPECT_EQ(later.future[0], 0);
  EXPECT_EQ(later.future[2], 0);
  Instance in = make_instance(simple_case(DType::kFloat32, 1, 4, 4, 16));
  EXPECT_EQ(forward(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, &later.base), TILEFOLD_OK)
      << tilefold_last_error();
}

TEST(OptionsTest, ALaterStructWhoseNewMembersAreUsedIsRefused) {
  LaterOptions later = {};
  ASSERT_EQ(tilefold_options_init(&later.base, sizeof(later)), TILEFOLD_OK);
  later.future[1] = 1;
  Instance in = make_instance(simple_case(DType::kFloat32, 1, 4, 4, 16));
  EXPECT_EQ(forward(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, &later.base),
            TILEFOLD_ERROR_UNSUPPORTED);
  EXPECT_STREQ(tilefold_last_error(),
               "options: byte 64 is set, which belongs to a later version; this is version 0.1.0, "
               "whose options have 56 bytes");
  EXPECT_TRUE(in.o.untouched());
}

TEST(OptionsTest, TheLayoutOfTheFirstReleaseStands) {
  EXPECT_EQ(sizeof(tilefold_options), 56u);
  EXPECT_EQ(offsetof(tilefold_options, struct_bytes), 0u);
  EXPECT_EQ(offsetof(tilefold_options, causal), 8u);
  EXPECT_EQ(offsetof(tilefold_options, has_scale), 12u);
  EXPECT_EQ(offsetof(tilefold_options, scale), 16u);
  EXPECT_EQ(offsetof(tilefold_options, empty_row_lse), 20u);
  EXPECT_EQ(offsetof(tilefold_options, window_left), 24u);
  EXPECT_EQ(offsetof(tilefold_options, window_right), 32u);
  EXPECT_EQ(offsetof(tilefold_options, window_align), 40u);
  EXPECT_EQ(offsetof(tilefold_options, num_threads), 44u);
  EXPECT_EQ(offsetof(tilefold_options, kernel), 48u);
}

TEST(InfosTest, TheSizesOfTheFirstReleaseAreTaken) {
  tilefold_device_info device = {};
  device.struct_bytes = 432;
  EXPECT_EQ(tilefold_get_device_info(0, &device), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_EQ(device.struct_bytes, 432u);
  device.struct_bytes = 431;
  EXPECT_EQ(tilefold_get_device_info(0, &device), TILEFOLD_ERROR_INVALID_ARGUMENT);
  tilefold_kernel_info kernel = {};
  kernel.struct_bytes = 184;
  EXPECT_EQ(tilefold_get_kernel_info(0, &kernel), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_EQ(kernel.struct_bytes, 184u);
  kernel.struct_bytes = 183;
  EXPECT_EQ(tilefold_get_kernel_info(0, &kernel), TILEFOLD_ERROR_INVALID_ARGUMENT);
}

TEST(WorkspaceTest, TheQueryNeedsAPlaceForItsAnswer) {
  Instance in = make_instance(simple_case(DType::kFloat32, 1, 4, 4, 16));
  EXPECT_EQ(tilefold_forward_workspace_bytes(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr,
                                             nullptr, nullptr),
            TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(
      tilefold_last_error(),
      "tilefold_forward_workspace_bytes: workspace_bytes is NULL; a size_t to write is needed");
}

// Whatever the kernel asks for, less of it is refused; a kernel that asks for nothing takes
// nothing.
TEST(WorkspaceTest, TooLittleIsRefused) {
  Instance in = make_instance(simple_case(DType::kFloat16, 2, 70, 700, 64));
  size_t bytes = 12345;
  ASSERT_EQ(tilefold_forward_workspace_bytes(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(),
                                             in.lse.dl(), nullptr, &bytes),
            TILEFOLD_OK);
  if (bytes == 0) {
    EXPECT_EQ(tilefold_forward(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), in.lse.dl(), nullptr,
                               nullptr, 0, nullptr),
              TILEFOLD_OK);
    return;
  }
  EXPECT_EQ(tilefold_forward(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), in.lse.dl(), nullptr,
                             nullptr, bytes, nullptr),
            TILEFOLD_ERROR_WORKSPACE);
  const Workspace workspace(bytes + 256);
  EXPECT_EQ(tilefold_forward(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), in.lse.dl(), nullptr,
                             workspace.data(), bytes - 1, nullptr),
            TILEFOLD_ERROR_WORKSPACE);
  EXPECT_EQ(tilefold_forward(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), in.lse.dl(), nullptr,
                             static_cast<char*>(workspace.data()) + 64, bytes, nullptr),
            TILEFOLD_ERROR_WORKSPACE);
  EXPECT_TRUE(in.o.untouched());
}

TEST(ExplainTest, NamesTheKernelThenEveryRow) {
  Instance in = make_instance(simple_case(DType::kFloat32, 1, 4, 4, 16));
  size_t needed = 0;
  ASSERT_EQ(tilefold_explain(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, nullptr, nullptr,
                             0, &needed),
            TILEFOLD_OK);
  std::string text(needed, 'x');
  ASSERT_EQ(tilefold_explain(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, nullptr,
                             text.data(), text.size(), nullptr),
            TILEFOLD_OK);
  EXPECT_EQ(text.back(), '\0');
  EXPECT_EQ(text.find('\0'), needed - 1);
  text.resize(needed - 1);
  const std::string first = text.substr(0, text.find('\n'));
  EXPECT_NE(first, "none") << text;
  for (int32_t index = 0; index < tilefold_kernel_count(); ++index) {
    tilefold_kernel_info info = {};
    info.struct_bytes = sizeof(info);
    ASSERT_EQ(tilefold_get_kernel_info(index, &info), TILEFOLD_OK);
    const size_t at = text.find("\n" + std::string(info.name) + ": ");
    ASSERT_NE(at, std::string::npos) << info.name << " is not in\n" << text;
    const size_t reason = at + 1 + std::strlen(info.name) + 2;
    EXPECT_NE(text[reason], '\n') << "no reason for " << info.name;
  }
  EXPECT_NE(text.find("\n" + first + ": chosen"), std::string::npos) << text;
}

TEST(ExplainTest, TheTextIsCutToFit) {
  Instance in = make_instance(simple_case(DType::kFloat32, 1, 4, 4, 16));
  char small[6] = "?????";
  size_t needed = 0;
  ASSERT_EQ(tilefold_explain(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, nullptr, small, 4,
                             &needed),
            TILEFOLD_OK);
  EXPECT_EQ(std::strlen(small), 3u);
  EXPECT_EQ(small[4], '?');
  EXPECT_GT(needed, 4u);
  EXPECT_EQ(tilefold_explain(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, nullptr, nullptr,
                             9, nullptr),
            TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(tilefold_last_error(),
               "tilefold_explain: text is NULL, but text_bytes is 9; pass 0 to ask for the size "
               "alone");
}

// What tilefold_forward() calls unsound is unsound here too, with the same sentence.
TEST(ExplainTest, AnUnknownKernelIsRefusedAsForwardRefusesIt) {
  Instance in = make_instance(simple_case(DType::kFloat32, 1, 4, 4, 16));
  in.options.kernel = "no_such_kernel";
  ASSERT_EQ(forward(in), TILEFOLD_ERROR_INVALID_ARGUMENT);
  const std::string sentence = tilefold_last_error();
  EXPECT_TRUE(sentence.starts_with("kernel 'no_such_kernel'")) << sentence;
  char text[64] = "untouched";
  size_t needed = 99;
  EXPECT_EQ(tilefold_explain(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, &in.options, text,
                             sizeof(text), &needed),
            TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tilefold_last_error(), sentence);
  EXPECT_STREQ(text, "untouched");
  EXPECT_EQ(needed, 99u);
}

// That the kernel asked for cannot serve a sound problem is an answer.
TEST(ExplainTest, AKernelThatCannotServeIsNone) {
  Instance in = make_instance(simple_case(DType::kFloat32, 1, 4, 4, 16));
  const std::string name = [] {
    for (int32_t index = 0; index < tilefold_kernel_count(); ++index) {
      tilefold_kernel_info info = {};
      info.struct_bytes = sizeof(info);
      if (tilefold_get_kernel_info(index, &info) == TILEFOLD_OK &&
          std::strcmp(info.backend, "cpu") != 0) {
        return std::string(info.name);
      }
    }
    return std::string();
  }();
  if (name.empty()) GTEST_SKIP() << "this build has CPU kernels alone";
  in.options.kernel = name.c_str();
  char text[64];
  ASSERT_EQ(tilefold_explain(in.q.dl(), in.k.dl(), in.v.dl(), in.o.dl(), nullptr, &in.options, text,
                             sizeof(text), nullptr),
            TILEFOLD_OK);
  EXPECT_TRUE(std::string(text).starts_with("none\nkernel '" + name.substr(0, 8))) << text;
}

TEST(DevicesTest, TheFirstIsTheCpu) {
  ASSERT_GE(tilefold_device_count(), 1);
  tilefold_device_info info;
  std::memset(&info, 0xab, sizeof(info));
  info.struct_bytes = sizeof(info);
  ASSERT_EQ(tilefold_get_device_info(0, &info), TILEFOLD_OK) << tilefold_last_error();
  EXPECT_EQ(info.struct_bytes, sizeof(info));
  EXPECT_EQ(info.device.device_type, kDLCPU);
  EXPECT_EQ(info.device.device_id, 0);
  EXPECT_EQ(info.usable, 1);
  EXPECT_EQ(info.compute_capability, 0);
  EXPECT_GE(info.num_multiprocessors, 1);
  EXPECT_GT(std::strlen(info.name), 0u);
  EXPECT_LT(std::strlen(info.name), sizeof(info.name));
}

TEST(DevicesTest, WrongIndicesAndStructsAreRefused) {
  tilefold_device_info info = {};
  info.struct_bytes = sizeof(info);
  const int32_t count = tilefold_device_count();
  for (int32_t index : {-1, count, count + 100}) {
    EXPECT_EQ(tilefold_get_device_info(index, &info), TILEFOLD_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(tilefold_last_error(), "tilefold_get_device_info: index is " + std::to_string(index) +
                                         "; accepted: 0 to " + std::to_string(count - 1));
  }
  EXPECT_EQ(tilefold_get_device_info(0, nullptr), TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(
      tilefold_last_error(),
      "tilefold_get_device_info: info is NULL; a struct with its struct_bytes set is needed");
  info.struct_bytes = 4;
  EXPECT_EQ(tilefold_get_device_info(0, &info), TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tilefold_last_error(),
            "tilefold_get_device_info: info->struct_bytes is 4; set it to the struct's size, at "
            "least " +
                std::to_string(sizeof(info)));
}

TEST(KernelsTest, EveryRowIsDescribedAndNamedOnce) {
  std::vector<std::string> names;
  for (int32_t index = 0; index < tilefold_kernel_count(); ++index) {
    tilefold_kernel_info info;
    std::memset(&info, 0xab, sizeof(info));
    info.struct_bytes = sizeof(info);
    ASSERT_EQ(tilefold_get_kernel_info(index, &info), TILEFOLD_OK);
    EXPECT_GT(std::strlen(info.name), 0u);
    EXPECT_GT(std::strlen(info.dtypes), 0u) << info.name;
    const std::string backend = info.backend;
    EXPECT_TRUE(backend == "cpu" || backend == "sm80" || backend == "sm90" || backend == "generic")
        << backend;
    names.push_back(info.name);
  }
  ASSERT_FALSE(names.empty());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(KernelsTest, WrongIndicesAndStructsAreRefused) {
  tilefold_kernel_info info = {};
  info.struct_bytes = sizeof(info);
  const int32_t count = tilefold_kernel_count();
  EXPECT_EQ(tilefold_get_kernel_info(count, &info), TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tilefold_last_error(), "tilefold_get_kernel_info: index is " + std::to_string(count) +
                                       "; accepted: 0 to " + std::to_string(count - 1));
  EXPECT_EQ(tilefold_get_kernel_info(-1, &info), TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tilefold_get_kernel_info(0, nullptr), TILEFOLD_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(
      tilefold_last_error(),
      "tilefold_get_kernel_info: info is NULL; a struct with its struct_bytes set is needed");
  info.struct_bytes = sizeof(info) - 1;
  EXPECT_EQ(tilefold_get_kernel_info(0, &info), TILEFOLD_ERROR_INVALID_ARGUMENT);
}

// A caller compiled against a later header passes a larger struct: what this library knows is
// filled.
TEST(KernelsTest, ALargerStructIsFilledAsFarAsKnown) {
  struct Later {
    tilefold_kernel_info base;
    int64_t future;
  } later = {};
  later.base.struct_bytes = sizeof(later);
  later.future = 77;
  ASSERT_EQ(tilefold_get_kernel_info(0, &later.base), TILEFOLD_OK);
  EXPECT_EQ(later.base.struct_bytes, sizeof(later));
  EXPECT_GT(std::strlen(later.base.name), 0u);
  EXPECT_EQ(later.future, 77);
}

}  // namespace
}  // namespace tilefold::test
