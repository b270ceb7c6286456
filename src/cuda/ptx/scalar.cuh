// Single 16-bit elements: what the rare paths that go element by element use.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tilefold::ptx {

// PTX ISA, "Data movement and conversion instructions: ld, st, cvt".
__device__ __forceinline__ uint16_t ld_global_u16(const void* address) {
  uint16_t value;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void st_global_u16(void* address, uint16_t value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"(value) : "memory");
}

__device__ __forceinline__ void st_shared_u16(uint32_t address, uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

// The float32 with the same value.
template <DType kDType>
__device__ __forceinline__ float cvt_f32(uint16_t value) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  float wide;
  if constexpr (kDType == DType::kFloat16) {
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
  } else {
    asm("mov.b32 %0, {0, %1};" : "=f"(wide) : "h"(value));
  }
  return wide;
}

}  // namespace tilefold::ptx
