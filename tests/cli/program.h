// Runs the built program in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tilefold::cli {

struct Ended {
  int code = -1;    // exit code; 128 + N for signal N
  std::string out;  // stdout
  std::string err;  // stderr
};

/// A fixture with a temporary folder, the program's working directory.
class ProgramTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Runs `tilefold arguments...` with standard input closed.
  Ended run(const std::vector<std::string>& arguments) const;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& bytes) const;
  std::string read(const std::string& name) const;
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  /// Names in the folder, sorted.
  std::vector<std::string> names() const;

  /// Writes a .safetensors with float32 q [B, H, N, D] and k, v [B, Hkv, Nk, D] of set values.
  void write_qkv(const std::string& name, int64_t heads, int64_t heads_kv, int64_t seqlen_q,
                 int64_t seqlen_k, int64_t head_dim) const;

  std::filesystem::path folder_;
};

/// Checks that a run ended with `code`, with one line on stderr that holds `sentence`.
void expect_refused(const Ended& ended, int code, const std::string& sentence);

/// The value of element `index` of tensor `seed` in write_qkv().
float set_value(int seed, int64_t index);

}  // namespace tilefold::cli
