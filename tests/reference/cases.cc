// Forward problems as values.
#include "cases.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <numeric>
#include <sstream>

namespace tilefold::reference {
namespace {

struct Name {
  const char* name;
  int value;
};
constexpr Name kValuesNames[] = {
    {"normal", static_cast<int>(Values::kNormal)},
    {"uniform", static_cast<int>(Values::kUniform)},
    {"large_logits", static_cast<int>(Values::kLargeLogits)},
    {"huge_logits", static_cast<int>(Values::kHugeLogits)},
    {"zero_queries", static_cast<int>(Values::kZeroQueries)},
    {"negative", static_cast<int>(Values::kNegative)},
    {"one_hot_key", static_cast<int>(Values::kOneHotKey)},
    {"offset", static_cast<int>(Values::kOffset)},
};
constexpr Name kCausalNames[] = {{"none", TILEFOLD_CAUSAL_NONE},
                                 {"top_left", TILEFOLD_CAUSAL_TOP_LEFT},
                                 {"bottom_right", TILEFOLD_CAUSAL_BOTTOM_RIGHT}};
constexpr Name kAlignNames[] = {{"auto", TILEFOLD_WINDOW_ALIGN_AUTO},
                                {"top_left", TILEFOLD_WINDOW_ALIGN_TOP_LEFT},
                                {"bottom_right", TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT}};
constexpr Name kEmptyNames[] = {{"+inf", TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY},
                                {"-inf", TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY}};

template <size_t kCount>
const char* name_of(const Name (&names)[kCount], int value) {
  for (const Name& n : names) {
    if (n.value == value) return n.name;
  }
  return "?";
}

template <size_t kCount>
bool value_of(const Name (&names)[kCount], const std::string& name, int* value) {
  for (const Name& n : names) {
    if (name == n.name) return *value = n.value, true;
  }
  return false;
}

template <typename Number>
bool parse_number(const std::string& text, Number* value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && at == end && !text.empty();
}

bool parse_list(const std::string& text, std::vector<int64_t>* values) {
  values->clear();
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    int64_t value;
    if (!parse_number(part, &value)) return false;
    values->push_back(value);
  }
  return !values->empty();
}

constexpr int64_t kMostCaseElements = int64_t{1} << 33;

template <size_t kCount>
std::string names_of(const Name (&names)[kCount]) {
  std::string text;
  for (const Name& n : names) text += (text.empty() ? "" : ", ") + std::string(n.name);
  return text;
}

// Takes one key=value word. Returns what would be accepted if the value is wrong, else nothing; an
// unknown key is a value of `unknown`.
std::string read_word(const std::string& key, std::string text, Case* c, bool* unknown) {
  const std::map<std::string, int64_t*> extents = {
      {"b", &c->batch},     {"hq", &c->heads},   {"hkv", &c->heads_kv}, {"nq", &c->seqlen_q},
      {"nk", &c->seqlen_k}, {"d", &c->head_dim}, {"dv", &c->head_dim_v}};
  const std::map<std::string, int64_t*> offsets = {{"q_offset", &c->q.offset_elems},
                                                   {"k_offset", &c->k.offset_elems},
                                                   {"v_offset", &c->v.offset_elems},
                                                   {"o_offset", &c->o.offset_elems},
                                                   {"lse_offset", &c->lse.offset_elems}};
  const std::map<std::string, int64_t*> windows = {{"wl", &c->window_left},
                                                   {"wr", &c->window_right}};
  const std::map<std::string, std::vector<int64_t>*> lists = {{"q_strides", &c->q.strides},
                                                              {"k_strides", &c->k.strides},
                                                              {"v_strides", &c->v.strides},
                                                              {"o_strides", &c->o.strides},
                                                              {"lse_strides", &c->lse.strides}};
  const auto accepted = [](bool taken, const std::string& what) { return taken ? "" : what; };
  for (const auto& numbers : {extents, offsets}) {
    const auto it = numbers.find(key);
    if (it == numbers.end()) continue;
    int64_t* const value = it->second;
    return accepted(parse_number(text, value) && *value >= 0 && *value <= kMostCaseElements,
                    "an integer from 0 to " + std::to_string(kMostCaseElements));
  }
  if (const auto it = windows.find(key); it != windows.end()) {
    return accepted(parse_number(text, it->second), "an integer");
  }
  if (const auto it = lists.find(key); it != lists.end()) {
    const bool is_lse = key == "lse_strides";
    return accepted(parse_list(text, it->second) && it->second->size() == (is_lse ? 3u : 4u),
                    is_lse ? "3 integers such as 8,4,1" : "4 integers such as 64,32,8,1");
  }
  if (key == "causal" || key == "align") std::replace(text.begin(), text.end(), '-', '_');
  if (key == "dtype") return accepted(parse_dtype(text, &c->dtype), "float32, float16, bfloat16");
  if (key == "causal") {
    return accepted(value_of(kCausalNames, text, &c->causal), names_of(kCausalNames));
  }
  if (key == "align") {
    return accepted(value_of(kAlignNames, text, &c->window_align), names_of(kAlignNames));
  }
  if (key == "empty") {
    return accepted(value_of(kEmptyNames, text, &c->empty_row_lse), names_of(kEmptyNames));
  }
  if (key == "seed") {
    return accepted(parse_number(text, &c->seed), "an integer from 0 to 18446744073709551615");
  }
  if (key == "lse") {
    c->want_lse = text == "1";
    return accepted(text == "0" || text == "1", "0, 1");
  }
  if (key == "scale") {
    c->has_scale = true;
    return accepted(parse_number(text, &c->scale), "a number");
  }
  if (key == "values") {
    int value = 0;
    const bool taken = value_of(kValuesNames, text, &value);
    if (taken) c->values = static_cast<Values>(value);
    return accepted(taken, names_of(kValuesNames));
  }
  *unknown = true;
  return "";
}

// Whether a tensor of that shape and layout spans at most kMostCaseElements.
bool fits(std::initializer_list<int64_t> shape, const Layout& layout) {
  const bool contiguous = layout.strides.empty();
  int64_t elements = 1;
  int64_t span = 1;
  size_t axis = 0;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements) ||
        elements > kMostCaseElements) {
      return false;
    }
    const int64_t stride = contiguous ? 0 : layout.strides[axis++];
    int64_t reach = 0;
    if (extent > 1 && (__builtin_mul_overflow(extent - 1, stride, &reach) ||
                       reach > kMostCaseElements || reach < -kMostCaseElements)) {
      return false;
    }
    span += std::abs(reach);
  }
  return span <= kMostCaseElements;
}

std::string joined(const std::vector<int64_t>& values) {
  std::ostringstream text;
  for (size_t i = 0; i < values.size(); ++i) text << (i == 0 ? "" : ",") << values[i];
  return text.str();
}

// A stream of random choices.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_bits(seed_, n_++) % n); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <typename T>
  T of(const std::vector<T>& choices) {
    return choices[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  uint64_t seed_;
  uint64_t n_ = 0;
};

// Any layout of `shape`: axes in any order in memory, gaps, negative strides, and stride 0 on batch
// or heads where `broadcast` allows.
Layout random_layout(const std::vector<int64_t>& shape, bool broadcast, bool any, Draw* draw) {
  Layout layout;
  const int kind = static_cast<int>(draw->below(any ? 4 : 2));
  if (kind == 0) return layout;  // contiguous
  const size_t rank = shape.size();
  std::vector<size_t> order(rank);  // outermost first
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[1], order[2]);  // [B, N, H, D] storage
  if (kind >= 2) {
    for (size_t i = rank; i-- > 1;) std::swap(order[i], order[draw->below(i + 1)]);
  }
  layout.strides.assign(rank, 0);
  int64_t stride = 1;
  for (size_t i = rank; i-- > 0;) {
    const size_t axis = order[i];
    if (kind >= 2 && draw->one_in(3)) stride += draw->between(1, 9);
    layout.strides[axis] = stride;
    stride *= std::max<int64_t>(shape[axis], 1);
  }
  if (kind >= 2) {
    for (size_t axis = 0; axis < rank; ++axis) {
      if (draw->one_in(6)) layout.strides[axis] = -layout.strides[axis];
      if (broadcast && axis < 2 && draw->one_in(6)) layout.strides[axis] = 0;
      if (shape[axis] == 1 && draw->one_in(2)) {
        layout.strides[axis] = draw->of<int64_t>({0, 7, int64_t{1} << 40, -3});
      }
    }
    if (draw->one_in(2)) layout.offset_elems = draw->between(1, 9);
  }
  return layout;
}

int64_t random_length(int64_t max, Draw* draw) {
  const int64_t near_tile =
      draw->of<int64_t>({16, 32, 64, 96, 128, 192, 256, 512}) + draw->between(-1, 1);
  const int64_t choice = draw->below(8);
  if (choice == 0) return draw->between(0, std::min<int64_t>(3, max));
  if (choice <= 3) return std::min(near_tile, max);
  return draw->between(1, max);
}

int64_t random_head_dim(const CaseLimits& limits, Draw* draw) {
  if (!limits.head_dims.empty()) return draw->of(limits.head_dims);
  const int64_t choice = draw->below(4);
  if (choice == 0) return draw->between(1, limits.max_head_dim);
  if (choice == 1) return std::min<int64_t>(8 * draw->between(1, 20), limits.max_head_dim);
  return std::min(draw->of<int64_t>({32, 64, 96, 128}), limits.max_head_dim);
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t n) {
  // Two rounds of the splitmix64 finaliser over a Weyl sequence of each argument.
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  return mix(mix(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) + (n + 1) * 0x9e3779b97f4a7c15u);
}

double random_uniform(uint64_t seed, uint64_t n) {
  return static_cast<double>(random_bits(seed, n) >> 11) * 0x1p-53;
}

double random_normal(uint64_t seed, uint64_t n) {
  const double u = 1.0 - random_uniform(seed, 2 * n);
  const double angle = 2 * 3.14159265358979323846 * random_uniform(seed, 2 * n + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(angle);
}

std::string Case::to_string() const {
  std::ostringstream text;
  text << "dtype=" << dtype_name(dtype) << " b=" << batch << " hq=" << heads << " hkv=" << heads_kv
       << " nq=" << seqlen_q << " nk=" << seqlen_k << " d=" << head_dim << " dv=" << head_dim_v;
  if (causal != TILEFOLD_CAUSAL_NONE) text << " causal=" << name_of(kCausalNames, causal);
  if (window_left != -1) text << " wl=" << window_left;
  if (window_right != -1) text << " wr=" << window_right;
  if (window_align != TILEFOLD_WINDOW_ALIGN_AUTO) {
    text << " align=" << name_of(kAlignNames, window_align);
  }
  if (has_scale) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.9g", scale);
    text << " scale=" << number;
  }
  if (empty_row_lse != TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY) text << " empty=-inf";
  if (!want_lse) text << " lse=0";
  text << " values=" << name_of(kValuesNames, static_cast<int>(values)) << " seed=" << seed;
  const std::pair<const char*, const Layout*> layouts[] = {
      {"q", &q}, {"k", &k}, {"v", &v}, {"o", &o}, {"lse", &lse}};
  for (const auto& [name, layout] : layouts) {
    if (!layout->strides.empty()) text << " " << name << "_strides=" << joined(layout->strides);
    if (layout->offset_elems != 0) text << " " << name << "_offset=" << layout->offset_elems;
  }
  return text.str();
}

bool from_string(const std::string& text, Case* out, std::string* error) {
  Case c;
  bool dv_given = false;
  bool hkv_given = false;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    bool unknown = false;
    const std::string accepted = read_word(key, value, &c, &unknown);
    if (unknown) {
      *error = "cannot read '" + word +
               "': expected key=value with key among dtype b hq hkv nq nk d dv causal wl wr align "
               "scale empty lse values seed {q,k,v,o,lse}_strides {q,k,v,o,lse}_offset";
      return false;
    }
    if (!accepted.empty()) {
      *error = key;
      error->append(": '").append(value).append("'; accepted: ").append(accepted);
      return false;
    }
    dv_given = dv_given || key == "dv";
    hkv_given = hkv_given || key == "hkv";
  }
  if (!dv_given) c.head_dim_v = c.head_dim;
  if (!hkv_given) c.heads_kv = c.heads;
  const auto too_large = [&](const char* name) {
    *error = std::string("tensor ") + name + " spans more elements than a case may; accepted: " +
             std::to_string(kMostCaseElements) + " at most";
    return false;
  };
  if (!fits({c.batch, c.heads, c.seqlen_q, c.head_dim}, c.q)) return too_large("q");
  if (!fits({c.batch, c.heads_kv, c.seqlen_k, c.head_dim}, c.k)) return too_large("k");
  if (!fits({c.batch, c.heads_kv, c.seqlen_k, c.head_dim_v}, c.v)) return too_large("v");
  if (!fits({c.batch, c.heads, c.seqlen_q, c.head_dim_v}, c.o)) return too_large("o");
  if (!fits({c.batch, c.heads, c.seqlen_q}, c.lse)) return too_large("lse");
  *out = c;
  return true;
}

tilefold_options Case::options() const {
  tilefold_options result = {};
  result.struct_bytes = sizeof(result);
  result.causal = causal;
  result.window_left = window_left;
  result.window_right = window_right;
  result.window_align = window_align;
  result.has_scale = has_scale ? 1 : 0;
  result.scale = has_scale ? scale : 0.0f;
  result.empty_row_lse = empty_row_lse;
  return result;
}

Case random_case(uint64_t seed, const CaseLimits& limits) {
  Draw draw(seed ^ 0x7469'6c65'666f'6c64u);
  Case c;
  c.seed = seed;
  c.dtype = draw.of(limits.dtypes);
  c.batch = draw.one_in(12) ? 0 : draw.between(1, limits.max_batch);
  c.heads_kv = draw.between(1, limits.max_heads_kv);
  c.heads = c.heads_kv * draw.between(1, limits.max_group);
  c.seqlen_q = random_length(limits.max_seqlen, &draw);
  c.seqlen_k = draw.one_in(3) ? c.seqlen_q : random_length(limits.max_seqlen, &draw);
  c.head_dim = random_head_dim(limits, &draw);
  c.head_dim_v =
      limits.different_dv && draw.one_in(4) ? random_head_dim(limits, &draw) : c.head_dim;
  c.causal = static_cast<int>(draw.below(3));
  if (draw.one_in(3)) c.window_left = draw.between(0, limits.max_seqlen);
  if (draw.one_in(3)) c.window_right = draw.between(0, limits.max_seqlen);
  if (draw.one_in(3)) c.window_align = static_cast<int>(draw.below(3));
  if (draw.one_in(4)) {
    c.has_scale = true;
    c.scale = draw.of<float>({0.0f, 1.0f, 0.1147f, -0.5f, 0.25f});
  }
  c.empty_row_lse = static_cast<int>(draw.below(2));
  c.want_lse = !draw.one_in(4);
  c.values = draw.one_in(2)
                 ? Values::kNormal
                 : static_cast<Values>(draw.below(static_cast<int>(Values::kOffset) + 1));
  c.q = random_layout({c.batch, c.heads, c.seqlen_q, c.head_dim}, true, limits.any_strides, &draw);
  c.k =
      random_layout({c.batch, c.heads_kv, c.seqlen_k, c.head_dim}, true, limits.any_strides, &draw);
  c.v = random_layout({c.batch, c.heads_kv, c.seqlen_k, c.head_dim_v}, true, limits.any_strides,
                      &draw);
  c.o =
      random_layout({c.batch, c.heads, c.seqlen_q, c.head_dim_v}, false, limits.any_strides, &draw);
  c.lse = random_layout({c.batch, c.heads, c.seqlen_q}, false, limits.any_strides, &draw);
  return c;
}

float case_value(const Case& c, char tensor, int64_t b, int64_t h, int64_t i, int64_t d) {
  const uint64_t stream = c.seed * 4 + (tensor == 'q' ? 1 : tensor == 'k' ? 2 : 3);
  const uint64_t n =
      ((static_cast<uint64_t>(b) * 4096 + h) << 40) + (static_cast<uint64_t>(i) << 14) + d;
  const double normal = c.values == Values::kUniform ? 0 : random_normal(stream, n);
  switch (c.values) {
    case Values::kNormal: return static_cast<float>(normal);
    case Values::kUniform: return static_cast<float>(2 * random_uniform(stream, n) - 1);
    case Values::kLargeLogits: return static_cast<float>(tensor == 'q' ? 20 * normal : normal);
    case Values::kHugeLogits: return static_cast<float>(tensor == 'v' ? normal : 100 * normal);
    case Values::kZeroQueries: return tensor == 'q' ? 0.0f : static_cast<float>(normal);
    case Values::kNegative: {
      // q = a, k = -a with D * a^2 * scale = 120; a little noise in k alone.
      if (tensor == 'v') return static_cast<float>(normal);
      const double scale = c.has_scale && c.scale != 0
                               ? std::fabs(c.scale)
                               : 1 / std::sqrt(static_cast<double>(c.head_dim));
      const double a = std::sqrt(120 / scale / static_cast<double>(c.head_dim));
      const double sign = c.has_scale && c.scale < 0 ? -1 : 1;
      return static_cast<float>(tensor == 'q' ? a : -sign * a * (1 + 0.001 * normal));
    }
    case Values::kOneHotKey: {
      const bool loud = tensor == 'k' && c.seqlen_k > 0 &&
                        i == static_cast<int64_t>(random_bits(stream, h) % c.seqlen_k);
      return static_cast<float>(loud ? 64 * normal : normal);
    }
    case Values::kOffset: return static_cast<float>(tensor == 'v' ? normal : 3 + normal);
  }
  return 0.0f;
}

Instance make_instance(const Case& c) {
  const auto tensor = [](DType dtype, std::vector<int64_t> shape, const Layout& layout) {
    if (layout.strides.empty() && layout.offset_elems == 0)
      return HostTensor(dtype, std::move(shape));
    std::vector<int64_t> strides =
        layout.strides.empty() ? contiguous_strides(shape) : layout.strides;
    return HostTensor(dtype, std::move(shape), std::move(strides), layout.offset_elems);
  };
  const auto input = [&](char name, std::vector<int64_t> shape, const Layout& layout) {
    HostTensor t = tensor(c.dtype, std::move(shape), layout);
    t.fill([&](std::span<const int64_t> n) { return case_value(c, name, n[0], n[1], n[2], n[3]); });
    return t;
  };
  Instance instance;
  instance.q = input('q', {c.batch, c.heads, c.seqlen_q, c.head_dim}, c.q);
  instance.k = input('k', {c.batch, c.heads_kv, c.seqlen_k, c.head_dim}, c.k);
  instance.v = input('v', {c.batch, c.heads_kv, c.seqlen_k, c.head_dim_v}, c.v);
  instance.o = tensor(c.dtype, {c.batch, c.heads, c.seqlen_q, c.head_dim_v}, c.o);
  instance.lse = tensor(DType::kFloat32, {c.batch, c.heads, c.seqlen_q}, c.lse);
  instance.options = c.options();
  instance.want_lse = c.want_lse;
  return instance;
}

}  // namespace tilefold::reference
