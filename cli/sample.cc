// What a file's metadata says about its tensors.
#include "cli/sample.h"

#include <fmt/core.h>

#include <charconv>
#include <utility>

#include "cli/io/tensor_file.h"

namespace tilefold::cli {

std::string Sample::heading(int64_t shown_head) const {
  std::string text = model;
  if (!layer.empty()) text += fmt::format("{}layer {}", text.empty() ? "" : ", ", layer);
  text += fmt::format("{}head {}", text.empty() ? "" : ", ", shown_head);
  if (!title.empty()) text += ": " + title;
  return text;
}

Sample describe_sample(const Inputs& inputs) {
  const auto text = [&](const char* key) -> std::string {
    const auto at = inputs.metadata.find(key);
    return at == inputs.metadata.end() ? "" : at->second;
  };
  Sample sample;
  sample.model = text("model");
  sample.title = text("title");
  sample.layer = text("layer");
  sample.num_layers = text("num_layers");
  sample.note = text("note");
  if (const std::string causal = text("causal"); causal == "top-left" || causal == "bottom-right") {
    sample.causal = causal;
  }
  const std::string head = text("head");
  int64_t number = 0;
  if (std::from_chars(head.data(), head.data() + head.size(), number).ec == std::errc() &&
      number >= 0 && number < inputs.q.shape()[1]) {
    sample.head = number;
  }
  std::vector<std::string> tokens = parse_string_list(text("tokens"));
  if (static_cast<int64_t>(tokens.size()) == inputs.q.shape()[2]) sample.tokens = std::move(tokens);
  return sample;
}

Picture draw_sample(const Sample& sample, const AttentionMap& map, int64_t head) {
  const std::vector<AxisLabel> labels = token_labels(sample.tokens);
  std::string subtitle = fmt::format("rows {} to {} look at keys {} to {}", map.first_row,
                                     map.first_row + map.num_rows - 1, map.first_key,
                                     map.first_key + map.num_keys - 1);
  if (map.rows_per_cell > 1 || map.keys_per_cell > 1) {
    subtitle +=
        fmt::format("; a pixel is the largest of {} x {}", map.rows_per_cell, map.keys_per_cell);
  }
  if (!sample.note.empty()) subtitle = sample.note;
  return draw_map(map, labels, labels, sample.heading(head), subtitle);
}

}  // namespace tilefold::cli
