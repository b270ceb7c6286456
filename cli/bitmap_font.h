// A small proportional bitmap font for the labels of pictures.
#pragma once

#include <string_view>

#include "cli/io/png.h"

namespace tilefold::cli {

/// Height of a line of text: 7 pixels above the base line's foot, 2 below.
inline constexpr int kFontHeight = 9;

/// Width of `text` in pixels. Other bytes than printable ASCII show as a hollow box.
int text_width(std::string_view text, int scale = 1);

/// Draws `text` with its upper left corner at (x, y), every font pixel `scale` wide and high.
void draw_text(Picture* picture, int x, int y, std::string_view text, uint8_t colour,
               int scale = 1);

/// Draws `text` turned a quarter to the left (read from below), its first letter's head at (x, y).
void draw_text_upwards(Picture* picture, int x, int y, std::string_view text, uint8_t colour,
                       int scale = 1);

}  // namespace tilefold::cli
