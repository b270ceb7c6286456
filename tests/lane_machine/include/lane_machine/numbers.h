// The device's 16-bit number formats and its approximate functions, as the lane machine computes
// them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tilefold::lane_machine {

inline constexpr uint32_t kDeviceNan = 0x7fffffffu;  // what the device's float operations return

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t mantissa = half & 1023u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t biased = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | biased << 23 | mantissa << 13);
}

inline float bfloat16_to_float(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// cvt.rn.bf16.f32: round to nearest, ties to even; any NaN becomes 0x7fff.
inline uint16_t float_to_bfloat16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// cvt.rn.f16.f32: round to nearest, ties to even; beyond 65520 infinity; any NaN becomes 0x7fff.
inline uint16_t float_to_half(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00u;
  if (magnitude < 0x1p-14f) {  // subnormal: adding 0.5 leaves the result in the low mantissa bits
    const float shifted = magnitude + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// A float of format f16 (kBfloat = false) or bf16 from its 16 bits.
template <bool kBfloat>
float narrow_to_float(uint16_t bits) {
  if constexpr (kBfloat) return bfloat16_to_float(bits);
  return half_to_float(bits);
}

inline float flush_subnormal(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

// ex2.approx.ftz.f32 and lg2.approx.ftz.f32: the correctly rounded result in place of the device's
// approximation (which is within 2 units in the last place of it).
inline float exp2_ftz(float x) {
  if (std::isnan(x)) return std::bit_cast<float>(kDeviceNan);
  return flush_subnormal(static_cast<float>(std::exp2(static_cast<double>(flush_subnormal(x)))));
}

inline float log2_ftz(float x) {
  const float flushed = flush_subnormal(x);
  if (std::isnan(x) || flushed < 0.0f) return std::bit_cast<float>(kDeviceNan);
  return static_cast<float>(std::log2(static_cast<double>(flushed)));
}

}  // namespace tilefold::lane_machine
