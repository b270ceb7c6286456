// Approximate float32 functions of the special function unit, and the float32 operations whose
// treatment of NaN the kernels rely on.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tilefold::ptx {

// 2^x, relative error about 2^-22; a subnormal result is 0. PTX ISA, "ex2". One instruction
// (without .ftz it takes four).
__device__ __forceinline__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2 x; lg2(0) = -inf. PTX ISA, "lg2".
__device__ __forceinline__ float lg2_approx_ftz(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x within 1 ulp; rcp(0) = inf. PTX ISA, "rcp".
__device__ __forceinline__ float rcp_approx_ftz(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// a b + c, rounded once. PTX ISA, "fma".
__device__ __forceinline__ float fma_rn(float a, float b, float c) {
  float d;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

// The larger of two; of a NaN and a number, the number. PTX ISA, "max".
__device__ __forceinline__ float max_f32(float a, float b) {
  float c;
  asm("max.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// a b + c on packed pairs of 16-bit numbers, rounded once. PTX ISA, "fma" (half precision).
// Compute capability 8.0.
template <DType kDType>
__device__ __forceinline__ uint32_t fma_rn_x2(uint32_t a, uint32_t b, uint32_t c) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  uint32_t d;
  if constexpr (kDType == DType::kFloat16) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

}  // namespace tilefold::ptx
