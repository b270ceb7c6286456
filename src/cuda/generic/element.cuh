// Elements of tensors in global memory as float, for each dtype: one at a time, so any alignment
// and stride will do.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "cuda/ptx/convert.cuh"

namespace tilefold::generic {

template <DType kDType>
inline constexpr int64_t kElementBytes = dtype_bytes(kDType);

template <DType kDType>
__device__ __forceinline__ const void* offset_elements(const void* data, int64_t elements) {
  return static_cast<const char*>(data) + elements * kElementBytes<kDType>;
}

// float16 -> float32, exact, subnormals, infinities and NaN included: the exponent and fraction
// move into place, and one multiplication changes the exponent's bias from 15 to 127.
__device__ __forceinline__ float half_to_float(uint32_t half) {
  constexpr float kBias = 0x1p112f;
  constexpr uint32_t kExponent = 0x7c00u;
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * kBias;
  const uint32_t bits =
      magnitude >= kExponent ? magnitude << 13 | 0x7f800000u : __builtin_bit_cast(uint32_t, scaled);
  return __builtin_bit_cast(float, bits | sign);
}

template <DType kDType>
__device__ __forceinline__ float load_element(const void* data, int64_t index) {
  if constexpr (kDType == DType::kFloat32) {
    return static_cast<const float*>(data)[index];
  } else {
    const uint32_t bits = static_cast<const uint16_t*>(data)[index];
    if constexpr (kDType == DType::kBFloat16) return __builtin_bit_cast(float, bits << 16);
    return half_to_float(bits);
  }
}

// Rounds to nearest even.
template <DType kDType>
__device__ __forceinline__ void store_element(void* data, int64_t index, float value) {
  if constexpr (kDType == DType::kFloat32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] =
        static_cast<uint16_t>(ptx::cvt_pack<kDType>(value, 0.0f) & 0xffffu);
  }
}

}  // namespace tilefold::generic
