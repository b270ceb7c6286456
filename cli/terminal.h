// What commands print: tables, colours where the stream is a terminal, and a progress bar.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilefold::cli {

/// Whether stdout takes colours: a terminal, NO_COLOR unset, TERM not "dumb".
bool colours_on_stdout();
/// Columns of the terminal on stdout; 80 where there is none.
int terminal_columns();

/// `text` in bold or dimmed, where stdout takes it.
std::string bold(std::string_view text);
std::string dim(std::string_view text);

/// Columns that `text` takes on a terminal (UTF-8 without wide or combining characters).
size_t display_width(std::string_view text);

/// A table of text: columns as wide as their widest cell.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Its lines, each begun with `indent`.
  std::string text(std::string_view indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A bar on stderr, drawn only where that is a terminal, at most ten times a second; gone at the
/// end.
class ProgressBar {
 public:
  explicit ProgressBar(int64_t total);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the total; `label` is what is worked on.
  void update(int64_t done, std::string_view label);
  /// Takes the bar off the screen, so that a line can be printed.
  void clear();

 private:
  bool shown_;
  bool drawn_ = false;
  int64_t total_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point last_;
};

/// "12.3 ms", "1.05 s", "830 us".
std::string time_text(double ms);
/// Three significant digits: "0.0123", "1.23", "123", "12300".
std::string short_number(double value);

}  // namespace tilefold::cli
