// Warpgroup matrix multiply, wgmma.mma_async (PTX ISA 9.7.15.5): m64nNk16, 16-bit operands, float32
// accumulators. Compute capability 9.0a. Lane maps and descriptors: layout/hopper.h.
//
// The four warps of a warpgroup execute each function together. Between the issue of a wgmma and
// the wait for its group nobody touches its accumulators, its A registers or its shared memory.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tilefold::ptx {

// Orders this warpgroup's register writes before the wgmmas that follow. Needed before the first
// wgmma of a batch if ordinary code has written its accumulators or A registers.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes the current group of wgmmas.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending of the newest groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  static_assert(kPending >= 0 && kPending <= 7);
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving accesses to these registers across this point: on accumulators
// before their first wgmma and after the wait. Costs no instruction.
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

// D (64 x N, N/2 registers a thread) += A (64 x 16) B (16 x N). `ss`: A and B are K-major tiles in
// shared memory, named by descriptors; accumulate = false overwrites D. `rs`: A is in registers, B
// is an MN-major tile.
template <int kN>
struct WgmmaShape;
#define TILEFOLD_WGMMA_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TILEFOLD_WGMMA_R8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define TILEFOLD_WGMMA_R16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define TILEFOLD_WGMMA_R24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define TILEFOLD_WGMMA_R32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define TILEFOLD_WGMMA_R40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define TILEFOLD_WGMMA_R48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define TILEFOLD_WGMMA_R56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define TILEFOLD_WGMMA_R64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define TILEFOLD_WGMMA_R72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define TILEFOLD_WGMMA_R80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define TILEFOLD_WGMMA_R88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define TILEFOLD_WGMMA_R96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define TILEFOLD_WGMMA_R104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define TILEFOLD_WGMMA_R112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define TILEFOLD_WGMMA_R120 "%120, %121, %122, %123, %124, %125, %126, %127"

#define TILEFOLD_WGMMA_REGS_24 TILEFOLD_WGMMA_R0 ", " TILEFOLD_WGMMA_R8 ", " TILEFOLD_WGMMA_R16
#define TILEFOLD_WGMMA_REGS_32 TILEFOLD_WGMMA_REGS_24 ", " TILEFOLD_WGMMA_R24
#define TILEFOLD_WGMMA_REGS_40 TILEFOLD_WGMMA_REGS_32 ", " TILEFOLD_WGMMA_R32
#define TILEFOLD_WGMMA_REGS_48 TILEFOLD_WGMMA_REGS_40 ", " TILEFOLD_WGMMA_R40
#define TILEFOLD_WGMMA_REGS_56 TILEFOLD_WGMMA_REGS_48 ", " TILEFOLD_WGMMA_R48
#define TILEFOLD_WGMMA_REGS_64 TILEFOLD_WGMMA_REGS_56 ", " TILEFOLD_WGMMA_R56
#define TILEFOLD_WGMMA_REGS_72 TILEFOLD_WGMMA_REGS_64 ", " TILEFOLD_WGMMA_R64
#define TILEFOLD_WGMMA_REGS_80 TILEFOLD_WGMMA_REGS_72 ", " TILEFOLD_WGMMA_R72
#define TILEFOLD_WGMMA_REGS_88 TILEFOLD_WGMMA_REGS_80 ", " TILEFOLD_WGMMA_R80
#define TILEFOLD_WGMMA_REGS_96 TILEFOLD_WGMMA_REGS_88 ", " TILEFOLD_WGMMA_R88
#define TILEFOLD_WGMMA_REGS_104 TILEFOLD_WGMMA_REGS_96 ", " TILEFOLD_WGMMA_R96
#define TILEFOLD_WGMMA_REGS_112 TILEFOLD_WGMMA_REGS_104 ", " TILEFOLD_WGMMA_R104
#define TILEFOLD_WGMMA_REGS_120 TILEFOLD_WGMMA_REGS_112 ", " TILEFOLD_WGMMA_R112
#define TILEFOLD_WGMMA_REGS_128 TILEFOLD_WGMMA_REGS_120 ", " TILEFOLD_WGMMA_R120

#define TILEFOLD_WGMMA_F8(i)                                                                  \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define TILEFOLD_WGMMA_OUT_24 TILEFOLD_WGMMA_F8(0), TILEFOLD_WGMMA_F8(8), TILEFOLD_WGMMA_F8(16)
#define TILEFOLD_WGMMA_OUT_32 TILEFOLD_WGMMA_OUT_24, TILEFOLD_WGMMA_F8(24)
#define TILEFOLD_WGMMA_OUT_40 TILEFOLD_WGMMA_OUT_32, TILEFOLD_WGMMA_F8(32)
#define TILEFOLD_WGMMA_OUT_48 TILEFOLD_WGMMA_OUT_40, TILEFOLD_WGMMA_F8(40)
#define TILEFOLD_WGMMA_OUT_56 TILEFOLD_WGMMA_OUT_48, TILEFOLD_WGMMA_F8(48)
#define TILEFOLD_WGMMA_OUT_64 TILEFOLD_WGMMA_OUT_56, TILEFOLD_WGMMA_F8(56)
#define TILEFOLD_WGMMA_OUT_72 TILEFOLD_WGMMA_OUT_64, TILEFOLD_WGMMA_F8(64)
#define TILEFOLD_WGMMA_OUT_80 TILEFOLD_WGMMA_OUT_72, TILEFOLD_WGMMA_F8(72)
#define TILEFOLD_WGMMA_OUT_88 TILEFOLD_WGMMA_OUT_80, TILEFOLD_WGMMA_F8(80)
#define TILEFOLD_WGMMA_OUT_96 TILEFOLD_WGMMA_OUT_88, TILEFOLD_WGMMA_F8(88)
#define TILEFOLD_WGMMA_OUT_104 TILEFOLD_WGMMA_OUT_96, TILEFOLD_WGMMA_F8(96)
#define TILEFOLD_WGMMA_OUT_112 TILEFOLD_WGMMA_OUT_104, TILEFOLD_WGMMA_F8(104)
#define TILEFOLD_WGMMA_OUT_120 TILEFOLD_WGMMA_OUT_112, TILEFOLD_WGMMA_F8(112)
#define TILEFOLD_WGMMA_OUT_128 TILEFOLD_WGMMA_OUT_120, TILEFOLD_WGMMA_F8(120)

// The operands behind the N/2 accumulators are numbered i0, i1, ...
#define TILEFOLD_WGMMA_SS(n, registers, type, i0, i1, i2)                                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2                                        \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type                 \
               " {" TILEFOLD_WGMMA_REGS_##registers "}, %" #i0 ", %" #i1 ", p, 1, 1, 0, 0;\n}" \
               : TILEFOLD_WGMMA_OUT_##registers                                                \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
#define TILEFOLD_WGMMA_RS(n, registers, type, i0, i1, i2, i3, i4)                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type                \
               " {" TILEFOLD_WGMMA_REGS_##registers "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 \
                                                    "}, %" #i4 ", 1, 1, 1, 1;"                \
               : TILEFOLD_WGMMA_OUT_##registers                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define TILEFOLD_WGMMA_SHAPE(n, registers, i0, i1, i2, i3, i4)                               \
  template <>                                                                                \
  struct WgmmaShape<n> {                                                                     \
    template <DType kDType>                                                                  \
    static __device__ __forceinline__ void ss(float (&d)[registers], uint64_t a, uint64_t b, \
                                              bool accumulate) {                             \
      if constexpr (kDType == DType::kFloat16) {                                             \
        TILEFOLD_WGMMA_SS(n, registers, "f16", i0, i1, i2);                                  \
      } else {                                                                               \
        TILEFOLD_WGMMA_SS(n, registers, "bf16", i0, i1, i2);                                 \
      }                                                                                      \
    }                                                                                        \
    template <DType kDType>                                                                  \
    static __device__ __forceinline__ void rs(float (&d)[registers], const uint32_t (&a)[4], \
                                              uint64_t b) {                                  \
      if constexpr (kDType == DType::kFloat16) {                                             \
        TILEFOLD_WGMMA_RS(n, registers, "f16", i0, i1, i2, i3, i4);                          \
      } else {                                                                               \
        TILEFOLD_WGMMA_RS(n, registers, "bf16", i0, i1, i2, i3, i4);                         \
      }                                                                                      \
    }                                                                                        \
  };
TILEFOLD_WGMMA_SHAPE(48, 24, 24, 25, 26, 27, 28)
TILEFOLD_WGMMA_SHAPE(64, 32, 32, 33, 34, 35, 36)
TILEFOLD_WGMMA_SHAPE(80, 40, 40, 41, 42, 43, 44)
TILEFOLD_WGMMA_SHAPE(96, 48, 48, 49, 50, 51, 52)
TILEFOLD_WGMMA_SHAPE(112, 56, 56, 57, 58, 59, 60)
TILEFOLD_WGMMA_SHAPE(128, 64, 64, 65, 66, 67, 68)
TILEFOLD_WGMMA_SHAPE(144, 72, 72, 73, 74, 75, 76)
TILEFOLD_WGMMA_SHAPE(160, 80, 80, 81, 82, 83, 84)
TILEFOLD_WGMMA_SHAPE(176, 88, 88, 89, 90, 91, 92)
TILEFOLD_WGMMA_SHAPE(192, 96, 96, 97, 98, 99, 100)
TILEFOLD_WGMMA_SHAPE(224, 112, 112, 113, 114, 115, 116)
TILEFOLD_WGMMA_SHAPE(256, 128, 128, 129, 130, 131, 132)

#undef TILEFOLD_WGMMA_OUT_24
#undef TILEFOLD_WGMMA_OUT_32
#undef TILEFOLD_WGMMA_OUT_40
#undef TILEFOLD_WGMMA_OUT_48
#undef TILEFOLD_WGMMA_OUT_56
#undef TILEFOLD_WGMMA_OUT_64
#undef TILEFOLD_WGMMA_OUT_72
#undef TILEFOLD_WGMMA_OUT_80
#undef TILEFOLD_WGMMA_OUT_88
#undef TILEFOLD_WGMMA_OUT_96
#undef TILEFOLD_WGMMA_OUT_104
#undef TILEFOLD_WGMMA_OUT_112
#undef TILEFOLD_WGMMA_OUT_120
#undef TILEFOLD_WGMMA_OUT_128
#undef TILEFOLD_WGMMA_REGS_24
#undef TILEFOLD_WGMMA_REGS_32
#undef TILEFOLD_WGMMA_REGS_40
#undef TILEFOLD_WGMMA_REGS_48
#undef TILEFOLD_WGMMA_REGS_56
#undef TILEFOLD_WGMMA_REGS_64
#undef TILEFOLD_WGMMA_REGS_72
#undef TILEFOLD_WGMMA_REGS_80
#undef TILEFOLD_WGMMA_REGS_88
#undef TILEFOLD_WGMMA_REGS_96
#undef TILEFOLD_WGMMA_REGS_104
#undef TILEFOLD_WGMMA_REGS_112
#undef TILEFOLD_WGMMA_REGS_120
#undef TILEFOLD_WGMMA_REGS_128
#undef TILEFOLD_WGMMA_R0
#undef TILEFOLD_WGMMA_R8
#undef TILEFOLD_WGMMA_R16
#undef TILEFOLD_WGMMA_R24
#undef TILEFOLD_WGMMA_R32
#undef TILEFOLD_WGMMA_R40
#undef TILEFOLD_WGMMA_R48
#undef TILEFOLD_WGMMA_R56
#undef TILEFOLD_WGMMA_R64
#undef TILEFOLD_WGMMA_R72
#undef TILEFOLD_WGMMA_R80
#undef TILEFOLD_WGMMA_R88
#undef TILEFOLD_WGMMA_R96
#undef TILEFOLD_WGMMA_R104
#undef TILEFOLD_WGMMA_R112
#undef TILEFOLD_WGMMA_R120
#undef TILEFOLD_WGMMA_F8
#undef TILEFOLD_WGMMA_SS
#undef TILEFOLD_WGMMA_RS
#undef TILEFOLD_WGMMA_SHAPE

// D += A B with both operands in shared memory, K-major; k-step 0 of a tile passes accumulate =
// false and so needs no cleared D.
template <int kN, DType kDType>
__device__ __forceinline__ void wgmma_ss(float (&d)[kN / 2], uint64_t a, uint64_t b,
                                         bool accumulate) {
  WgmmaShape<kN>::template ss<kDType>(d, a, b, accumulate);
}

// D += A B with A in registers and B in shared memory, MN-major.
template <int kN, DType kDType>
__device__ __forceinline__ void wgmma_rs(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b) {
  WgmmaShape<kN>::template rs<kDType>(d, a, b);
}

}  // namespace tilefold::ptx
