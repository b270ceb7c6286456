// The attention probabilities of one head, worked out row by row from q, k and LSE, and drawn.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tilefold/tilefold.hpp>
#include <vector>

#include "cli/io/png.h"

namespace tilefold::cli {

/// Probabilities of a head, pooled to cells: a cell holds the largest of its block, -1 if the mask
/// hides all of it.
struct AttentionMap {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_key = 0;
  int64_t num_keys = 0;
  int64_t rows_per_cell = 1;
  int64_t keys_per_cell = 1;
  int64_t cell_rows = 0;
  int64_t cell_columns = 0;
  std::vector<float> cells;  // [cell_rows, cell_columns]

  float at(int64_t row, int64_t column) const { return cells[row * cell_columns + column]; }
};

/// Which part of which head.
struct MapRequest {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_key = 0;
  int64_t num_keys = 0;
  int64_t max_cells = 1600;  // along either axis
};

/// p[i, j] = exp(scale * q_i . k_j - lse_i) in float32 where row i sees key j.
///
/// \param q   [B, Hq, Nq, D], on the host.
/// \param k   [B, Hkv, Nk, D], on the host.
/// \param lse [B, Hq, Nq], contiguous.
AttentionMap attention_map(const ConstTensor& q, const ConstTensor& k, std::span<const float> lse,
                           const Options& options, const MapRequest& request);

/// A label of the rows (or keys) [begin, end).
struct AxisLabel {
  int64_t begin = 0;
  int64_t end = 0;
  std::string text;
};

/// Labels for tokens: a line of the text each where there are line ends, else a token each.
std::vector<AxisLabel> token_labels(std::span<const std::string> tokens);

/// Draws a map with labels on both axes (where they fit) and a title of two lines.
Picture draw_map(const AttentionMap& map, std::span<const AxisLabel> row_labels,
                 std::span<const AxisLabel> key_labels, const std::string& title,
                 const std::string& subtitle);

/// The colour of a probability in pictures and on terminals: dark to light, small ones lifted.
Rgb attention_colour(float probability);

/// Lines for a terminal: the probabilities of the map's cells, rows and columns labelled by token.
std::string terminal_map(const AttentionMap& map, std::span<const std::string> row_tokens,
                         std::span<const std::string> key_tokens, const std::string& indent);

}  // namespace tilefold::cli
