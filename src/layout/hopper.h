// Where the elements of a wgmma operation live: the 128-byte swizzle, shared-memory descriptors,
// accumulator and operand registers. Plain index maps, for kernels and their host tests.
//
// A tile of R rows by C columns of 16-bit elements is stored as C / 64 chunks of 64 columns (128
// bytes), one after another; inside a chunk the R rows follow each other, and the eight 16-byte
// units of a row are permuted by an XOR with the row's number modulo 8. This is what TMA writes
// with boxes of 64 columns and the 128-byte swizzle. Tiles start on multiples of 1024 bytes.
#pragma once

#include <cstdint>

#include "layout/fragments.h"
#include "layout/host_device.h"

namespace tilefold::layout {

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupRows = 64;  // M of wgmma
inline constexpr int kWgmmaK = 16;         // K of wgmma for 16-bit elements
inline constexpr int kSwizzleRowBytes = 128;
inline constexpr int kChunkColumns = 64;        // columns of 16-bit elements in a swizzled row
inline constexpr int kSwizzleAtomBytes = 1024;  // eight rows: the pattern's period

// Columns that a tile of `columns` occupies: whole chunks.
TILEFOLD_HOST_DEVICE constexpr int padded_columns(int columns) {
  return (columns + kChunkColumns - 1) / kChunkColumns * kChunkColumns;
}

// Byte offset of an element in a swizzled tile of `rows` rows. It is that of a layout::Tile with
// pages of 64 columns (a test compares them); PERF: by way of Tile's chunks nvcc 13.0.88 makes the
// rows' code 1 to 2 % longer (sm90_fp16_d128_m128n128_s2_masked 74112 to 74624 bytes).
TILEFOLD_HOST_DEVICE constexpr int swizzle128(int row, int column, int rows) {
  const int chunk = column / kChunkColumns;
  const int unit = column % kChunkColumns / 8;
  return chunk * rows * kSwizzleRowBytes + row * kSwizzleRowBytes + (unit ^ (row % 8)) * 16 +
         column % 8 * 2;
}

// wgmma shared-memory descriptors (PTX ISA 9.7.15.5.1.2.2). The low word holds what changes, the
// start address in 16-byte units; leading and stride offsets and the layout stay.
//   K-major operand (rows of the tile = M or N, columns = K): stride = from one group of eight
//   rows to the next; the leading offset is not used.
//   MN-major operand (rows of the tile = K, columns = N): stride = from one group of eight rows to
//   the next; leading = from one chunk of 64 columns to the next.
TILEFOLD_HOST_DEVICE constexpr uint32_t descriptor_low(uint32_t address, int leading_bytes) {
  return ((address & 0x3FFFFu) >> 4) | (static_cast<uint32_t>(leading_bytes >> 4) << 16);
}
TILEFOLD_HOST_DEVICE constexpr uint32_t descriptor_high() {
  constexpr uint32_t kSwizzle128 = 1;
  return (kSwizzleAtomBytes >> 4) | (kSwizzle128 << 30);
}
inline constexpr int kLeadingUnused = 16;  // bytes: the field reads 1

// What to add to the low word for the k-th step of 16 along K.
TILEFOLD_HOST_DEVICE constexpr uint32_t k_major_step(int k_step, int rows) {
  constexpr int kStepsPerChunk = kChunkColumns / kWgmmaK;
  return static_cast<uint32_t>(k_step / kStepsPerChunk * rows * (kSwizzleRowBytes >> 4) +
                               k_step % kStepsPerChunk * (kWgmmaK * 2 >> 4));
}
TILEFOLD_HOST_DEVICE constexpr uint32_t mn_major_step(int k_step) {
  return static_cast<uint32_t>(k_step * kWgmmaK * (kSwizzleRowBytes >> 4));
}

// Accumulator of m64nN: (T128,V[N/2]) -> (M64,N). A row lives in the four lanes of one quad.
TILEFOLD_HOST_DEVICE constexpr Coord wgmma_accumulator(int thread, int reg) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (reg / 2 % 2), 8 * (reg / 4) + 2 * (lane % 4) + reg % 2};
}

// A operand from registers, m64k16: (T128,V4,half2) -> (M64,K16); `half` 0 is the low half word.
TILEFOLD_HOST_DEVICE constexpr Coord wgmma_a_register(int thread, int reg, int half) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (reg % 2), 2 * (lane % 4) + 8 * (reg / 2) + half};
}

// The accumulator registers that make A register `reg` of k-step `k_step`: this one and the next.
TILEFOLD_HOST_DEVICE constexpr int accumulator_of_a(int k_step, int reg) {
  return 8 * k_step + 2 * reg;
}

// stmatrix.x4 of the packed accumulator, 16 columns at a time: the row (of the warpgroup's 64) and
// column that a lane's address names, for columns 16 * step to 16 * step + 15.
TILEFOLD_HOST_DEVICE constexpr Coord stmatrix_address(int thread, int step) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  return {16 * warp + lane % 8 + 8 * (lane / 8 % 2), 16 * step + 8 * (lane / 16)};
}

}  // namespace tilefold::layout
