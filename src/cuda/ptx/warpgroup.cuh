// What a warp or warpgroup does to itself: registers handed over (setmaxnreg), one thread elected.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// Gives registers of this warpgroup back to the CTA's pool, down to kRegisters a thread (PTX ISA
// 9.7.19.5, setmaxnreg). All four warps execute it. Compute capability 9.0a.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Takes registers from the pool, up to kRegisters a thread; waits until they are there.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// True in exactly one lane of the (whole) warp, the same one every time (PTX ISA 9.7.13.14,
// elect.sync).
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected)
      :
      : "memory");
  return elected != 0;
}

}  // namespace tilefold::ptx
