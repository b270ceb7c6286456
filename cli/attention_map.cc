// The attention probabilities of one head, worked out and drawn.
#include "cli/attention_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/bitmap_font.h"
#include "cli/io/text.h"
#include "cli/mask.h"
#include "cli/numbers.h"
#include "cli/terminal.h"

namespace tilefold::cli {
namespace {

// A row of a tensor as float32.
void load_row(const ConstTensor& tensor, int64_t batch, int64_t head, int64_t row,
              std::vector<float>* values) {
  const Extents strides = tensor.strides();
  const int64_t bytes = size_in_bytes(tensor.type());
  const auto* base = static_cast<const std::byte*>(tensor.data());
  values->resize(static_cast<size_t>(tensor.shape()[3]));
  for (int64_t d = 0; d < tensor.shape()[3]; ++d) {
    const int64_t at = batch * strides[0] + head * strides[1] + row * strides[2] + d * strides[3];
    (*values)[d] = load_number(tensor.type(), base + at * bytes);
  }
}

// Anchors of the colour ramp, evenly spaced: night blue, violet, red, amber, cream.
constexpr Rgb kRamp[] = {{13, 14, 34},   {58, 24, 102},  {138, 35, 112}, {207, 62, 82},
                         {244, 123, 48}, {253, 194, 88}, {255, 250, 220}};
constexpr Rgb kPaper = {250, 250, 252};
constexpr Rgb kMasked = {226, 228, 236};
constexpr Rgb kInk = {30, 32, 44};
constexpr Rgb kFaint = {120, 124, 140};
enum Colour : uint8_t { kPaperIndex, kMaskedIndex, kInkIndex, kFaintIndex, kRampIndex };
constexpr int kRampColours = 256 - kRampIndex;

// Small probabilities are what patterns are made of: they are lifted.
float intensity(float probability) {
  constexpr float kGamma = 0.45f;
  return std::pow(std::clamp(probability, 0.0f, 1.0f), kGamma);
}

Rgb ramp(float t) {
  constexpr int kSegments = static_cast<int>(std::size(kRamp)) - 1;
  const float at = std::clamp(t, 0.0f, 1.0f) * kSegments;
  const int segment = std::min(static_cast<int>(at), kSegments - 1);
  const float part = at - static_cast<float>(segment);
  Rgb colour;
  for (size_t c = 0; c < colour.size(); ++c) {
    const float low = kRamp[segment][c];
    const float high = kRamp[segment + 1][c];
    colour[c] = static_cast<uint8_t>(std::lround(low + part * (high - low)));
  }
  return colour;
}

// Text as a label shows it: line ends and outer blanks gone.
std::string label_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != '\n' && c != '\r') out += c == '\t' ? ' ' : c;
  }
  const size_t first = out.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return cut(out.substr(first, out.find_last_not_of(' ') - first + 1), kMostLabelChars);
}

}  // namespace

AttentionMap attention_map(const ConstTensor& q, const ConstTensor& k, std::span<const float> lse,
                           const Options& options, const MapRequest& request) {
  AttentionMap map;
  map.first_row = request.first_row;
  map.num_rows = request.num_rows;
  map.first_key = request.first_key;
  map.num_keys = request.num_keys;
  const auto ceiling = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  map.rows_per_cell = std::max<int64_t>(1, ceiling(map.num_rows, request.max_cells));
  map.keys_per_cell = std::max<int64_t>(1, ceiling(map.num_keys, request.max_cells));
  map.cell_rows = ceiling(map.num_rows, map.rows_per_cell);
  map.cell_columns = ceiling(map.num_keys, map.keys_per_cell);
  map.cells.assign(static_cast<size_t>(map.cell_rows * map.cell_columns), -1.0f);

  const int64_t seqlen_q = q.shape()[2];
  const int64_t seqlen_k = k.shape()[2];
  const int64_t head_dim = q.shape()[3];
  const int64_t head_kv = request.head / (q.shape()[1] / k.shape()[1]);
  const float scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(head_dim)));
  std::vector<std::vector<float>> keys(static_cast<size_t>(map.num_keys));
  for (int64_t j = 0; j < map.num_keys; ++j) {
    load_row(k, request.batch, head_kv, map.first_key + j, &keys[j]);
  }
  std::vector<float> query;
  for (int64_t i = 0; i < map.num_rows; ++i) {
    const int64_t row = map.first_row + i;
    load_row(q, request.batch, request.head, row, &query);
    const float row_lse = lse[(request.batch * q.shape()[1] + request.head) * seqlen_q + row];
    const KeyRange visible = visible_keys(options, row, seqlen_q, seqlen_k);
    const int64_t begin = std::max(visible.begin, map.first_key);
    const int64_t end = std::min(visible.end, map.first_key + map.num_keys);
    for (int64_t j = begin; j < end; ++j) {
      const std::vector<float>& key = keys[j - map.first_key];
      float score = 0;
      for (int64_t d = 0; d < head_dim; ++d) score += query[d] * key[d];
      const float probability = std::exp(scale * score - row_lse);
      float& cell = map.cells[i / map.rows_per_cell * map.cell_columns +
                              (j - map.first_key) / map.keys_per_cell];
      cell = std::max(cell, std::isnan(probability) ? 0.0f : probability);
    }
  }
  return map;
}

std::vector<AxisLabel> token_labels(std::span<const std::string> tokens) {
  const bool has_lines = std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    return token.find('\n') != std::string::npos;
  });
  std::vector<AxisLabel> labels;
  std::string line;
  int64_t begin = 0;
  const auto count = static_cast<int64_t>(tokens.size());
  for (int64_t i = 0; i < count; ++i) {
    line += tokens[i];
    const bool ends = !has_lines || i + 1 == count || tokens[i].find('\n') != std::string::npos;
    if (!ends) continue;
    const std::string text = label_text(line);
    if (!text.empty()) labels.push_back({begin, i + 1, text});
    line.clear();
    begin = i + 1;
  }
  return labels;
}

Rgb attention_colour(float probability) { return ramp(intensity(probability)); }

Picture draw_map(const AttentionMap& map, std::span<const AxisLabel> row_labels,
                 std::span<const AxisLabel> key_labels, const std::string& title,
                 const std::string& subtitle) {
  constexpr int kTargetPixels = 1200;
  constexpr int kMaxCellPixels = 28;
  constexpr int kMargin = 16;
  constexpr int kGap = 6;
  constexpr int kTitleScale = 2;
  constexpr int kLegendPixels = 160;
  const int64_t most_cells = std::max<int64_t>({map.cell_rows, map.cell_columns, 1});
  const int cell =
      static_cast<int>(std::clamp<int64_t>(kTargetPixels / most_cells, 1, kMaxCellPixels));
  const int label_scale = cell >= 2 * kFontHeight + 2 ? 2 : 1;
  const int label_height = label_scale * kFontHeight + 1;
  int row_labels_width = 0;
  for (const AxisLabel& label : row_labels) {
    row_labels_width = std::max(row_labels_width, text_width(label.text, label_scale));
  }
  int key_labels_height = 0;
  for (const AxisLabel& label : key_labels) {
    key_labels_height = std::max(key_labels_height, text_width(label.text, label_scale));
  }
  const int left = kMargin + row_labels_width + kGap;
  const int title_height = kTitleScale * kFontHeight + kGap + kFontHeight + 2 * kGap;
  const int top = kMargin + title_height + key_labels_height + kGap;
  const int map_width = static_cast<int>(map.cell_columns) * cell;
  const int map_height = static_cast<int>(map.cell_rows) * cell;

  std::vector<Rgb> palette = {kPaper, kMasked, kInk, kFaint};
  for (int i = 0; i < kRampColours; ++i) {
    palette.push_back(ramp(static_cast<float>(i) / (kRampColours - 1)));
  }
  const int title_width =
      std::max(text_width(title, kTitleScale), text_width(subtitle) + 4 * kMargin + kLegendPixels);
  const int width = std::max(left + map_width, kMargin + title_width) + kMargin;
  Picture picture(width, top + map_height + kMargin, palette, kPaperIndex);
  const auto ramp_index = [](float t) {
    return static_cast<uint8_t>(kRampIndex + std::lround(t * (kRampColours - 1)));
  };

  draw_text(&picture, kMargin, kMargin, title, kInkIndex, kTitleScale);
  const int second_line = kMargin + kTitleScale * kFontHeight + kGap;
  draw_text(&picture, kMargin, second_line, subtitle, kFaintIndex);
  // Legend, at the right end of the second line: probability 0 to 1.
  const int legend = width - kMargin - kLegendPixels - text_width("1") - kGap;
  draw_text(&picture, legend - text_width("0") - kGap, second_line, "0", kFaintIndex);
  for (int x = 0; x < kLegendPixels; ++x) {
    picture.fill(legend + x, second_line, 1, kFontHeight - 2,
                 ramp_index(intensity(static_cast<float>(x) / (kLegendPixels - 1))));
  }
  draw_text(&picture, legend + kLegendPixels + kGap, second_line, "1", kFaintIndex);

  for (int64_t r = 0; r < map.cell_rows; ++r) {
    for (int64_t c = 0; c < map.cell_columns; ++c) {
      const float probability = map.at(r, c);
      picture.fill(left + static_cast<int>(c) * cell, top + static_cast<int>(r) * cell, cell, cell,
                   probability < 0 ? uint8_t{kMaskedIndex} : ramp_index(intensity(probability)));
    }
  }

  // A label is drawn at its range's beginning, unless it would touch the one before.
  const auto place = [&](std::span<const AxisLabel> labels, int64_t first, int64_t count,
                         int64_t per_cell, auto&& draw) {
    int free_from = 0;
    for (const AxisLabel& label : labels) {
      if (label.end <= first || label.begin >= first + count) continue;
      const int64_t begin = std::max(label.begin - first, int64_t{0}) / per_cell;
      const int64_t end = std::max(begin + 1, (label.end - first) / per_cell);
      const int middle = static_cast<int>((begin + end) * cell / 2);
      const int at = std::max(0, middle - label_height / 2);
      if (at < free_from) continue;
      free_from = at + label_height;
      draw(at, label.text);
    }
  };
  place(row_labels, map.first_row, map.num_rows, map.rows_per_cell,
        [&](int at, const std::string& text) {
          draw_text(&picture, left - kGap - text_width(text, label_scale), top + at, text,
                    kInkIndex, label_scale);
        });
  place(key_labels, map.first_key, map.num_keys, map.keys_per_cell,
        [&](int at, const std::string& text) {
          draw_text_upwards(&picture, left + at, top - kGap, text, kInkIndex, label_scale);
        });
  return picture;
}

std::string terminal_map(const AttentionMap& map, std::span<const std::string> row_tokens,
                         std::span<const std::string> key_tokens, const std::string& indent) {
  constexpr const char* kShades[] = {"  ", "░░", "▒▒", "▓▓", "██"};
  constexpr size_t kMaxLabel = 12;
  constexpr size_t kMaxColumnLabel = 6;
  // The characters of a token's label.
  const auto label = [](const std::string& token, size_t most) {
    std::string text;
    for (const char c : token) text += c == '\n' ? "\\n" : std::string(1, c);
    text = clean(text);
    const size_t first = text.find_first_not_of(' ');
    text = first == std::string::npos ? "_" : text.substr(first);
    std::vector<std::string> characters;
    for (size_t at = 0; at < text.size() && characters.size() < most;) {
      characters.push_back(text.substr(at, utf8_length(std::string_view(text).substr(at))));
      at += characters.back().size();
    }
    return characters;
  };
  const std::string margin = indent + std::string(kMaxLabel + 1, ' ');
  std::string out;
  // Column labels stand upright, their last letters on one line.
  size_t tallest = 0;
  for (const std::string& token : key_tokens) {
    tallest = std::max(tallest, label(token, kMaxColumnLabel).size());
  }
  for (size_t line = 0; line < tallest; ++line) {
    std::string text;
    for (const std::string& token : key_tokens) {
      const std::vector<std::string> name = label(token, kMaxColumnLabel);
      const size_t blank = tallest - name.size();
      text += line < blank ? "  " : name[line - blank] + " ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += margin + dim(text) + "\n";
  }
  for (int64_t r = 0; r < map.cell_rows; ++r) {
    const std::vector<std::string> name = label(row_tokens[r], kMaxLabel);
    out += indent;
    out.append(kMaxLabel - name.size(), ' ');
    for (const std::string& character : name) out += character;
    out += ' ';
    std::string cells;
    for (int64_t c = 0; c < map.cell_columns; ++c) {
      const float probability = map.at(r, c);
      if (probability < 0) {
        cells += "  ";
      } else if (colours_on_stdout()) {
        const Rgb colour = attention_colour(probability);
        cells += fmt::format("\x1b[48;2;{};{};{}m  \x1b[0m", colour[0], colour[1], colour[2]);
      } else {
        constexpr int kTop = static_cast<int>(std::size(kShades)) - 1;
        cells += kShades[std::clamp(static_cast<int>(intensity(probability) * 5.5f), 0, kTop)];
      }
    }
    if (!colours_on_stdout()) cells.erase(cells.find_last_not_of(' ') + 1);
    out += cells + "\n";
  }
  return out;
}

}  // namespace tilefold::cli
