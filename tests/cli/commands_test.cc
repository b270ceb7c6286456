// The other commands, end to end: check, bench, info, demo, help texts, completion.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/io/tensor_file.h"
#include "file_bytes.h"
#include "program.h"

namespace tilefold::cli {
namespace {

using CommandsTest = ProgramTest;

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(CommandsTest, HelpHasExamplesAndExitCodes) {
  for (const char* command : {"attend", "check", "bench", "picture", "info", "demo"}) {
    const Ended ended = run({command, "--help"});
    EXPECT_EQ(ended.code, 0) << command;
    EXPECT_TRUE(holds(ended.out, std::string("tilefold ") + command)) << ended.out;
    EXPECT_TRUE(holds(ended.out, "Examples:")) << command;
    EXPECT_TRUE(holds(ended.out, "Exit codes: 0 done; 1 a check failed; 2")) << command;
    EXPECT_EQ(ended.err, "");
  }
  const Ended all = run({"--help"});
  EXPECT_EQ(all.code, 0);
  EXPECT_TRUE(holds(all.out, "attend"));
  const Ended version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("tilefold 0.")) << version.out;
}

TEST_F(CommandsTest, InfoListsDevicesAndKernels) {
  const Ended plain = run({"info"});
  EXPECT_EQ(plain.code, 0);
  EXPECT_TRUE(holds(plain.out, "cpu")) << plain.out;
  const Ended kernels = run({"info", "--kernels"});
  EXPECT_EQ(kernels.code, 0);
  const Ended json = run({"info", "--json"});
  EXPECT_EQ(json.code, 0);
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed["devices"][0]["device"], "cpu");
  ASSERT_FALSE(parsed["kernels"].empty());
  for (const auto& kernel : parsed["kernels"]) {
    EXPECT_TRUE(holds(kernels.out, kernel["name"].get<std::string>()));
  }
}

TEST_F(CommandsTest, CheckFuzzPasses) {
  const Ended ended = run({"check", "--fuzz", "50", "--seed", "1", "--max-seqlen", "150"});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(holds(ended.out, "50 problems on cpu")) << ended.out;
  EXPECT_TRUE(holds(ended.out, "50 passed, 0 failed")) << ended.out;
  EXPECT_EQ(ended.err, "");  // no progress bar where stderr is no terminal
  EXPECT_EQ(run({"check", "--fuzz", "50", "--seed", "1", "--max-seqlen", "150"}).out, ended.out);
}

TEST_F(CommandsTest, CheckOneCase) {
  const Ended ended =
      run({"check", "--case", "dtype=float16 b=1 hq=4 hkv=2 nq=33 nk=65 d=64 causal=bottom_right"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(holds(ended.out, "ok: ")) << ended.out;
  expect_refused(run({"check", "--case", "colour=red"}), 2, "colour=red");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"nq=9223372036854775807 nk=1", "nq: '9223372036854775807'; accepted: an integer from 0 to"},
      {"nq=8589934592 nk=1 d=1 b=2", "tensor q spans more elements than a case may; accepted:"},
      {"nq=-1", "nq: '-1'; accepted: an integer from 0 to"},
      {"nk=2 q_strides=9223372036854775807,1,1,1 b=3", "tensor q spans more"},
      {"nq=4 q_strides=1,2", "q_strides: '1,2'; accepted: 4 integers"},
      {"q_offset=-9", "q_offset: '-9'; accepted: an integer from 0"},
      {"causal=left", "causal: 'left'; accepted: none, top_left, bottom_right"},
      {"dtype=int8", "dtype: 'int8'; accepted: float32, float16, bfloat16"},
      {"values=odd", "values: 'odd'; accepted: normal, uniform"},
      {"scale=much", "scale: 'much'; accepted: a number"},
      {"lse=2", "lse: '2'; accepted: 0, 1"},
  };
  for (const auto& [problem, sentence] : wrong) {
    expect_refused(run({"check", "--case", problem}), 2, sentence);
  }
  EXPECT_EQ(run({"check", "--case", "nq=3 nk=5 d=8 causal=bottom-right align=top-left"}).code, 0);
  // Refusals of a case that is not valid are refusals.
  expect_refused(run({"check", "--case", "b=1 hq=3 hkv=2 nq=4 nk=4 d=8"}), 4,
                 "was served: invalid");
  expect_refused(run({"check", "--case", "d=0"}), 4, "no problem was served");
  expect_refused(run({"check", "--case", ""}), 2, "--case: its value is empty");
  expect_refused(run({"check", "--kernel", "\x1b[31m"}), 4, "kernel '?[31m' is not");
  expect_refused(run({"check", "--case", "b=1 hq=2 hkv=2 nq=4 nk=4 d=8", "--kernel", "nope"}), 4,
                 "'nope' is not in this build");
}

// A failure prints the line that runs it again. This one: scores beyond float32.
TEST_F(CommandsTest, CheckFailurePrintsItsReproduction) {
  const std::string problem =
      "dtype=float32 b=1 hq=1 hkv=1 nq=4 nk=4 d=8 dv=8 scale=9.99999968e+37 values=huge_logits";
  const Ended ended = run({"check", "--threads", "2", "--case", problem});
  expect_refused(ended, 1, "1 of 1 problem failed");
  EXPECT_TRUE(holds(ended.out, "tilefold check --threads 2 --case \"" + problem)) << ended.out;
  EXPECT_TRUE(holds(ended.out, "  # 36 of 36 elements wrong")) << ended.out;
}

TEST_F(CommandsTest, BenchWritesTableCsvAndJson) {
  const Ended ended = run({"bench",
                           "--device",
                           "cpu",
                           "--seqlens",
                           "64,128",
                           "--head-dims",
                           "32",
                           "--tokens",
                           "128",
                           "--hidden",
                           "64",
                           "--warm-ups",
                           "1",
                           "--reps",
                           "2",
                           "--dtype",
                           "float32,bfloat16",
                           "--causal",
                           "none,top-left",
                           "--csv",
                           "b.csv",
                           "--json",
                           "b.json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_TRUE(holds(ended.out, "median of the repetitions after 1 warm-up")) << ended.out;
  EXPECT_TRUE(holds(ended.out, "GFLOP/s")) << ended.out;
  const std::string csv = read("b.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 8) << csv;
  const auto json = nlohmann::json::parse(read("b.json"));
  ASSERT_EQ(json["results"].size(), 8u);
  for (const auto& result : json["results"]) {
    EXPECT_GT(result["median_ms"], 0.0);
    EXPECT_GT(result["gflops"], 0.0);
    EXPECT_EQ(result["repetitions"], 2);
    EXPECT_FALSE(result["kernel"].get<std::string>().empty());
  }
}

// stdout is a file here: what is written to /dev/stdout comes after what was printed, and the name
// stays what it was.
TEST_F(CommandsTest, DevStdoutIsWrittenTo) {
  const Ended ended =
      run({"bench", "--device", "cpu", "--seqlens", "64", "--head-dims", "32", "--tokens", "64",
           "--hidden", "32", "--causal", "none", "--reps", "1", "--csv", "/dev/stdout"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const size_t table = ended.out.find("GFLOP/s");
  const size_t csv = ended.out.find("device,kernel,dtype");
  ASSERT_NE(table, std::string::npos) << ended.out;
  ASSERT_NE(csv, std::string::npos) << ended.out;
  EXPECT_LT(table, csv);
  EXPECT_FALSE(std::filesystem::is_regular_file(std::filesystem::symlink_status("/dev/stdout")));
}

TEST_F(CommandsTest, BenchTakesShapes) {
  const Ended ended = run({"bench", "--device", "cpu", "--shape", "1,4,2,8,64,16", "--shape",
                           "2,2,2,16,16,32,16", "--causal", "none", "--reps", "1"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(holds(ended.out, "4/2")) << ended.out;
  EXPECT_TRUE(holds(ended.out, "32/16")) << ended.out;
  expect_refused(run({"bench", "--shape", "1,2,3"}), 2, "has 3 numbers");
  expect_refused(run({"bench", "--shape", "1,4,2,0,64,16"}), 2, "begin at 1");
  expect_refused(run({"bench", "--seqlens", "0"}), 2, "--seqlens: '0'; accepted: 1 and more");
  expect_refused(run({"bench", "--head-dims", "-8"}), 2, "--head-dims: '-8'; accepted: 1");
  for (const char* option : {"--seqlens", "--head-dims", "--tokens", "--hidden"}) {
    expect_refused(run({"bench", "--shape", "1,4,2,8,64,16", option, "64"}), 2,
                   std::string(option) + ": it does not go with --shape");
  }
  expect_refused(run({"bench", "--csv", "a", "--json", "./a"}), 2, "same file as --csv");
  EXPECT_EQ(names(), std::vector<std::string>{});
  expect_refused(run({"bench", "--seqlens", "64", "--csv", "none/b.csv"}), 5, "cannot be written");
}

TEST_F(CommandsTest, DemoRunsOnTheSample) {
  const Ended ended = run({"demo", "--device", "cpu", "--reps", "1", "--out", "pictures"});
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(holds(ended.out, "SmolLM2-135M-Instruct, layer 17 of 30")) << ended.out;
  EXPECT_TRUE(holds(ended.out, "The House That Jack Built, 559 tokens")) << ended.out;
  EXPECT_TRUE(holds(ended.out, "Against a float64 reference")) << ended.out;
  EXPECT_FALSE(holds(ended.out, "WRONG")) << ended.out;
  EXPECT_EQ(read("pictures/attention.png").substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "pictures"),
                          std::filesystem::directory_iterator()),
            1);
}

TEST_F(CommandsTest, DemoTakesOtherTensors) {
  write_qkv("plain.safetensors", 2, 1, 6, 6, 8);
  const Ended ended = run(
      {"demo", "--device", "cpu", "--sample", "plain.safetensors", "--reps", "1", "--out", "."});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(holds(ended.out, "plain.safetensors")) << ended.out;
  expect_refused(run({"demo", "--sample", "none.safetensors"}), 3, "none.safetensors");
  // Tokens of more bytes than letters, and what a terminal would obey.
  const std::string plain = read("plain.safetensors");
  const std::string data = plain.substr(plain.size() - (2 + 1 + 1) * 6 * 8 * sizeof(float));
  std::string header = plain.substr(8, plain.size() - 8 - data.size());
  header.insert(header.size() - 1,
                R"(,"__metadata__":{"note":"\u001b[31mred","title":")" + std::string(5000, 't') +
                    R"(","tokens":"[\"漢漢漢漢漢漢漢漢漢漢漢漢漢漢\",\"\\u009b\",\"\\u001bc\",)"
                    R"(\"é\",\"b\",\"c\"]"})");
  write("odd.safetensors", safetensors_bytes(header, data));
  const Ended odd =
      run({"demo", "--device", "cpu", "--sample", "odd.safetensors", "--reps", "1", "--out", "."});
  EXPECT_EQ(odd.code, 0) << odd.err;
  EXPECT_TRUE(holds(odd.out, "\n  漢漢漢漢漢漢漢漢漢漢漢漢 ")) << odd.out;
  EXPECT_TRUE(holds(odd.out, "  ?[31mred\n")) << odd.out;
  EXPECT_TRUE(holds(odd.out, std::string(120, 't') + "..., 6 tokens\n")) << odd.out;
  EXPECT_FALSE(holds(odd.out, "\x1b") || holds(odd.out, "\xc2\x9b")) << odd.out;
  write("file", "");
  expect_refused(run({"demo", "--sample", "plain.safetensors", "--out", "file/x"}), 5, "file/x");
}

// Every example that --help prints runs as it stands (timed commands shorter). Those for a GPU may
// end with the refusal that there is none.
TEST_F(CommandsTest, HelpExamplesRun) {
  write_qkv("qkv.safetensors", 4, 2, 20, 30, 8);
  const std::string qkv = read("qkv.safetensors");
  const std::vector<FileTensor> tensors = parse_safetensors(as_bytes(qkv)).tensors;
  std::vector<TensorToWrite> cache;
  std::string data;
  for (const FileTensor& tensor : tensors) {
    const std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()),
                            tensor.bytes.size());
    write(tensor.name + ".npy", npy_header(DataType::kFloat32, tensor.shape) + bytes);
    // [B, N, H, D], as the example has it.
    cache.push_back({tensor.name == "q" ? "q" : "layer0." + tensor.name,
                     DataType::kFloat32,
                     {1, tensor.shape[2], tensor.shape[1], tensor.shape[3]}});
    data += bytes;
  }
  write("cache.safetensors", safetensors_header(cache, {}) + data);
  std::filesystem::create_directory(folder_ / "samples");
  std::filesystem::create_symlink(TILEFOLD_CLI_SAMPLE,
                                  folder_ / "samples/smollm2_layer17.safetensors");
  std::filesystem::create_symlink(TILEFOLD_CLI_PROGRAM, folder_ / "tilefold");

  int examples = 0;
  for (const char* command : {"attend", "check", "bench", "picture", "info", "demo"}) {
    const std::string help = run({command, "--help"}).out;
    const size_t begin = help.find("Examples:\n") + 10;
    std::string lines = help.substr(begin, help.find("\n\n", begin) + 1 - begin);
    for (size_t at; (at = lines.find("\\\n")) != std::string::npos;) lines.replace(at, 2, " ");
    for (size_t end; (end = lines.find('\n')) != std::string::npos; lines.erase(0, end + 1)) {
      std::string line = lines.substr(0, end);
      if (holds(line, "tilefold bench")) line += " --warm-ups 1 --reps 1";
      if (holds(line, "tilefold demo")) line += " --reps 1";
      if (line.ends_with("tilefold check")) line += " --dtype float16";
      const int status = std::system(
          ("cd '" + folder_.string() + "' && PATH=.:$PATH && " + line + " >out 2>err").c_str());
      const bool no_gpu = holds(line, "cuda") && holds(read("err"), "there is no device cuda:0");
      EXPECT_TRUE(status == 0 || no_gpu) << line << "\n" << read("out") << read("err");
      ++examples;
    }
  }
  EXPECT_GE(examples, 15);
}

// The completion is sound bash, and knows every command and option that --help names.
TEST_F(CommandsTest, CompletionKnowsEveryOption) {
  std::string script;
  {
    std::FILE* file = std::fopen(TILEFOLD_CLI_COMPLETION, "r");
    ASSERT_NE(file, nullptr);
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) script.append(buffer, n);
    std::fclose(file);
  }
  for (const char* command : {"attend", "check", "bench", "picture", "info", "demo"}) {
    EXPECT_TRUE(holds(script, command));
    const std::string help = run({command, "--help"}).out;
    const std::string options = help.substr(0, help.find("Examples:"));
    for (size_t at = options.find("--"); at != std::string::npos; at = options.find("--", at + 2)) {
      const size_t end = options.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
      const std::string option = options.substr(at, end - at);
      EXPECT_TRUE(holds(script, option)) << command << " " << option;
    }
  }
  const std::string check = std::string("bash -n '") + TILEFOLD_CLI_COMPLETION + "'";
  EXPECT_EQ(std::system(check.c_str()), 0);
}

}  // namespace
}  // namespace tilefold::cli
