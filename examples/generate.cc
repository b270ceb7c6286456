// A language model on tilefold in one file: reads the trained weights of a small GPT-2-style
// decoder, runs the prompt through it at once, then one letter at a time against a cache of keys
// and values.
//
//   generate [--weights FILE] [--prompt TEXT] [--letters N] [--expect TEXT]
//
// The model is examples/decoder.py's; train_rhyme.py made the weights.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tilefold/tilefold.hpp"

namespace {

using Values = std::vector<float>;

// IEEE binary16 -> float32. Trained weights are finite.
float widen(uint16_t half) {
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  const int exponent = half >> 10 & 31;
  const float fraction = static_cast<float>(half & 1023);
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024.0f + fraction, exponent - 25);
}

// A safetensors file: the length of a JSON header, the header, the tensors' bytes.
struct Weights {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Values> tensors;

  explicit Weights(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + " cannot be read; --weights names the file");
    uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof(length));
    constexpr uint64_t kLongestHeader = 1 << 20;
    if (!file || length > kLongestHeader)
      throw std::runtime_error(path + " is no safetensors file");
    std::string text(length, '\0');
    file.read(text.data(), static_cast<std::streamsize>(length));
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    const nlohmann::json header = nlohmann::json::parse(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        metadata = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      const size_t begin = entry.at("data_offsets").at(0);
      const size_t end = entry.at("data_offsets").at(1);
      if (entry.at("dtype") != "F16" || begin > end || end > bytes.size()) {
        throw std::runtime_error(path + ": tensor " + name + " is not float16 inside the file");
      }
      Values values((end - begin) / sizeof(uint16_t));
      for (size_t i = 0; i < values.size(); ++i) {
        uint16_t half = 0;
        std::memcpy(&half, bytes.data() + begin + i * sizeof(half), sizeof(half));
        values[i] = widen(half);
      }
      tensors[name] = std::move(values);
    }
  }

  const Values& operator[](const std::string& name) const { return tensors.at(name); }
  int number(const std::string& name) const { return std::stoi(metadata.at(name)); }
};

// y[rows, out] = x[rows, in] weight[out, in]^T + bias[out]
Values linear(const Values& x, const Values& weight, const Values& bias) {
  const size_t out = bias.size();
  const size_t in = weight.size() / out;
  Values y(x.size() / in * out);
  for (size_t i = 0; i < y.size(); ++i) {
    const float* row = &x[i / out * in];
    const float* column = &weight[i % out * in];
    float sum = bias[i % out];
    for (size_t d = 0; d < in; ++d) sum += row[d] * column[d];
    y[i] = sum;
  }
  return y;
}

Values layer_norm(const Values& x, const Values& gain, const Values& bias) {
  const size_t width = gain.size();
  Values y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += width) {
    float mean = 0.0f;
    for (size_t d = 0; d < width; ++d) mean += x[begin + d] / static_cast<float>(width);
    float variance = 0.0f;
    for (size_t d = 0; d < width; ++d) {
      variance += (x[begin + d] - mean) * (x[begin + d] - mean) / static_cast<float>(width);
    }
    const float inverse = 1.0f / std::sqrt(variance + 1e-5f);
    for (size_t d = 0; d < width; ++d)
      y[begin + d] = (x[begin + d] - mean) * inverse * gain[d] + bias[d];
  }
  return y;
}

void add(Values& x, const Values& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

void gelu(Values& x) {
  for (float& value : x) {
    value *= 0.5f * (1.0f + std::tanh(0.7978845608f * (value + 0.044715f * value * value * value)));
  }
}

class Decoder {
 public:
  explicit Decoder(const Weights& weights)
      : weights_(weights),
        width_(weights.number("width")),
        num_heads_(weights.number("num_heads")),
        context_(weights.number("context")),
        alphabet_(weights.metadata.at("alphabet")),
        caches_(weights.number("num_layers")) {
    // Keys and values of every layer, [N, 2, width], as the projection writes them.
    for (Values& cache : caches_) cache.resize(static_cast<size_t>(context_) * 2 * width_);
  }

  int64_t length() const { return length_; }
  int64_t context() const { return context_; }

  // Takes further letters; returns the likeliest next one.
  char feed(const std::string& text) {
    const auto rows = static_cast<int64_t>(text.size());
    if (length_ + rows > context_) throw std::runtime_error("the text is longer than the context");
    Values x(rows * width_);
    for (int64_t row = 0; row < rows; ++row) {
      const size_t letter = alphabet_.find(text[row]);
      if (letter == std::string::npos) {
        throw std::runtime_error(std::string("the model has no letter '") + text[row] + "'");
      }
      for (int64_t d = 0; d < width_; ++d) {
        x[row * width_ + d] = weights_["letters.weight"][letter * width_ + d] +
                              weights_["places.weight"][(length_ + row) * width_ + d];
      }
    }
    for (size_t layer = 0; layer < caches_.size(); ++layer) block(layer, x);
    length_ += rows;
    x = layer_norm(x, weights_["norm.weight"], weights_["norm.bias"]);
    const Values last(x.end() - width_, x.end());
    const Values logits = linear(last, weights_["letters.weight"], Values(alphabet_.size(), 0.0f));
    return alphabet_[std::max_element(logits.begin(), logits.end()) - logits.begin()];
  }

 private:
  // x + attention(norm x), then x + mlp(norm x); x is [rows, width].
  void block(size_t layer, Values& x) {
    const std::string prefix = "blocks." + std::to_string(layer) + ".";
    const auto named = [&](const char* name) -> const Values& { return weights_[prefix + name]; };
    const int64_t rows = static_cast<int64_t>(x.size()) / width_;
    const int64_t keys = length_ + rows;
    const int64_t head_dim = width_ / num_heads_;
    const Values normed = layer_norm(x, named("norm_1.weight"), named("norm_1.bias"));
    const Values qkv = linear(normed, named("qkv.weight"), named("qkv.bias"));  // [rows, 3, width]
    Values& cache = caches_[layer];
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(&qkv[(3 * row + 1) * width_], 2 * width_, &cache[(length_ + row) * 2 * width_]);
    }
    // All three are read where they lie: strides say how far it is to the next batch, head, row and
    // column. The new rows are the last ones, so the causal mask is aligned to the bottom right. A
    // single row is less work than waking a thread is.
    Values o(rows * width_);
    const tilefold::Extents q_shape = {1, num_heads_, rows, head_dim};
    const tilefold::Extents k_shape = {1, num_heads_, keys, head_dim};
    const tilefold::Extents cache_strides = {0, head_dim, 2 * width_, 1};
    tilefold::forward(
        {qkv.data(), q_shape, {0, head_dim, 3 * width_, 1}}, {cache.data(), k_shape, cache_strides},
        {cache.data() + width_, k_shape, cache_strides},
        {o.data(), q_shape, {0, head_dim, width_, 1}},
        {.causal = tilefold::Causal::kBottomRight, .num_threads = rows == 1 ? 1 : 0}, &workspace_);
    add(x, linear(o, named("project.weight"), named("project.bias")));
    Values hidden = linear(layer_norm(x, named("norm_2.weight"), named("norm_2.bias")),
                           named("expand.weight"), named("expand.bias"));
    gelu(hidden);
    add(x, linear(hidden, named("contract.weight"), named("contract.bias")));
  }

  const Weights& weights_;
  int64_t width_;
  int64_t num_heads_;
  int64_t context_;
  std::string alphabet_;
  std::vector<Values> caches_;
  int64_t length_ = 0;
  tilefold::Workspace workspace_;
};

constexpr const char* kUsage =
    "usage: generate [--weights FILE] [--prompt TEXT] [--letters N] [--expect TEXT]\n"
    "Writes on from the prompt. FILE: examples/rhyme.safetensors of the source tree.\n";

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {{"--weights", "examples/rhyme.safetensors"},
                                                {"--prompt", "This is the cat,\n"},
                                                {"--letters", "160"},
                                                {"--expect", ""}};
  for (int i = 1; i < argc; i += 2) {
    if (options.count(argv[i]) == 0 || i + 1 == argc) {
      const bool asked = std::string(argv[i]) == "--help";
      (asked ? std::cout : std::cerr) << kUsage;
      return asked ? 0 : 2;
    }
    options[argv[i]] = argv[i + 1];
  }
  try {
    const Weights weights(options["--weights"]);
    Decoder decoder(weights);
    std::string text = options["--prompt"];
    char next = decoder.feed(text);
    const int letters = std::stoi(options["--letters"]);
    for (int i = 0; i < letters && decoder.length() < decoder.context(); ++i) {
      text += next;
      next = decoder.feed(std::string(1, next));
    }
    std::cout << text << '\n';
    if (text.find(options["--expect"]) == std::string::npos) {
      std::cerr << "generate: the text lacks what was expected: " << options["--expect"] << '\n';
      return 1;
    }
  } catch (const std::exception& error) {
    std::cerr << "generate: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
