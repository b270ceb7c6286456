// Text from files and arguments, made fit to be shown.
#include "cli/io/text.h"

#include <algorithm>

namespace tilefold::cli {

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, surrogates, beyond U+10FFFF.
  const bool wrong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f) ||
                     (byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return wrong ? 0 : length;
}

std::string clean(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F: control characters of two bytes.
    const bool is_control =
        (length == 1 && (first < ' ' || first == 127)) ||
        (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (first == '\n' || first == '\r' || first == '\t') {
      out += ' ';
    } else if (length == 0 || is_control) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string cut(std::string_view text, size_t most) {
  size_t at = 0;
  for (size_t count = 0; count < most && at < text.size(); ++count) {
    at += std::max<size_t>(utf8_length(text.substr(at)), 1);
  }
  return std::string(text.substr(0, at)) + (at < text.size() ? "..." : "");
}

std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace tilefold::cli
