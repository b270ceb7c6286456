// What a file's metadata says about its tensors: the model, the text, and which head to show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/attention_map.h"
#include "cli/inputs.h"

namespace tilefold::cli {

/// The metadata that samples/make_sample.py writes; every field may be missing.
struct Sample {
  std::string model;
  std::string title;
  std::string layer;
  std::string num_layers;
  std::string note;                     ///< One sentence on the head that is shown.
  std::string causal = "none";          ///< The mask that the model uses, as --causal takes it.
  int64_t head = 0;                     ///< The head to show.
  std::vector<std::string> row_tokens;  ///< One for each row of q, or empty.
  std::vector<std::string> key_tokens;  ///< One for each key, or empty.

  /// "SmolLM2-135M, layer 17, head 5: The House That Jack Built", as far as it is known.
  std::string heading(int64_t shown_head) const;
};

/// Metadata that does not fit the tensors (a head too many, the wrong number of tokens) is ignored.
Sample describe_sample(const Inputs& inputs);

/// Draws a map of one head, labelled with the sample's tokens.
Picture draw_sample(const Sample& sample, const AttentionMap& map, int64_t head);

}  // namespace tilefold::cli
