// `tilefold attend` and `tilefold picture`, end to end: results, round trips, every refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cli/io/tensor_file.h"
#include "file_bytes.h"
#include "program.h"

namespace tilefold::cli {
namespace {

using AttendTest = ProgramTest;
using Names = std::vector<std::string>;

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// Attention of write_qkv()'s tensors, in double: O [Hq, Nq, D] and LSE [Hq, Nq].
struct Expected {
  std::vector<double> o, lse;
};

Expected expect_attention(int64_t heads, int64_t heads_kv, int64_t seqlen_q, int64_t seqlen_k,
                          int64_t dim, bool causal) {
  Expected expected;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t g = h / (heads / heads_kv);
    for (int64_t i = 0; i < seqlen_q; ++i) {
      double sum = 0;
      std::vector<double> row(size_t(dim), 0.0);
      for (int64_t j = 0; j < (causal ? std::min(i + 1, seqlen_k) : seqlen_k); ++j) {
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) {
          score += double(set_value(1, (h * seqlen_q + i) * dim + d)) *
                   double(set_value(2, (g * seqlen_k + j) * dim + d));
        }
        const double weight = std::exp(score / std::sqrt(double(dim)));
        sum += weight;
        for (int64_t d = 0; d < dim; ++d) {
          row[size_t(d)] += weight * double(set_value(3, (g * seqlen_k + j) * dim + d));
        }
      }
      for (const double value : row) expected.o.push_back(value / sum);
      expected.lse.push_back(std::log(sum));
    }
  }
  return expected;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-5) << i;
}

TEST_F(AttendTest, WritesOAndLseOfTheFormula) {
  write_qkv("in.safetensors", 4, 2, 9, 11, 8);
  const Ended ended = run({"attend", "in.safetensors", "-o", "out.safetensors"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::string bytes = read("out.safetensors");
  const SafetensorsFile file = parse_safetensors(as_bytes(bytes));
  const Expected expected = expect_attention(4, 2, 9, 11, 8, false);
  ASSERT_NE(file.find("o"), nullptr);
  EXPECT_EQ(file.find("o")->shape, (std::vector<int64_t>{1, 4, 9, 8}));
  expect_near(floats_of(file.find("o")->bytes), expected.o);
  EXPECT_EQ(file.find("lse")->shape, (std::vector<int64_t>{1, 4, 9}));
  expect_near(floats_of(file.find("lse")->bytes), expected.lse);
  EXPECT_EQ(names(), (Names{"in.safetensors", "out.safetensors"}));
}

TEST_F(AttendTest, EveryOptionIsTaken) {
  write_qkv("in.safetensors", 2, 2, 9, 9, 8);
  const Ended ended = run({"attend",          "in.safetensors",
                           "--causal",        "bottom-right",
                           "--window",        "-1,0",
                           "--window-align",  "bottom-right",
                           "--scale",         "0.25",
                           "--empty-row-lse", "-inf",
                           "--device",        "cpu",
                           "--threads",       "1",
                           "--layout",        "bhnd",
                           "--explain",       "-o",
                           "out.safetensors"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find(": chosen"), std::string::npos) << ended.out;
  const std::string kernel = ended.out.substr(0, ended.out.find('\n'));
  EXPECT_EQ(run({"attend", "in.safetensors", "--kernel", kernel}).code, 0);
}

// Three .npy of rank 2, in either order of the axes, give what one .safetensors gives.
TEST_F(AttendTest, NpyOfRank2RoundTrips) {
  constexpr int64_t kRows = 7, kDim = 8;
  const Expected expected = expect_attention(1, 1, kRows, kRows, kDim, true);
  int seed = 1;
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
    std::vector<float> values(kRows * kDim);
    for (size_t i = 0; i < values.size(); ++i) values[i] = set_value(seed, int64_t(i));
    write(name, npy_header(DataType::kFloat32, std::vector<int64_t>{kRows, kDim}) + floats(values));
    ++seed;
  }
  for (const char* layout : {"bhnd", "bnhd"}) {
    const Ended ended = run({"attend", "q.npy", "k.npy", "v.npy", "--causal", "top-left",
                             "--layout", layout, "-o", "o.npy", "--lse", "lse.npy"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::string o_bytes = read("o.npy");
    const FileTensor o = parse_npy(as_bytes(o_bytes));
    EXPECT_EQ(o.shape, (std::vector<int64_t>{kRows, kDim}));
    expect_near(floats_of(o.bytes), expected.o);
    const std::string lse_bytes = read("lse.npy");
    const FileTensor lse = parse_npy(as_bytes(lse_bytes));
    EXPECT_EQ(lse.shape, (std::vector<int64_t>{kRows}));
    expect_near(floats_of(lse.bytes), expected.lse);
  }
}

// [B, N, H, D] storage with the same numbers: o comes back in that storage.
TEST_F(AttendTest, LayoutBnhdSwapsTheAxes) {
  constexpr int64_t kHeads = 3, kRows = 5, kDim = 4;
  int seed = 1;
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
    std::vector<float> values;
    for (int64_t n = 0; n < kRows; ++n) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < kDim; ++d) {
          values.push_back(set_value(seed, (h * kRows + n) * kDim + d));
        }
      }
    }
    write(name, npy_header(DataType::kFloat32, std::vector<int64_t>{kRows, kHeads, kDim}) +
                    floats(values));
    ++seed;
  }
  const Ended ended =
      run({"attend", "q.npy", "k.npy", "v.npy", "--layout", "bnhd", "-o", "out.safetensors"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::string bytes = read("out.safetensors");
  const SafetensorsFile file = parse_safetensors(as_bytes(bytes));
  EXPECT_EQ(file.find("o")->shape, (std::vector<int64_t>{kRows, kHeads, kDim}));
  EXPECT_EQ(file.find("lse")->shape, (std::vector<int64_t>{kHeads, kRows}));
  const Expected expected = expect_attention(kHeads, kHeads, kRows, kRows, kDim, false);
  expect_near(floats_of(file.find("lse")->bytes), expected.lse);
  const std::vector<float> o = floats_of(file.find("o")->bytes);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t d = 0; d < kDim; ++d) {
        ASSERT_NEAR(o[size_t((n * kHeads + h) * kDim + d)],
                    expected.o[size_t((h * kRows + n) * kDim + d)], 1e-5);
      }
    }
  }
}

TEST_F(AttendTest, DtypeConvertsFirst) {
  write_qkv("in.safetensors", 2, 1, 6, 6, 8);
  for (const char* dtype : {"float16", "bfloat16"}) {
    const Ended ended =
        run({"attend", "in.safetensors", "--dtype", dtype, "-o", "out.safetensors"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::string bytes = read("out.safetensors");
    const SafetensorsFile file = parse_safetensors(as_bytes(bytes));
    EXPECT_STREQ(to_string(*file.find("o")->type), dtype);
    EXPECT_EQ(file.find("lse")->type, DataType::kFloat32);
  }
}

TEST_F(AttendTest, WithoutOutSaysThatNothingIsWritten) {
  write_qkv("in.safetensors", 1, 1, 3, 3, 8);
  const Ended ended = run({"attend", "in.safetensors"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.err.find("nothing written"), std::string::npos) << ended.err;
  EXPECT_EQ(names(), Names{"in.safetensors"});
}

// ---- bad input files: exit code 3, the file's name, one line, nothing written

TEST_F(AttendTest, BadFilesAreNamed) {
  write_qkv("good.safetensors", 2, 1, 6, 6, 8);
  const std::string good = read("good.safetensors");
  write("truncated.safetensors", good.substr(0, good.size() - 1));
  write("empty.safetensors", "");
  write("oversized.safetensors", std::string(8, '\xff') + "{}");
  write("f64.safetensors",
        safetensors_bytes(R"({"q":{"dtype":"F64","shape":[1,1],"data_offsets":[0,8]},)"
                          R"("k":{"dtype":"F64","shape":[1,1],"data_offsets":[8,16]},)"
                          R"("v":{"dtype":"F64","shape":[1,1],"data_offsets":[16,24]}})",
                          std::string(24, '\0')));
  write("rank1.safetensors",
        safetensors_bytes(R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                          R"("k":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                          R"("v":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}})",
                          std::string(24, '\0')));
  write("ranks.safetensors",
        safetensors_bytes(R"({"q":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                          R"("k":{"dtype":"F32","shape":[1,2,1],"data_offsets":[8,16]},)"
                          R"("v":{"dtype":"F32","shape":[2,1],"data_offsets":[16,24]}})",
                          std::string(24, '\0')));
  write("no_k.safetensors",
        safetensors_bytes(R"({"q":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
                          std::string(8, '\0')));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"truncated.safetensors", "truncated"},
      {"empty.safetensors", "too few"},
      {"oversized.safetensors", "accepted: at most"},
      {"f64.safetensors", "its dtype is F64; accepted: F32, F16, BF16"},
      {"rank1.safetensors", "its rank is 1 (shape [2]); accepted: 2"},
      {"ranks.safetensors", "tensor 'k': its rank is 3, but q's is 2"},
      {"no_k.safetensors", "no tensor 'k'; it has: q"},
      {"missing.safetensors", "cannot be opened"},
      {".", "a directory"},
  };
  const Names before = names();
  for (const auto& [file, sentence] : cases) {
    const Ended ended = run({"attend", file, "-o", "out.safetensors"});
    expect_refused(ended, 3, sentence);
    EXPECT_NE(ended.err.find(file), std::string::npos) << ended.err;
    EXPECT_EQ(names(), before) << file;
  }
}

TEST_F(AttendTest, BadNpyIsNamed) {
  const std::string good =
      npy_header(DataType::kFloat32, std::vector<int64_t>{2, 4}) + floats(std::vector<float>(8));
  write("q.npy", good);
  write("k.npy", good);
  write("short.npy", good.substr(0, good.size() - 4));
  write("f64.npy", npy_bytes("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 4), }\n",
                             std::string(64, '\0')));
  expect_refused(run({"attend", "q.npy", "k.npy", "short.npy", "-o", "o.npy"}), 3,
                 "short.npy: shape [2, 4] of <f4 takes 32 bytes, but 28 follow");
  expect_refused(run({"attend", "q.npy", "f64.npy", "k.npy", "-o", "o.npy"}), 3,
                 "f64.npy: its dtype is '<f8'; accepted: '<f4' (float32), '<f2' (float16)");
  expect_refused(run({"attend", "q.npy", "-o", "o.npy"}), 3, "one .npy holds one tensor");
  expect_refused(run({"attend", "q.npy", "k.npy", "q.npy", "--k-key", "k"}), 2,
                 "--k-key: k.npy is a .npy, whose tensor has no name");
  EXPECT_FALSE(exists("o.npy"));
}

// A file's name or key may hold anything: the message stays one line.
TEST_F(AttendTest, LineEndsInNamesStayInOneLine) {
  expect_refused(run({"attend", "a\nb.safetensors"}), 3, "a b.safetensors");
}

// Names from a file are cut and cannot command a terminal.
TEST_F(AttendTest, NamesFromFilesAreCleaned) {
  write("odd.safetensors",
        safetensors_bytes(R"({"\u001b[31m)" + std::string(5000, 'n') +
                              R"(":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
                          std::string(8, '\0')));
  const Ended ended = run({"attend", "odd.safetensors"});
  expect_refused(ended, 3, "it has no tensor 'q'; it has: ?[31mnnn");
  EXPECT_EQ(ended.err.find('\x1b'), std::string::npos);
  EXPECT_LT(ended.err.size(), 200u);
}

// ---- the library's refusals: exit code 4, its sentence

TEST_F(AttendTest, LibraryRefusalsKeepTheirSentence) {
  write_qkv("heads.safetensors", 3, 2, 4, 4, 8);
  expect_refused(run({"attend", "heads.safetensors", "-o", "o.safetensors"}), 4,
                 "invalid argument");
  write_qkv("good.safetensors", 2, 2, 4, 4, 8);
  expect_refused(run({"attend", "good.safetensors", "--kernel", "nope", "-o", "o.safetensors"}), 4,
                 "'nope'");
  expect_refused(run({"attend", "good.safetensors", "--device", "cuda:99"}), 4,
                 "there is no device cuda:99");
  expect_refused(run({"attend", "good.safetensors", "--window", "-5,0"}), 4, "-5");
  EXPECT_EQ(names(), (Names{"good.safetensors", "heads.safetensors"}));
}

// ---- the command line: exit code 2

TEST_F(AttendTest, WrongCommandLines) {
  write_qkv("good.safetensors", 2, 2, 4, 4, 8);
  const std::vector<std::pair<Names, std::string>> cases = {
      {{"attend"}, "files"},
      {{"attend", "a", "b"}, "2 files"},
      {{"attend", "good.safetensors", "--causal", "left"}, "accepted: none, top-left"},
      {{"attend", "good.safetensors", "--window", "4"}, "--window"},
      {{"attend", "good.safetensors", "--window", "4,x"}, "not a list of integers"},
      {{"attend", "good.safetensors", "--window-align", "up"}, "accepted: auto"},
      {{"attend", "good.safetensors", "--empty-row-lse", "0"}, "accepted: +inf, -inf"},
      {{"attend", "good.safetensors", "--scale", "much"}, "--scale"},
      {{"attend", "good.safetensors", "--layout", "nhd"}, "accepted: bhnd, bnhd"},
      {{"attend", "good.safetensors", "--dtype", "int8"}, "accepted: float32"},
      {{"attend", "good.safetensors", "--device", "gpu"}, "accepted: cpu"},
      {{"attend", "good.safetensors", "-o", "o.txt"}, ".safetensors or .npy"},
      {{"attend", "good.safetensors", "-o", "o.npy", "--lse", "o.npy"}, "same file"},
      {{"attend", "good.safetensors", "-o", "o.npy", "--lse", "./o.npy"}, "same file"},
      {{"attend", "good.safetensors", "-o", "./good.safetensors"}, "is an input file"},
      {{"attend", "good.safetensors", "-o", ""}, "--out: its value is empty"},
      {{"picture", "good.safetensors", "-o", "good.safetensors"}, "ending in .png"},
      {{"picture", "good.safetensors", "-o", "x.jpg"}, "'x.jpg'; accepted: a name ending in .png"},
      {{"picture", "good.safetensors", "-o", "p.png", "--rows", "a:b"},
       "--rows: 'a:b'; accepted: A:B"},
      {{"picture", "good.safetensors", "-o", "p.png", "--rows", "3"}, "--rows: '3'; accepted: A:B"},
      {{"picture", "good.safetensors", "-o", "p.png", "--batch", "1"},
       "--batch: 1; q's batch is 1"},
      {{"attend", "good.safetensors", "--dtype", "bfloat16", "-o", "o.npy"}, "bfloat16"},
      {{"attend", "good.safetensors", "--colour"}, "--colour"},
      {{"frobnicate"}, "frobnicate"},
      {{}, "a command is needed"},
  };
  for (const auto& [arguments, sentence] : cases) {
    expect_refused(run(arguments), 2, sentence);
    EXPECT_EQ(names(), Names{"good.safetensors"});
  }
}

// ---- unwritable outputs: exit code 5

TEST_F(AttendTest, UnwritableOutputsLeaveNothing) {
  write_qkv("good.safetensors", 2, 2, 4, 4, 8);
  expect_refused(run({"attend", "good.safetensors", "-o", "none/o.safetensors"}), 5,
                 "none/o.safetensors: cannot be written");
  // The second output fails: the first must not appear either.
  expect_refused(run({"attend", "good.safetensors", "-o", "o.npy", "--lse", "none/lse.npy"}), 5,
                 "none/lse.npy: cannot be written");
  EXPECT_EQ(names(), Names{"good.safetensors"});
}

// ---- picture

TEST_F(AttendTest, PictureIsAPng) {
  write_qkv("good.safetensors", 2, 2, 20, 30, 8);
  const Ended ended = run({"picture", "good.safetensors", "-o", "p.png", "--head", "1", "--rows",
                           "2:12", "--causal", "top-left"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(read("p.png").substr(0, 8), "\x89PNG\r\n\x1a\n");
  expect_refused(run({"picture", "good.safetensors", "-o", "q.png", "--head", "2"}), 2, "2 heads");
  expect_refused(run({"picture", "good.safetensors", "-o", "q.png", "--rows", "5:21"}), 2, "<= 20");
  expect_refused(run({"picture", "good.safetensors", "-o", "none/q.png"}), 5, "cannot be written");
  EXPECT_FALSE(exists("q.png"));
}

// A label of any length is cut; keys that the tokens do not number are not labelled with them.
TEST_F(AttendTest, PictureLabelsFit) {
  const auto size_of = [&](int64_t seqlen_k, const std::string& token) {
    write_qkv("in.safetensors", 1, 1, 3, seqlen_k, 8);
    const std::string plain = read("in.safetensors");
    const std::string data = plain.substr(plain.size() - size_t(3 + 2 * seqlen_k) * 8 * 4);
    std::string header = plain.substr(8, plain.size() - 8 - data.size());
    header.insert(header.size() - 1, R"(,"__metadata__":{"title":")" + std::string(5000, 't') +
                                         R"(","tokens":"[\")" + token + R"(\",\"b\",\"c\"]"})");
    write("in.safetensors", safetensors_bytes(header, data));
    const Ended ended = run({"picture", "in.safetensors", "-o", "p.png"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    // "wrote p.png: head 0, W x H pixels"
    const size_t at = ended.err.find("head 0, ") + 8;
    return std::pair(std::stoi(ended.err.substr(at)),
                     std::stoi(ended.err.substr(ended.err.find(" x ", at) + 3)));
  };
  const auto [width, height] = size_of(3, std::string(5000, 'w'));
  EXPECT_LT(width, 3000);
  EXPECT_LT(height, 1500);
  EXPECT_EQ(size_of(4, std::string(5000, 'w')).second, size_of(4, "w").second);
  EXPECT_GT(height, size_of(3, "w").second);
}

TEST_F(AttendTest, PictureOfEmptyTensorsIsRefused) {
  write_qkv("empty.safetensors", 1, 1, 4, 0, 8);
  expect_refused(run({"picture", "empty.safetensors", "-o", "p.png"}), 2, "nothing to draw");
  EXPECT_FALSE(exists("p.png"));
}

}  // namespace
}  // namespace tilefold::cli
