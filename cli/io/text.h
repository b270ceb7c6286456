// Text from files and arguments, made fit to be shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilefold::cli {

/// Labels of a picture or a table are cut to so many characters, titles and notes to so many.
constexpr size_t kMostLabelChars = 60;
constexpr size_t kMostTitleChars = 120;

/// The number of bytes of the character that `text`, not empty, begins with; 0 if it is not UTF-8.
size_t utf8_length(std::string_view text);

/// `text` on one line and without what a terminal would obey: line ends and tabs become blanks,
/// other control characters and what is not UTF-8 become '?'.
std::string clean(std::string_view text);

/// The first `most` characters of `text`, of which what is not UTF-8 counts a byte each; "..." ends
/// what was cut.
std::string cut(std::string_view text, size_t most);

/// "1 head", "2 heads".
std::string counted(int64_t count, std::string_view noun);

}  // namespace tilefold::cli
