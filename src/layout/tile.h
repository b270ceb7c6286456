// The image of a [rows, columns] tile of 16-bit elements in shared memory.
#pragma once

#include <cstdint>

#include "layout/host_device.h"

namespace tilefold::layout {

constexpr int kElementBytes = 2;
constexpr int kChunkElems = 8;  // 16 bytes: what ldmatrix, cp.async and a vector access move
constexpr int kChunkBytes = kChunkElems * kElementBytes;

// Columns are cut into pages of 64 (of 32 where 64 does not divide them), stored one after another;
// inside a page, rows of 128 (64) bytes follow each other, and the 16-byte chunks of a row are
// permuted by an XOR with the row's number, so that eight rows of one chunk column lie in eight
// different groups of four banks. It is also what TMA writes with its 128-byte (64-byte) swizzle.
// A page begins at a multiple of 1024 (512) bytes.
struct Tile {
  int rows;
  int columns;

  TILEFOLD_HOST_DEVICE constexpr int page_columns() const { return columns % 64 == 0 ? 64 : 32; }
  TILEFOLD_HOST_DEVICE constexpr int num_pages() const { return columns / page_columns(); }
  TILEFOLD_HOST_DEVICE constexpr int row_bytes() const { return page_columns() * kElementBytes; }
  TILEFOLD_HOST_DEVICE constexpr int page_bytes() const { return rows * row_bytes(); }
  TILEFOLD_HOST_DEVICE constexpr int bytes() const { return num_pages() * page_bytes(); }
  TILEFOLD_HOST_DEVICE constexpr int chunks_per_page() const {
    return page_columns() / kChunkElems;
  }
  TILEFOLD_HOST_DEVICE constexpr bool valid() const {
    return rows > 0 && rows % 8 == 0 && columns > 0 && columns % 32 == 0;
  }

  // What the chunk index of a row is XORed with. 64-byte rows lie two to a line of 32 banks, so
  // there pairs of rows share a value.
  TILEFOLD_HOST_DEVICE constexpr int swizzle(int row) const {
    return page_columns() == 64 ? row % 8 : row / 2 % 4;
  }

  // Byte offset of chunk `chunk` (columns 8 chunk .. 8 chunk + 7) of row `row`.
  TILEFOLD_HOST_DEVICE constexpr int offset_bytes(int row, int chunk) const {
    return chunk / chunks_per_page() * page_bytes() + row * row_bytes() +
           ((chunk % chunks_per_page()) ^ swizzle(row)) * kChunkBytes;
  }

  // Steps from the address of (row, chunk), chunk in {0, 1}, by multiples of 16 rows or columns:
  //   address(row + 16 i, chunk + 2 k) = (address(row, chunk) ^ k16_xor(k)) + k16_page_bytes(k)
  //                                      + i * rows16_bytes()
  // The XOR touches bits that the tile's alignment leaves zero in its base, so it may be applied to
  // the absolute address: one address register a lane serves the whole tile.
  TILEFOLD_HOST_DEVICE constexpr uint32_t k16_xor(int k16) const {
    return static_cast<uint32_t>(k16 % (page_columns() / 16) * 2 * kChunkBytes);
  }
  TILEFOLD_HOST_DEVICE constexpr uint32_t k16_page_bytes(int k16) const {
    return static_cast<uint32_t>(k16 / (page_columns() / 16) * page_bytes());
  }
  TILEFOLD_HOST_DEVICE constexpr uint32_t rows16_bytes() const {
    return static_cast<uint32_t>(16 * row_bytes());
  }
};

}  // namespace tilefold::layout
