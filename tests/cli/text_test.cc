// Text from files and arguments, made fit to be shown.
#include "cli/io/text.h"

#include <gtest/gtest.h>

#include <string>

namespace tilefold::cli {
namespace {

TEST(TextTest, CleanLeavesNothingThatATerminalObeys) {
  EXPECT_EQ(clean("plain é 漢 🙂"), "plain é 漢 🙂");
  EXPECT_EQ(clean("a\nb\tc\rd"), "a b c d");
  EXPECT_EQ(clean("\x1b[31mred\x7f\x01"), "?[31mred??");
  EXPECT_EQ(clean("\xc2\x9b!\xc2\xa0"), "?!\xc2\xa0");  // CSI of two bytes; a no-break space
  // Alone, cut short, longer than need be, a surrogate, beyond U+10FFFF.
  EXPECT_EQ(clean("\x9b|\xe6\xbc|\xc0\x80|\xed\xa0\x80|\xf4\x90\x80\x80"), "?|??|??|???|????");
  EXPECT_EQ(clean(std::string("\0x", 2)), "?x");
}

TEST(TextTest, CutsBetweenCharacters) {
  EXPECT_EQ(cut("", 0), "");
  EXPECT_EQ(cut("abc", 3), "abc");
  EXPECT_EQ(cut("abcd", 3), "abc...");
  EXPECT_EQ(cut("é漢🙂x", 3), "é漢🙂...");
  EXPECT_EQ(cut("\xe6\xbc", 1), "\xe6...");
  EXPECT_EQ(cut("\xe6\xbc", 2), "\xe6\xbc");
}

TEST(TextTest, CountsInWords) {
  EXPECT_EQ(counted(0, "head"), "0 heads");
  EXPECT_EQ(counted(1, "head"), "1 head");
  EXPECT_EQ(counted(2, "head"), "2 heads");
}

}  // namespace
}  // namespace tilefold::cli
