// Where the lanes of the narrower ldmatrix forms point: .x1 and .x2, for B operands of one block of
// eight. The kernels here load two such blocks at a time, by .x4 (layout/fragments.h).
#pragma once

#include "layout/fragments.h"
#include "layout/host_device.h"

namespace tilefold::layout {

// PTX ISA, "ldmatrix": lanes 0 to 7 name the rows of the first matrix, of .x2 lanes 8 to 15 those
// of the second; what the other lanes name is not used, and stays inside the block here. A Coord is
// a row and a 16-byte chunk.

// One 8x8 matrix: one register of any operand; .trans takes the same addresses.
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_x1_rows(int lane) { return {lane % 8, 0}; }

// K [8 keys, K16]: registers {b0, b1} of the eight keys.
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_x2_b(int lane) { return {lane % 8, lane / 8 % 2}; }

// V [K16 keys, 8 columns] with .trans: registers {b0, b1} of the eight columns.
TILEFOLD_HOST_DEVICE constexpr Coord ldmatrix_x2_b_trans(int lane) { return {lane % 16, 0}; }

}  // namespace tilefold::layout
