// The swizzle of the last two rungs.
#pragma once

#include <cstdint>

namespace tilefold::ladder {

// The chunk's index is XORed with the row's last three bits: the eight rows that one ldmatrix phase
// reads at the same chunk lie in eight different 16-byte columns of the 128-byte bank row, so the
// phase is one access. Bijective in each row; costs one XOR an address, no memory.
template <int kColumns>
struct SwizzledLayout {
  __device__ __forceinline__ static uint32_t offset(int row, int chunk) {
    return static_cast<uint32_t>((row * (kColumns / 8) + (chunk ^ (row & 7))) * 16);
  }
};

}  // namespace tilefold::ladder
