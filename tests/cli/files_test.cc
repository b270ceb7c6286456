// Output files appear whole or not at all.
#include "cli/io/files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "cli/failure.h"

namespace tilefold::cli {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("tilefold-files-" + std::to_string(getpid()) + "-" + info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int num_files() const {
    return int(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  ExitCode code_of(const std::function<void()>& work) const {
    try {
      work();
    } catch (const Failure& failure) {
      return failure.code();
    }
    return ExitCode::kOk;
  }

  fs::path folder_;
};

TEST_F(FilesTest, CommitMakesTheFileAppear) {
  OutputFile file(path("a"));
  file.write("hello ");
  file.write("world");
  EXPECT_FALSE(fs::exists(path("a")));
  file.commit();
  EXPECT_EQ(content(path("a")), "hello world");
  EXPECT_EQ(num_files(), 1);
}

TEST_F(FilesTest, WithoutCommitNothingIsLeft) {
  std::ofstream(path("a")) << "old";
  {
    OutputFile file(path("a"));
    file.write("new");
  }
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(num_files(), 1);
}

TEST_F(FilesTest, WhatIsNoFileIsWrittenToDirectly) {
  OutputFile file("/dev/null");
  file.write("x");
  file.commit();
}

// A link stays a link; the file that it leads to is replaced, and keeps its permissions.
TEST_F(FilesTest, LinksAreFollowed) {
  std::ofstream(path("a")) << "old";
  fs::permissions(path("a"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(path("a"), path("link"));
  OutputFile file(path("link"));
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content(path("a")), "new");
  EXPECT_EQ(fs::status(path("a")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(num_files(), 2);
}

// Its mode stays a file's own, whatever the umask would make of a new one.
TEST_F(FilesTest, TheModeIsKept) {
  std::ofstream(path("a")) << "old";
  const auto all = fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read |
                   fs::perms::group_write | fs::perms::others_read | fs::perms::others_write;
  fs::permissions(path("a"), all);
  const mode_t before = umask(077);
  {
    OutputFile file(path("a"));
    file.write("new");
    file.commit();
  }
  umask(before);
  EXPECT_EQ(content(path("a")), "new");
  EXPECT_EQ(fs::status(path("a")).permissions(), all);
}

TEST_F(FilesTest, SameTargetsAreKnown) {
  fs::create_directory(path("d"));
  EXPECT_TRUE(same_target(path("a"), path("a")));
  EXPECT_TRUE(same_target(path("a"), path("d/../a")));  // neither exists
  EXPECT_FALSE(same_target(path("a"), path("d/a")));
  std::ofstream(path("a")) << "x";
  fs::create_symlink(path("a"), path("link"));
  EXPECT_TRUE(same_target(path("link"), path("a")));
  EXPECT_TRUE(same_target(path("a"), path("link")));
  EXPECT_FALSE(same_target("/dev/null", "/dev/null"));
  EXPECT_TRUE(same_target("none.npy", "./none.npy"));
}

// Nobody writes to the pipe: opening it must not wait for that.
TEST_F(FilesTest, PipesAreNoInputs) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { read_file(path("pipe")); }), ExitCode::kBadInput);
}

TEST_F(FilesTest, UnwritablePlacesAreIoFailures) {
  EXPECT_EQ(code_of([&] { OutputFile file(path("none/a")); }), ExitCode::kIo);
  EXPECT_EQ(code_of([&] { OutputFile file(folder_.string()); }), ExitCode::kIo);
}

TEST_F(FilesTest, MissingInputsAreBadInput) {
  EXPECT_EQ(code_of([&] { read_file(path("none")); }), ExitCode::kBadInput);
  EXPECT_EQ(code_of([&] { read_file(folder_.string()); }), ExitCode::kBadInput);
}

TEST_F(FilesTest, ReadsWhatWasWritten) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{64}, size_t{100000}}) {
    const std::string text(size, 'z');
    std::ofstream(path("b"), std::ios::binary) << text;
    const FileBytes bytes = read_file(path("b"));
    ASSERT_EQ(bytes.span().size(), size);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.span().data()), size), text);
  }
}

// A signal must not leave the temporary file.
TEST_F(FilesTest, SignalsRemoveTheTemporaryFile) {
  const std::string target = path("a");
  EXPECT_EXIT(
      {
        OutputFile file(target);
        file.write("half");
        raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
  EXPECT_EQ(num_files(), 0);
}

}  // namespace
}  // namespace tilefold::cli
