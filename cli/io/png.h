// A PNG encoder without dependencies, for pictures of few colours and long runs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tilefold::cli {

using Rgb = std::array<uint8_t, 3>;

/// A picture of palette indices.
class Picture {
 public:
  Picture(int width, int height, std::vector<Rgb> palette, uint8_t background = 0)
      : width_(width),
        height_(height),
        palette_(std::move(palette)),
        pixels_(size_t(width) * height, background) {}

  int width() const { return width_; }
  int height() const { return height_; }
  /// Sets a pixel; outside the picture: nothing.
  void set(int x, int y, uint8_t colour) {
    if (x >= 0 && x < width_ && y >= 0 && y < height_) pixels_[size_t(y) * width_ + x] = colour;
  }
  void fill(int x, int y, int width, int height, uint8_t colour) {
    for (int j = y; j < y + height; ++j) {
      for (int i = x; i < x + width; ++i) set(i, j, colour);
    }
  }
  std::span<const uint8_t> row(int y) const {
    return std::span(pixels_).subspan(size_t(y) * width_, width_);
  }
  std::span<const Rgb> palette() const { return palette_; }

 private:
  int width_;
  int height_;
  std::vector<Rgb> palette_;
  std::vector<uint8_t> pixels_;
};

/// The bytes of a PNG file: 8-bit palette, rows filtered "up", deflate with fixed codes and matches
/// of distance 1 (a run, or rows that repeat).
std::string encode_png(const Picture& picture);

}  // namespace tilefold::cli
