// Bytes of tensor files, written by hand: sound ones, and ones with a single fault.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace tilefold::cli {

inline std::string little_endian(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// A safetensors file of that header and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

// A .npy file of version 1.0 (or as given) with that dictionary.
inline std::string npy_bytes(const std::string& dict, const std::string& data, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  return bytes + little_endian(dict.size(), major == 1 ? 2 : 4) + dict + data;
}

inline std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace tilefold::cli
