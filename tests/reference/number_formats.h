// float16 and bfloat16 as the reference sees them: exact to float, and from float by round to
// nearest, ties to even.
#pragma once

#include <dlpack/dlpack.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

namespace tilefold::reference {

enum class DType { kFloat32, kFloat16, kBFloat16 };

inline int64_t dtype_bytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

inline const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
  }
  return "unknown";
}

// Returns false if the name is none of the three.
inline bool parse_dtype(const std::string& name, DType* dtype) {
  for (DType candidate : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (name == dtype_name(candidate)) return *dtype = candidate, true;
  }
  return false;
}

inline DLDataType to_dl(DType dtype) {
  const uint8_t code = dtype == DType::kBFloat16 ? kDLBfloat : kDLFloat;
  return {code, static_cast<uint8_t>(8 * dtype_bytes(dtype)), 1};
}

// Returns false if the type is none of the three.
inline bool from_dl(DLDataType type, DType* dtype) {
  for (DType candidate : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const DLDataType c = to_dl(candidate);
    if (c.code == type.code && c.bits == type.bits && type.lanes == 1) {
      return *dtype = candidate, true;
    }
  }
  return false;
}

inline float half_to_float(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  float magnitude;
  if (exponent == 31) {
    // Keeps the payload, so that a poison NaN stays recognisable.
    magnitude = std::bit_cast<float>(0x7f800000u | static_cast<uint32_t>(fraction) << 13);
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent < -25) return sign;  // below half of the smallest subnormal
  const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  // Bits to drop: 13 for normal results, more for subnormal ones.
  const int shift = exponent >= -14 ? 13 : 13 + (-14 - exponent);
  uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1);
  const uint32_t tie = 1u << (shift - 1);
  if (rest > tie || (rest == tie && (kept & 1) != 0)) ++kept;
  // The implicit bit is in `kept` for normal results: adding (exponent field - 1) carries it over.
  const uint32_t base = exponent >= -14 ? static_cast<uint32_t>(exponent + 14) << 10 : 0;
  return static_cast<uint16_t>(sign | (base + kept));
}

inline float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  const uint32_t lowest_kept = (bits >> 16) & 1;
  return static_cast<uint16_t>((bits + 0x7fff + lowest_kept) >> 16);
}

// The value of the element at `address`; exact.
inline float load_element(DType dtype, const void* address) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, address, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, address, 2);
  return dtype == DType::kFloat16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

inline void store_element(DType dtype, void* address, float value) {
  if (dtype == DType::kFloat32) {
    std::memcpy(address, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kFloat16 ? float_to_half(value) : float_to_bfloat16(value);
  std::memcpy(address, &bits, 2);
}

// `value` rounded to the dtype.
inline float round_to(DType dtype, float value) {
  if (dtype == DType::kFloat16) return half_to_float(float_to_half(value));
  if (dtype == DType::kBFloat16) return bfloat16_to_float(float_to_bfloat16(value));
  return value;
}

// Unit roundoff: half the distance from 1 to the next number.
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 0x1p-24;
    case DType::kFloat16: return 0x1p-11;
    case DType::kBFloat16: return 0x1p-8;
  }
  return 0;
}

// Half the smallest subnormal: the absolute rounding error of tiny numbers.
inline double underflow_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 0x1p-150;
    case DType::kFloat16: return 0x1p-25;
    case DType::kBFloat16: return 0x1p-134;
  }
  return 0;
}

}  // namespace tilefold::reference
