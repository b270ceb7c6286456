// What a file's metadata says about its tensors.
#include "cli/sample.h"

#include <fmt/core.h>

#include <charconv>

#include "cli/io/tensor_file.h"
#include "cli/io/text.h"

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
  const auto line = [&](const char* key) { return clean(cut(text(key), kMostTitleChars)); };
  Sample sample;
  sample.model = line("model");
  sample.title = line("title");
  sample.layer = line("layer");
  sample.num_layers = line("num_layers");
  sample.note = line("note");
  if (const std::string causal = text("causal"); causal == "top-left" || causal == "bottom-right") {
    sample.causal = causal;
  }
  const std::string head = text("head");
  int64_t number = 0;
  if (std::from_chars(head.data(), head.data() + head.size(), number).ec == std::errc() &&
      number >= 0 && number < inputs.q.shape()[1]) {
    sample.head = number;
  }
  const std::vector<std::string> tokens = parse_string_list(text("tokens"));
  const auto count = static_cast<int64_t>(tokens.size());
  if (count == inputs.q.shape()[2]) sample.row_tokens = tokens;
  if (count == inputs.k.shape()[2]) sample.key_tokens = tokens;
  return sample;
}

Picture draw_sample(const Sample& sample, const AttentionMap& map, int64_t head) {
  std::string subtitle = fmt::format("rows {} to {} look at keys {} to {}", map.first_row,
                                     map.first_row + map.num_rows - 1, map.first_key,
                                     map.first_key + map.num_keys - 1);
  if (map.rows_per_cell > 1 || map.keys_per_cell > 1) {
    subtitle +=
        fmt::format("; a pixel is the largest of {} x {}", map.rows_per_cell, map.keys_per_cell);
  }
  if (!sample.note.empty()) subtitle = sample.note;
  return draw_map(map, token_labels(sample.row_tokens), token_labels(sample.key_tokens),
                  sample.heading(head), subtitle);
}

}  // namespace tilefold::cli
