// Which element of a matrix each lane holds in each register: mma.m16n8k16 and ldmatrix.
#pragma once

#include "layout/host_device.h"

namespace tilefold::layout {

struct Coord {
  int row;
  int column;
  friend constexpr bool operator==(const Coord&, const Coord&) = default;
};

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type". `reg` is the 32-bit
// register, `half` the 16-bit element in it (0 is the low half).

// (T32, V4, H2) -> (M16, K16)
TILEFOLD_HOST_DEVICE constexpr Coord mma_m16n8k16_a(int lane, int reg, int half) {
  return {lane / 4 + 8 * (reg % 2), 2 * (lane % 4) + 8 * (reg / 2) + half};
}

// (T32, V2, H2) -> (K16, N8)
TILEFOLD_HOST_DEVICE constexpr Coord mma_m16n8k16_b(int lane, int reg, int half) {
  return {2 * (lane % 4) + 8 * reg + half, lane / 4};
}

// (T32, V4) -> (M16, N8), float32. A row lives in the four lanes of a quad. Registers 0, 1 of two
// neighbouring n8 blocks, packed to 16 bits, are registers 0 and 2 of an A operand over the same 16
// columns, and registers 2, 3 are its registers 1 and 3: probabilities go from accumulator to
// operand without leaving the lane.
TILEFOLD_HOST_DEVICE constexpr Coord mma_m16n8k16_c(int lane, int reg) {
  return {lane / 4 + 8 * (reg / 2), 2 * (lane % 4) + reg % 2};
}

// PTX ISA, "ldmatrix": what one 8x8 matrix hands to a lane. (T32, H2) -> (R8, C8)
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_element(int lane, int half) {
  return {lane / 4, 2 * (lane % 4) + half};
}
// The same with .trans: the element comes from the transposed place.
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_trans_element(int lane, int half) {
  return {2 * (lane % 4) + half, lane / 4};
}

// The row and the 16-byte chunk of a 16 x 16 block whose address lane `lane` gives to an .x4 load.
// Row-major A [M16, K16] (Q; P of the pair kernels): registers come out as mma's a0..a3. It also
// serves V [K16 keys, 16 columns] with .trans: registers {b0, b1} of columns 0-7, then of 8-15.
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_x4_a(int lane) { return {lane % 16, lane / 16}; }
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_x4_b_trans(int lane) {
  return {lane % 16, lane / 16};
}
// K [16 keys, K16]: registers {b0, b1} of keys 0-7, then of keys 8-15.
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_x4_b(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2};
}

}  // namespace tilefold::layout
