// The readers of safetensors and .npy: what they read, and every kind of file that they refuse.
#include "cli/io/tensor_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "file_bytes.h"

namespace tilefold::cli {
namespace {

const std::string kTwo = R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"F16","shape":[3],"data_offsets":[8,14]}})";

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const std::string header = R"({"__metadata__":{"who":"me"},)" + kTwo.substr(1) + "   ";
  const std::string file = safetensors_bytes(header, floats({1.5f, -2.0f}) + "abcdef");
  const SafetensorsFile parsed = parse_safetensors(as_bytes(file));
  ASSERT_EQ(parsed.tensors.size(), 2u);
  EXPECT_EQ(parsed.metadata.at("who"), "me");
  const FileTensor* a = parsed.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->type, DataType::kFloat32);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 1}));
  float second;
  std::memcpy(&second, a->bytes.data() + 4, sizeof(second));
  EXPECT_EQ(second, -2.0f);
  EXPECT_EQ(parsed.find("b")->type, DataType::kFloat16);
  EXPECT_EQ(parsed.find("b")->bytes.size(), 6u);
  EXPECT_EQ(parsed.find("c"), nullptr);
}

TEST(SafetensorsTest, ReadsEmptyTensorsScalarsAndForeignTypes) {
  const std::string file =
      safetensors_bytes(R"({"e":{"dtype":"BF16","shape":[0,7],"data_offsets":[0,0]},)"
                        R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                        R"("x":{"dtype":"F4_NEW","shape":[3],"data_offsets":[8,10]}})",
                        "0123456789");
  const SafetensorsFile parsed = parse_safetensors(as_bytes(file));
  EXPECT_EQ(parsed.find("e")->type, DataType::kBFloat16);
  EXPECT_FALSE(parsed.find("s")->type.has_value());
  EXPECT_EQ(parsed.find("x")->dtype, "F4_NEW");
}

TEST(SafetensorsTest, WritesWhatItReads) {
  const std::vector<TensorToWrite> tensors = {{"o", DataType::kBFloat16, {1, 2, 3}},
                                              {"lse", DataType::kFloat32, {2}}};
  const std::string header = safetensors_header(tensors, {{"k", "v"}});
  EXPECT_EQ(header.size() % 8, 0u);
  const SafetensorsFile parsed = parse_safetensors(as_bytes(header + std::string(20, 'x')));
  EXPECT_EQ(parsed.find("o")->shape, tensors[0].shape);
  EXPECT_EQ(parsed.find("o")->type, DataType::kBFloat16);
  EXPECT_EQ(parsed.find("lse")->bytes.size(), 8u);
  EXPECT_EQ(parsed.metadata.at("k"), "v");
}

struct BadCase {
  const char* name;
  std::string file;
  const char* sentence;  // part of what the refusal says
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

std::string entry(const std::string& body, const std::string& data = std::string(8, 'd')) {
  return safetensors_bytes("{\"a\":{" + body + "}}", data);
}

class BadSafetensorsTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadSafetensorsTest, IsRefusedInOneLine) {
  try {
    parse_safetensors(as_bytes(GetParam().file));
    FAIL() << "was read";
  } catch (const BadFile& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(GetParam().sentence), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSafetensorsTest,
    testing::Values(
        BadCase{"Empty", "", "too few"}, BadCase{"SevenBytes", "1234567", "too few"},
        BadCase{"HeaderBeyondFile", little_endian(100, 8) + "{}", "but 2 bytes follow"},
        BadCase{"OversizedHeader", little_endian(100'000'001, 8) + "{}", "accepted: at most"},
        BadCase{"HeaderLengthOfAllOnes", std::string(16, '\xff'), "accepted: at most"},
        BadCase{"NotJson", safetensors_bytes("{nope", ""), "not valid JSON"},
        BadCase{"EmptyHeader", safetensors_bytes("", ""), "not valid JSON"},
        BadCase{"NumberBeyondDouble", safetensors_bytes(R"({"a":1e999})", ""), "not valid JSON"},
        BadCase{"NotAnObject", safetensors_bytes("[1,2]", ""), "not an object"},
        BadCase{"DeeplyNested", safetensors_bytes(std::string(100000, '['), ""), "nested deeper"},
        BadCase{"BadUtf8", safetensors_bytes("{\"\xff\":1}", ""), "not valid JSON"},
        BadCase{"EntryNotAnObject", safetensors_bytes(R"({"a":3})", ""), "no 'dtype'"},
        BadCase{"NoShape", entry(R"("dtype":"F32","data_offsets":[0,8])"), "no 'shape'"},
        BadCase{"NoOffsets", entry(R"("dtype":"F32","shape":[2])"), "no 'data_offsets'"},
        BadCase{"DtypeNotAString", entry(R"("dtype":4,"shape":[2],"data_offsets":[0,8])"),
                "not a string"},
        BadCase{"ShapeNotAnArray", entry(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"),
                "not an array"},
        BadCase{"NegativeExtent", entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
                "accepted: integers"},
        BadCase{"FractionalExtent", entry(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"),
                "accepted: integers"},
        BadCase{"ExtentBeyondInt64",
                entry(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"),
                "accepted: integers"},
        BadCase{"RankTooHigh",
                entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"),
                "at most 8"},
        BadCase{"ShapeOverflows",
                entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
                "more bytes than"},
        BadCase{
            "ZeroHidesOverflow",
            entry(R"("dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0])", ""),
            "more bytes than"},
        BadCase{"ShapeAndOffsetsDiffer", entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
                "takes 12 bytes"},
        BadCase{"OneOffset", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0])"),
                "accepted: 2"},
        BadCase{"OffsetsReversed", entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
                "not inside"},
        BadCase{"OffsetsBeyondFile", entry(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"),
                "not inside"},
        BadCase{"Truncated", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", "1234567"),
                "truncated"},
        BadCase{"HoleAtBegin",
                entry(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])", std::string(12, 'd')),
                "has 4 bytes of no tensor"},
        BadCase{"RestAtEnd",
                entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", std::string(9, 'd')),
                "ends with 1 byte of no tensor"},
        BadCase{"Overlap",
                safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                  R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                                  std::string(12, 'd')),
                "overlap"},
        BadCase{"SameNameTwice",
                safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                  R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                                  std::string(16, 'd')),
                "twice"},
        BadCase{"MetadataNotAnObject", safetensors_bytes(R"({"__metadata__":[]})", ""),
                "__metadata__"},
        BadCase{"MetadataNotText", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""),
                "not a string"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(NpyTest, ReadsEveryVersion) {
  for (const int major : {1, 2, 3}) {
    const std::string file = npy_bytes(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }    \n", floats({1, 2}), major);
    const FileTensor tensor = parse_npy(as_bytes(file));
    EXPECT_EQ(tensor.type, DataType::kFloat32);
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(tensor.strides(), (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(tensor.bytes.size(), 8u);
  }
}

TEST(NpyTest, ReadsFortranOrderAsStrides) {
  const std::string file =
      npy_bytes("{\"fortran_order\":True,\"shape\":(2,3),\"descr\":\"<f2\"}", std::string(12, 'x'));
  const FileTensor tensor = parse_npy(as_bytes(file));
  EXPECT_TRUE(tensor.fortran_order);
  EXPECT_EQ(tensor.strides(), (std::vector<int64_t>{1, 2}));
}

TEST(NpyTest, WritesWhatItReads) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, std::vector<int64_t>{5}, std::vector<int64_t>{0, 3},
        std::vector<int64_t>{1, 2, 3, 4}}) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    const std::string header = npy_header(DataType::kFloat16, shape);
    EXPECT_EQ(header.size() % 64, 0u);
    const std::string file = header + std::string(static_cast<size_t>(2 * count), 'x');
    EXPECT_EQ(parse_npy(as_bytes(file)).shape, shape);
  }
  EXPECT_THROW(npy_header(DataType::kBFloat16, {}), BadFile);
}

std::string npy(const std::string& descr, const std::string& shape, size_t bytes) {
  return npy_bytes("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }\n",
                   std::string(bytes, 'x'));
}

class BadNpyTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadNpyTest, IsRefusedInOneLine) {
  try {
    parse_npy(as_bytes(GetParam().file));
    FAIL() << "was read";
  } catch (const BadFile& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(GetParam().sentence), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadNpyTest,
    testing::Values(
        BadCase{"Empty", "", "does not begin"}, BadCase{"Text", "hello, world", "does not begin"},
        BadCase{"MagicOnly", "\x93NUMPY", "does not begin"},
        BadCase{"EndsInLength", std::string("\x93NUMPY\x01\x00\x10", 9), "inside its header"},
        BadCase{"EndsInHeader", npy("'<f4'", "(2,)", 8).substr(0, 30), "inside its header"},
        BadCase{"VersionNine", npy_bytes("{}", "", 9), "version is 9.0"},
        BadCase{"OversizedHeader",
                std::string("\x93NUMPY\x02\x00", 8) + little_endian(0xffffffff, 4) + "{}",
                "accepted: at most"},
        BadCase{"NotADict", npy_bytes("(1, 2)", ""), "dictionary"},
        BadCase{"MissingKey", npy_bytes("{'descr': '<f4', 'shape': (2,)}", ""), "lacks"},
        BadCase{"RepeatedKey",
                npy_bytes("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False}", ""),
                "repeated"},
        BadCase{"UnknownKey", npy_bytes("{'colour': 'red'}", ""), "unexpected"},
        BadCase{"TextAfterDict",
                npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)} x", ""),
                "text after"},
        BadCase{"EndsInString", npy_bytes("{'descr", ""), "inside a string"},
        BadCase{"NeitherTrueNorFalse", npy_bytes("{'fortran_order': 1}", ""), "neither"},
        BadCase{"Float64", npy("'<f8'", "(2,)", 16), "accepted: '<f4'"},
        BadCase{"BigEndian", npy("'>f4'", "(2,)", 8), "accepted: '<f4'"},
        BadCase{"Integers", npy("'<i4'", "(2,)", 8), "accepted: '<f4'"},
        BadCase{"BFloat16AsVoid", npy("'<V2'", "(2,)", 4), "bfloat16 is read from"},
        BadCase{"Record", npy("[('a', '<f4')]", "(2,)", 8), "record"},
        BadCase{"NegativeExtent", npy("'<f4'", "(-2,)", 8), "not an extent"},
        BadCase{"ExtentBeyondInt64", npy("'<f4'", "(9223372036854775808,)", 8), "2^63"},
        BadCase{"ShapeOverflows", npy("'<f4'", "(4294967296, 4294967296)", 8), "more bytes than"},
        BadCase{"RankTooHigh", npy("'<f4'", "(1,1,1,1,1,1,1,1,1)", 4), "rank is over 8"},
        BadCase{"Truncated", npy("'<f4'", "(3,)", 11), "truncated"},
        BadCase{"TooLong", npy("'<f4'", "(3,)", 13), "but 13 follow"}),
    [](const auto& info) { return std::string(info.param.name); });

// Every prefix of a sound file is refused, none is read beyond its end (sanitizers watch).
TEST(TensorFileTest, EveryPrefixIsRefused) {
  const std::string safetensors = safetensors_bytes(kTwo, floats({1, 2}) + "abcdef");
  const std::string numpy = npy("'<f4'", "(2,)", 8);
  for (size_t size = 0; size < safetensors.size(); ++size) {
    const std::vector<char> prefix(safetensors.begin(), safetensors.begin() + long(size));
    EXPECT_THROW(parse_safetensors(std::as_bytes(std::span(prefix))), BadFile) << size;
  }
  for (size_t size = 0; size < numpy.size(); ++size) {
    const std::vector<char> prefix(numpy.begin(), numpy.begin() + long(size));
    EXPECT_THROW(parse_npy(std::as_bytes(std::span(prefix))), BadFile) << size;
  }
}

}  // namespace
}  // namespace tilefold::cli
