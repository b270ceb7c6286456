// Readers and writers of tensor files, over byte spans.
#include "cli/io/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/io/json_writer.h"
#include "cli/io/text.h"

namespace tilefold::cli {

static_assert(std::endian::native == std::endian::little, "file data is used as it lies");

namespace {

using Json = nlohmann::json;

template <typename... Args>
[[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) {
  throw BadFile(fmt::format(format, std::forward<Args>(args)...));
}

// Text from a file as a message shows it: made fit for one line of a message.
std::string shown(std::string_view text) { return "'" + clean(cut(text, kMostLabelChars)) + "'"; }

uint64_t read_little_endian(std::span<const std::byte> bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Product of the extents times `element_bytes`; none if it does not fit int64_t.
std::optional<int64_t> checked_bytes(std::span<const int64_t> shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (const int64_t extent : shape) {
    // Zero extents do not excuse the others: strides are made of them.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) return std::nullopt;
  }
  return std::find(shape.begin(), shape.end(), 0) != shape.end() ? 0 : bytes;
}

struct SafetensorsType {
  std::string_view name;
  int64_t bits;
  std::optional<DataType> type;
};

// Every type that the format names, so that a file may carry others beside those asked for.
constexpr SafetensorsType kSafetensorsTypes[] = {
    {"F32", 32, DataType::kFloat32},
    {"F16", 16, DataType::kFloat16},
    {"BF16", 16, DataType::kBFloat16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I8", 8, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
};

std::string_view safetensors_name(DataType type) {
  for (const SafetensorsType& known : kSafetensorsTypes) {
    if (known.type == type) return known.name;
  }
  return "";
}

// A JSON array of non-negative integers that fit int64_t.
std::vector<int64_t> read_extents(const Json& value, std::string_view tensor, const char* what,
                                  size_t max_count) {
  if (!value.is_array()) bad("tensor {}: its {} is not an array", shown(tensor), what);
  if (value.size() > max_count) {
    bad("tensor {}: its {} has {} entries; accepted: at most {}", shown(tensor), what, value.size(),
        max_count);
  }
  std::vector<int64_t> extents;
  for (const Json& entry : value) {
    if (!entry.is_number_unsigned() ||
        entry.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max())) {
      bad("tensor {}: its {} holds {}; accepted: integers from 0 to 2^63 - 1", shown(tensor), what,
          shown(entry.dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
    extents.push_back(static_cast<int64_t>(entry.get<uint64_t>()));
  }
  return extents;
}

// The header's JSON; keys must not repeat, and nothing in a header is nested deeper than a shape.
Json parse_header(std::string_view text) {
  constexpr int kMaxDepth = 3;
  std::set<std::string> names;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) bad("the JSON header is nested deeper than a header can be");
    if (depth == 1 && event == Json::parse_event_t::key &&
        !names.insert(parsed.get<std::string>()).second) {
      bad("the JSON header names tensor {} twice", shown(parsed.get<std::string>()));
    }
    return true;
  };
  try {
    Json header = Json::parse(text.begin(), text.end(), watch);
    if (!header.is_object()) bad("the JSON header is not an object");
    return header;
  } catch (const Json::parse_error& error) {
    bad("the header is not valid JSON (at byte {} of it)", error.byte);
  } catch (const Json::exception&) {
    bad("the header is not valid JSON (a number beyond a double)");
  }
}

FileTensor read_entry(const std::string& name, const Json& entry, std::span<const std::byte> data) {
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.is_object() || !entry.contains(key)) {
      bad("tensor {}: its header entry has no '{}'", shown(name), key);
    }
  }
  if (!entry["dtype"].is_string()) bad("tensor {}: its dtype is not a string", shown(name));
  FileTensor tensor;
  tensor.name = name;
  tensor.dtype = entry["dtype"].get<std::string>();
  tensor.shape = read_extents(entry["shape"], name, "shape", kMaxFileRank);
  const std::vector<int64_t> offsets = read_extents(entry["data_offsets"], name, "data_offsets", 2);
  if (offsets.size() != 2) {
    bad("tensor {}: its data_offsets has {} entries; accepted: 2", shown(name), offsets.size());
  }
  if (offsets[0] > offsets[1] || uint64_t(offsets[1]) > data.size()) {
    bad("tensor {}: its data_offsets [{}, {}] are not inside the file's {} bytes of data "
        "(truncated, or a header that lies)",
        shown(name), offsets[0], offsets[1], data.size());
  }
  tensor.bytes = data.subspan(offsets[0], offsets[1] - offsets[0]);

  const auto* known =
      std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                   [&](const SafetensorsType& type) { return type.name == tensor.dtype; });
  if (known == std::end(kSafetensorsTypes)) {
    // Another type: its size is not ours to judge, but its elements must be countable.
    if (!checked_bytes(tensor.shape, 1)) {
      bad("tensor {}: shape {} has more elements than a signed 64-bit number can count",
          shown(name), shape_text(tensor.shape));
    }
    return tensor;
  }
  tensor.type = known->type;
  const std::optional<int64_t> needed = checked_bytes(tensor.shape, known->bits / 8);
  if (!needed) {
    bad("tensor {}: shape {} of {} has more bytes than a signed 64-bit number can count",
        shown(name), shape_text(tensor.shape), tensor.dtype);
  }
  if (*needed != offsets[1] - offsets[0]) {
    bad("tensor {}: shape {} of {} takes {} bytes, but its data_offsets [{}, {}] hold {}",
        shown(name), shape_text(tensor.shape), tensor.dtype, *needed, offsets[0], offsets[1],
        offsets[1] - offsets[0]);
  }
  return tensor;
}

// The data must be covered exactly once: the format allows neither overlaps nor holes.
void check_coverage(const std::vector<FileTensor>& tensors, std::span<const std::byte> data) {
  const std::byte* end = data.data();
  const std::string* previous = nullptr;
  for (const FileTensor& tensor : tensors) {
    if (tensor.bytes.data() < end) {
      bad("tensors {} and {} overlap in the file", shown(*previous), shown(tensor.name));
    }
    if (tensor.bytes.data() > end) {
      bad("before tensor {} its data has {} of no tensor", shown(tensor.name),
          counted(tensor.bytes.data() - end, "byte"));
    }
    end = tensor.bytes.data() + tensor.bytes.size();
    previous = &tensor.name;
  }
  const auto rest = data.data() + data.size() - end;
  if (rest > 0) bad("its data ends with {} of no tensor", counted(rest, "byte"));
}

// The dict literal of a .npy header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class NpyHeader {
 public:
  explicit NpyHeader(std::string_view text) : rest_(text) { parse(); }

  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;

 private:
  void parse() {
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !descr) {
        skip_blanks();
        if (rest_.starts_with('[')) bad("its dtype is a record; accepted: '<f4', '<f2'");
        descr = string();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        bad("the .npy header has an unexpected or repeated key {}", shown(key));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (!rest_.empty()) bad("the .npy header has text after its dictionary");
  }

  void skip_blanks() {
    const size_t blanks = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(std::min(blanks, rest_.size()));
  }
  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad("the .npy header is not the dictionary that NumPy writes ('{}' missing)", c);
  }
  bool take_word(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::string string() {
    skip_blanks();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    if (quote != '\'' && quote != '"') bad("the .npy header has no string where one belongs");
    rest_.remove_prefix(1);
    const size_t end = rest_.find(quote);
    if (end == std::string_view::npos) bad("the .npy header ends inside a string");
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool boolean() {
    skip_blanks();
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    bad("the .npy header's fortran_order is neither True nor False");
  }
  int64_t integer() {
    skip_blanks();
    int64_t value = 0;
    size_t digits = 0;
    while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, rest_[digits] - '0', &value)) {
        bad("the .npy header's shape has an extent beyond 2^63 - 1");
      }
      ++digits;
    }
    if (digits == 0) bad("the .npy header's shape holds something that is not an extent");
    rest_.remove_prefix(digits);
    take_word("L");  // Python 2 wrote 3L
    return value;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!take(')')) {
      if (values.size() == kMaxFileRank) bad("its rank is over {}", kMaxFileRank);
      values.push_back(integer());
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view rest_;
};

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::vector<int64_t> FileTensor::strides() const {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const size_t axis = fortran_order ? i : shape.size() - 1 - i;
    strides[axis] = stride;
    stride *= std::max<int64_t>(shape[axis], 1);
  }
  return strides;
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const FileTensor& tensor) { return tensor.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

SafetensorsFile parse_safetensors(std::span<const std::byte> file) {
  constexpr size_t kLengthBytes = 8;
  if (file.size() < kLengthBytes) {
    bad("it has {}, too few for a safetensors file (truncated?)",
        counted(int64_t(file.size()), "byte"));
  }
  const uint64_t header_bytes = read_little_endian(file, 0, kLengthBytes);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    bad("its header says it is {} bytes long; accepted: at most {} (is it a safetensors file?)",
        header_bytes, kMaxSafetensorsHeaderBytes);
  }
  if (header_bytes > file.size() - kLengthBytes) {
    bad("its header says it is {} bytes long, but {} follow (truncated?)", header_bytes,
        counted(int64_t(file.size() - kLengthBytes), "byte"));
  }
  const Json header = parse_header(as_text(file.subspan(kLengthBytes, header_bytes)));
  const auto data = file.subspan(kLengthBytes + header_bytes);

  SafetensorsFile result;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) bad("its __metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) bad("its __metadata__ entry {} is not a string", shown(key));
        result.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    result.tensors.push_back(read_entry(name, entry, data));
  }
  std::sort(result.tensors.begin(), result.tensors.end(),
            [](const FileTensor& a, const FileTensor& b) {
              return std::pair(a.bytes.data(), a.bytes.size()) <
                     std::pair(b.bytes.data(), b.bytes.size());
            });
  check_coverage(result.tensors, data);
  return result;
}

FileTensor parse_npy(std::span<const std::byte> file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr size_t kVersionBytes = 2;
  if (!as_text(file).starts_with(kMagic) || file.size() < kMagic.size() + kVersionBytes) {
    bad("it does not begin as a .npy file (\\x93NUMPY and a version); it has {} bytes",
        file.size());
  }
  const int major = std::to_integer<int>(file[kMagic.size()]);
  const int minor = std::to_integer<int>(file[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    bad("its .npy version is {}.{}; accepted: 1.0, 2.0, 3.0", major, minor);
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t length_at = kMagic.size() + kVersionBytes;
  if (file.size() < length_at + length_bytes) bad("it ends inside its header (truncated)");
  const uint64_t header_bytes = read_little_endian(file, length_at, length_bytes);
  const auto rest = file.subspan(length_at + length_bytes);
  if (header_bytes > kMaxNpyHeaderBytes) {
    bad("its header says it is {} bytes long; accepted: at most {}", header_bytes,
        kMaxNpyHeaderBytes);
  }
  if (header_bytes > rest.size()) bad("it ends inside its header (truncated)");
  const NpyHeader header(as_text(rest.first(header_bytes)));
  if (!header.descr || !header.fortran_order || !header.shape) {
    bad("its header lacks 'descr', 'fortran_order' or 'shape'");
  }

  FileTensor tensor;
  tensor.dtype = *header.descr;
  tensor.shape = *header.shape;
  tensor.fortran_order = *header.fortran_order;
  if (tensor.dtype == "<f4") {
    tensor.type = DataType::kFloat32;
  } else if (tensor.dtype == "<f2") {
    tensor.type = DataType::kFloat16;
  } else {
    bad("its dtype is {}; accepted: '<f4' (float32), '<f2' (float16); bfloat16 is read from "
        ".safetensors",
        shown(tensor.dtype));
  }
  const std::optional<int64_t> needed = checked_bytes(tensor.shape, size_in_bytes(*tensor.type));
  if (!needed) {
    bad("shape {} has more bytes than a signed 64-bit number can count", shape_text(tensor.shape));
  }
  tensor.bytes = rest.subspan(header_bytes);
  if (uint64_t(*needed) != tensor.bytes.size()) {
    bad("shape {} of {} takes {} bytes, but {} follow the header{}", shape_text(tensor.shape),
        tensor.dtype, *needed, tensor.bytes.size(),
        uint64_t(*needed) > tensor.bytes.size() ? " (truncated)" : "");
  }
  return tensor;
}

std::vector<std::string> parse_string_list(std::string_view json) {
  std::vector<std::string> strings;
  const Json list = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return strings;
  for (const Json& entry : list) {
    strings.push_back(entry.is_string() ? entry.get<std::string>() : "");
  }
  return strings;
}

std::string npy_header(DataType type, std::span<const int64_t> shape) {
  if (type == DataType::kBFloat16) throw BadFile(".npy has no bfloat16; write a .safetensors");
  constexpr size_t kAlignment = 64;
  constexpr size_t kPrefixBytes = 10;  // magic, version 1.0, u16 length
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  type == DataType::kFloat32 ? "<f4" : "<f2",
                  fmt::join(shape.begin(), shape.end(), ", "), shape.size() == 1 ? "," : "");
  const size_t unpadded = kPrefixBytes + dict.size() + 1;
  dict.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

std::string safetensors_header(std::span<const TensorToWrite> tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    text += (text.empty() ? "" : ",") + json_string(key) + ":" + json_string(value);
  }
  if (!text.empty()) text = "\"__metadata__\":{" + text + "}";
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const int64_t bytes = checked_bytes(tensor.shape, size_in_bytes(tensor.type)).value();
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        text.empty() ? "" : ",", json_string(tensor.name),
                        safetensors_name(tensor.type), shape_text(tensor.shape), offset,
                        offset + bytes);
    offset += bytes;
  }
  text = "{" + text + "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

}  // namespace tilefold::cli
