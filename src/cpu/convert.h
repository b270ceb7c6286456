// float16 and bfloat16 to and from float32, one number at a time (for strided tensors and tails).
#pragma once

#include <bit>
#include <cstdint>

namespace tilefold::cpu {

inline float float_from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t bfloat16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// The exponent is rebiased by a multiplication, which also normalises subnormals.
inline float float_from_float16(uint16_t bits) {
  constexpr float kRebias = 0x1p112f;
  const uint32_t magnitude = uint32_t{bits & 0x7FFFu} << 13;
  uint32_t out = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * kRebias);
  if (magnitude >= 0x7C00u << 13) out |= 0x7F800000;  // infinity and NaN
  return std::bit_cast<float>(out | uint32_t{bits & 0x8000u} << 16);
}

// Round to nearest, ties to even; beyond 65519 infinity; NaN stays NaN.
inline uint16_t float16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;
  if (magnitude >= 0x477FF000) return sign | 0x7C00;
  if (magnitude < 0x38800000) {
    // A subnormal: the addition rounds it to a multiple of 2^-24 in the low mantissa bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3F000000);
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

}  // namespace tilefold::cpu
