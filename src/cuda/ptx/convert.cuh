// Pairs of float32 to packed 16-bit, round to nearest even: cvt.rn.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tilefold::ptx {

// PTX ISA, "Data movement and conversion instructions: cvt". The instruction's first source goes to
// the high half; here the low half comes first, as in memory. Compute capability 8.0.
__device__ __forceinline__ uint32_t cvt_f16x2(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ uint32_t cvt_bf16x2(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <DType kDType>
__device__ __forceinline__ uint32_t cvt_pack(float low, float high) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  if constexpr (kDType == DType::kFloat16) {
    return cvt_f16x2(low, high);
  } else {
    return cvt_bf16x2(low, high);
  }
}

// One 16-bit number to float32, exactly. PTX ISA, "cvt"; a bfloat16 is the high half of a float32.
template <DType kDType>
__device__ __forceinline__ float cvt_f32(uint32_t bits) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  float value;
  if constexpr (kDType == DType::kFloat16) {
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  } else {
    asm("mov.b32 %0, %1;" : "=f"(value) : "r"(bits << 16));
  }
  return value;
}

}  // namespace tilefold::ptx
