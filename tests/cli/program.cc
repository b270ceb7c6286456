// Runs the built program in a folder of its own.
#include "program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "file_bytes.h"

namespace tilefold::cli {

namespace fs = std::filesystem;

void ProgramTest::SetUp() {
  std::string pattern = (fs::temp_directory_path() / "tilefold-cli-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

void ProgramTest::TearDown() {
  std::error_code error;
  fs::permissions(folder_, fs::perms::owner_all, error);
  fs::remove_all(folder_, error);
}

Ended ProgramTest::run(const std::vector<std::string>& arguments) const {
  // Output goes to files beside the working directory: no pipe can fill up.
  const std::string out = folder_.string() + ".out";
  const std::string err = folder_.string() + ".err";
  std::vector<char*> argv = {const_cast<char*>("tilefold")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDONLY);
    const int out_file = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err_file = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(null, STDIN_FILENO);
    dup2(out_file, STDOUT_FILENO);
    dup2(err_file, STDERR_FILENO);
    if (chdir(folder_.c_str()) != 0) _exit(126);
    execv(TILEFOLD_CLI_PROGRAM, argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const auto content = [](const std::string& name) {
    std::ifstream file(name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  Ended ended;
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.out = content(out);
  ended.err = content(err);
  fs::remove(out);
  fs::remove(err);
  return ended;
}

void ProgramTest::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(path(name), std::ios::binary) << bytes;
}

std::string ProgramTest::read(const std::string& name) const {
  std::ifstream file(path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> ProgramTest::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

float set_value(int seed, int64_t index) {
  return static_cast<float>((index * 37 + seed * 11) % 23 - 11) / 8.0f;
}

void ProgramTest::write_qkv(const std::string& name, int64_t heads, int64_t heads_kv,
                            int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim) const {
  std::string header = "{";
  std::string data;
  int seed = 1;
  for (const char* tensor : {"q", "k", "v"}) {
    const int64_t h = tensor[0] == 'q' ? heads : heads_kv;
    const int64_t n = tensor[0] == 'q' ? seqlen_q : seqlen_k;
    std::vector<float> values(static_cast<size_t>(h * n * head_dim));
    for (size_t i = 0; i < values.size(); ++i) values[i] = set_value(seed, int64_t(i));
    const size_t begin = data.size();
    data += floats(values);
    header += std::string(seed > 1 ? "," : "") + "\"" + tensor +
              "\":{\"dtype\":\"F32\",\"shape\":[1," + std::to_string(h) + "," + std::to_string(n) +
              "," + std::to_string(head_dim) + "],\"data_offsets\":[" + std::to_string(begin) +
              "," + std::to_string(data.size()) + "]}";
    ++seed;
  }
  write(name, safetensors_bytes(header + "}", data));
}

void expect_refused(const Ended& ended, int code, const std::string& sentence) {
  EXPECT_EQ(ended.code, code) << ended.err;
  EXPECT_NE(ended.err.find(sentence), std::string::npos) << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("tilefold: ")) << ended.err;
}

}  // namespace tilefold::cli
