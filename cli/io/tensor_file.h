// Readers and writers of tensor files, over byte spans: safetensors and NumPy's .npy.
//
// For fuzzing: parse_safetensors() and parse_npy() take any bytes. They return, or throw BadFile
// with one line of text; they never read outside the span, and their memory is bounded by a small
// multiple of the span's size. What they return holds only ranges inside the span.
#pragma once

#include <tilefold/tilefold.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tilefold::cli {

/// What is wrong in a file: what was found, and what is accepted. One line, without the file's
/// name.
class BadFile : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A tensor inside a file.
struct FileTensor {
  std::string name;                  ///< Its key; empty in .npy.
  std::string dtype;                 ///< As the file writes it: "F16", "<f4".
  std::optional<DataType> type;      ///< None for a dtype that this program does not compute with.
  std::vector<int64_t> shape;        ///< Extents, outermost first; their product fits int64_t.
  bool fortran_order = false;        ///< .npy only: the first axis is the innermost.
  std::span<const std::byte> bytes;  ///< Its elements, inside the file's bytes, at any alignment.

  /// Strides, in elements, that fit `shape` and the order.
  std::vector<int64_t> strides() const;
};

/// A safetensors file: tensors in the order of their bytes, and the text of `__metadata__`.
struct SafetensorsFile {
  std::vector<FileTensor> tensors;
  std::map<std::string, std::string> metadata;

  /// The tensor of that name, or null.
  const FileTensor* find(std::string_view name) const;
};

/// Longest header that is read, bytes: safetensors' own limit.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
/// Longest .npy header that is read, bytes: NumPy's own are some hundred.
inline constexpr uint64_t kMaxNpyHeaderBytes = 1 << 20;
/// Most axes of a tensor in a file.
inline constexpr size_t kMaxFileRank = 8;

/// Reads a safetensors file: u64 header length, JSON header, data. Checks every tensor of it: dtype
/// and shape against its byte range, ranges against the data (no overlap, no hole, no overrun).
/// \throws BadFile
SafetensorsFile parse_safetensors(std::span<const std::byte> file);

/// Reads a .npy file, format 1.0, 2.0 or 3.0. \throws BadFile
FileTensor parse_npy(std::span<const std::byte> file);

/// What comes before the data of a C-ordered .npy; bfloat16, which .npy cannot name, is refused.
std::string npy_header(DataType type, std::span<const int64_t> shape);

/// A tensor to be written.
struct TensorToWrite {
  std::string name;
  DataType type;
  std::vector<int64_t> shape;
};

/// What comes before the data (in order, without gaps) of a safetensors file.
std::string safetensors_header(std::span<const TensorToWrite> tensors,
                               const std::map<std::string, std::string>& metadata);

/// The strings of a JSON list, as the metadata holds a sample's tokens; an entry that is no string
/// is empty, and so is the result if `json` is no list.
std::vector<std::string> parse_string_list(std::string_view json);

/// "[1, 8, 16, 64]".
std::string shape_text(std::span<const int64_t> shape);

}  // namespace tilefold::cli
