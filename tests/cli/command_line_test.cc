// Options and arguments of a command, and the writer of JSON.
#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/io/json_writer.h"

namespace tilefold::cli {
namespace {

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() {
    command_.flag("-v,--verbose", &verbose_, "Say more");
    command_.text("-o,--out", &out_, "FILE", "Where to");
    command_.text("--window", &window_, "L,R", "Sides");
    command_.integer("--reps", &reps_, 1, 10, "Times");
    command_.integer<uint64_t>("--seed", &seed_, 0, UINT64_MAX, "Seed");
    command_.needs("--reps");
    command_.real("--seconds", &seconds_, 0.5, 2.0, "Time");
    command_.excludes("--reps");
    command_.real("--scale", &scale_, "Factor");
    command_.texts("--shape", &shapes_, "SHAPE", "Whole", false);
    command_.texts("--causal", &causal_, "LIST", "Split", true);
    command_.arguments(&files_, "FILE", 1, 2, "Inputs");
    command_.footer("The end.");
  }

  bool parse(std::vector<std::string> arguments) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    return command_.parse(pointers);
  }

  bool verbose_ = false;
  std::string out_, window_;
  int reps_ = 0;
  uint64_t seed_ = 0;
  double seconds_ = 0;
  std::optional<float> scale_;
  std::vector<std::string> shapes_, files_;
  std::vector<std::string> causal_ = {"default"};
  Command command_{"try", "Tries."};
};

using Texts = std::vector<std::string>;

TEST_F(CommandLineTest, EveryFormIsTaken) {
  EXPECT_TRUE(parse({"a", "-v", "-o", "x", "--window", "-1,0", "--reps=3", "--seed",
                     "18446744073709551615", "--scale", "-2.5e-1", "--", "-b"}));
  EXPECT_TRUE(verbose_);
  EXPECT_EQ(out_, "x");
  EXPECT_EQ(window_, "-1,0");
  EXPECT_EQ(reps_, 3);
  EXPECT_EQ(seed_, UINT64_MAX);
  EXPECT_EQ(scale_, -0.25f);
  EXPECT_EQ(files_, (Texts{"a", "-b"}));
  EXPECT_EQ(causal_, Texts{"default"});
}

TEST_F(CommandLineTest, ShortOptionsTakeTheRestOfTheArgument) {
  EXPECT_TRUE(parse({"-o=x", "-"}));
  EXPECT_EQ(out_, "=x");
  EXPECT_EQ(files_, Texts{"-"});
}

TEST_F(CommandLineTest, ListsGrowAndReplaceTheDefault) {
  EXPECT_TRUE(parse({"a", "--shape", "1,2", "--shape", "3", "--causal", "x,y", "--causal=z"}));
  EXPECT_EQ(shapes_, (Texts{"1,2", "3"}));
  EXPECT_EQ(causal_, (Texts{"x", "y", "z"}));
}

TEST_F(CommandLineTest, HelpWinsOverWhatIsMissing) {
  EXPECT_FALSE(parse({"--help"}));
  EXPECT_FALSE(parse({"-v", "-h"}));
  const std::string help = command_.help();
  for (const char* part : {"Tries.", "Usage: tilefold try [OPTIONS] FILE...", "-o, --out FILE",
                           "    --window L,R", "-h, --help", "The end."}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << " in\n" << help;
  }
}

TEST_F(CommandLineTest, WrongOnesSayWhatIsAccepted) {
  const std::vector<std::pair<Texts, std::string>> cases = {
      {{}, "FILE: it is needed: Inputs"},
      {{"a", "b", "c"}, "'c': one FILE too many; accepted: 1 to 2"},
      {{"a", "--colour"}, "--colour: try has no such option"},
      {{"a", "--colour=red"}, "--colour: try has no such option"},
      {{"a", "-x"}, "-x: try has no such option"},
      {{"a", "--out"}, "--out: its value FILE is missing"},
      {{"a", "--out", "x", "-o", "y"}, "--out: given more than once"},
      {{"a", "--verbose=yes"}, "--verbose: 'yes'; it takes no value"},
      {{"a", "--reps", "0"}, "--reps: '0'; accepted: an integer from 1 to 10"},
      {{"a", "--reps", "3x"}, "--reps: '3x'; accepted: an integer"},
      {{"a", "--reps", ""}, "--reps: ''; accepted: an integer"},
      {{"a", "--reps", "99999999999999999999"}, "accepted: an integer from 1 to 10"},
      {{"a", "--seconds", "nan"}, "--seconds: 'nan'; accepted: a number from 0.5 to 2"},
      {{"a", "--scale", "much"}, "--scale: 'much'; accepted: a number"},
      {{"a", "--out", ""}, "--out: its value is empty"},
      {{"a", "-o", ""}, "--out: its value is empty"},
      {{"a", "--shape="}, "--shape: its value is empty"},
      {{"a", "--causal", "x,,y"}, "--causal: its value is empty"},
      {{"a", "--help=3"}, "--help: '3'; it takes no value"},
      {{"a", "--seed", "3"}, "--seed: it goes with --reps only"},
      {{"a", "--reps", "3", "--seconds", "1"}, "--seconds: it does not go with --reps"},
  };
  for (const auto& [arguments, sentence] : cases) {
    CommandLineTest_WrongOnesSayWhatIsAccepted_Test fresh;
    try {
      fresh.parse(arguments);
      ADD_FAILURE() << "taken; expected: " << sentence;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(sentence), std::string::npos) << error.what();
    }
  }
}

TEST_F(CommandLineTest, WhatIsNeededIsAskedFor) {
  command_.text("--must", &window_, "X", "Needed");
  command_.required();
  EXPECT_THROW(parse({"a"}), UsageError);
  EXPECT_TRUE(parse({"--must", "x"}));
}

TEST(JsonWriterTest, WritesWhatAParserReads) {
  JsonWriter json;
  json.field("text", "quote \" backslash \\ line\nbell \a é");
  json.field("yes", true);
  json.field("big", int64_t{1} << 60);
  json.field("third", 1.0 / 3);
  json.field("none", std::nan(""));
  json.begin_object("inner");
  json.end();
  json.begin_list("list");
  for (int i = 0; i < 2; ++i) {
    json.begin_object();
    json.field("i", i);
    json.end();
  }
  const auto read = nlohmann::json::parse(json.finish());
  EXPECT_EQ(read["text"], "quote \" backslash \\ line\nbell \a é");
  EXPECT_EQ(read["yes"], true);
  EXPECT_EQ(read["big"], int64_t{1} << 60);
  EXPECT_EQ(read["third"], 1.0 / 3);
  EXPECT_TRUE(read["none"].is_null());
  EXPECT_TRUE(read["inner"].is_object());
  ASSERT_EQ(read["list"].size(), 2u);
  EXPECT_EQ(read["list"][1]["i"], 1);
}

}  // namespace
}  // namespace tilefold::cli
