// Warp-wide matrix multiply-accumulate on 16-bit operands: mma.sync.m16n8k16.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tilefold::ptx {

// d += a b, with float32 accumulation. PTX ISA, "Matrix multiply-accumulate operation using mma
// instruction", mma.m16n8k16. Fragment layouts: layout/fragments.h. Compute capability 8.0.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same with bfloat16 operands.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <DType kDType>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  if constexpr (kDType == DType::kFloat16) {
    mma_m16n8k16_f16(d, a, b0, b1);
  } else {
    mma_m16n8k16_bf16(d, a, b0, b1);
  }
}

}  // namespace tilefold::ptx
