// What commands print.
#include "cli/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tilefold::cli {

bool colours_on_stdout() {
  static const bool on = [] {
    const char* term = std::getenv("TERM");
    const char* no_color = std::getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || no_color[0] == '\0') &&
           term != nullptr && std::strcmp(term, "dumb") != 0;
  }();
  return on;
}

int terminal_columns() {
  constexpr int kDefaultColumns = 80;
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultColumns;
}

std::string bold(std::string_view text) {
  return colours_on_stdout() ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

std::string dim(std::string_view text) {
  return colours_on_stdout() ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string Table::text(std::string_view indent) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(display_width(columns_[c].title));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  const auto line = [&](const auto& cell_of) {
    std::string out(indent);
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - display_width(cell), ' ');
      const bool right = columns_[c].align == Align::kRight;
      out += right ? padding + cell : cell + padding;
      if (c + 1 < columns_.size()) out += "  ";
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::string text =
      dim(line([&](size_t c) -> const std::string& { return columns_[c].title; })) + "\n";
  for (const auto& row : rows_) {
    text += line([&](size_t c) -> const std::string& { return row[c]; }) + "\n";
  }
  return text;
}

ProgressBar::ProgressBar(int64_t total)
    : shown_(isatty(STDERR_FILENO) != 0),
      total_(std::max<int64_t>(total, 1)),
      started_(std::chrono::steady_clock::now()) {}

void ProgressBar::update(int64_t done, std::string_view label) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kCells = 30;
  const int filled = static_cast<int>(kCells * std::min(done, total_) / total_);
  std::string bar;
  for (int i = 0; i < kCells; ++i) bar += i < filled ? "█" : "·";
  const double seconds = std::chrono::duration<double>(now - started_).count();
  std::string left;
  if (done > 0 && done < total_ && seconds > 1) {
    left = fmt::format(", {:.0f} s left", seconds / done * (total_ - done));
  }
  std::fputs(
      fmt::format("\r\x1b[K{} {}/{}{}  {}", bar, done, total_, left, label.substr(0, 30)).c_str(),
      stderr);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

std::string time_text(double ms) {
  if (ms < 1) return short_number(ms * 1e3) + " us";
  if (ms < 1e3) return short_number(ms) + " ms";
  return short_number(ms / 1e3) + " s";
}

std::string short_number(double value) {
  if (value == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  const int digits = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(2 - digits, 0, 9));
}

}  // namespace tilefold::cli
