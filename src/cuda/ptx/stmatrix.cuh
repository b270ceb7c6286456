// Warp-wide stores of 8x8 matrices of 16-bit elements to shared memory: stmatrix (9.0 and later).
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// PTX ISA, "Warp-level matrix store instruction: stmatrix". The mirror image of ldmatrix_x4: lanes
// 8i..8i+7 give the addresses of the rows of matrix i, whose elements come from register i of all
// lanes. A generic-proxy write: fence before the async proxy reads it. Compute capability 9.0.
__device__ __forceinline__ void stmatrix_x4(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace tilefold::ptx
