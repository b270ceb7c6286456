// The AMX instructions that the bfloat16 kernel uses, one function each (Intel SDM volume 2).
//
// Encoded as bytes, so that any assembler and compiler will do. Tile registers hold 16 rows of 64
// bytes: 16 x 16 float32, or 16 x 32 bfloat16.
#pragma once

#include <cstdint>

namespace tilefold::cpu {

#if defined(__x86_64__)

struct AmxTiles {
  // LDTILECFG: palette 1, eight tiles of 16 rows of 64 bytes, all zero.
  AmxTiles() {
    alignas(64) uint8_t config[64] = {1};
    for (int t = 0; t < 8; ++t) {
      config[16 + 2 * t] = 64;
      config[48 + t] = 16;
    }
    asm volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0x00" : : "a"(config), "m"(config));
  }
  // TILERELEASE.
  ~AmxTiles() { asm volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0" : :); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  // TILEZERO.
  template <int kTile>
  [[gnu::always_inline]] void zero() {
    asm volatile(".byte 0xc4, 0xe2, 0x7b, 0x49, %c0" : : "i"(0xc0 | kTile << 3));
  }

  // TILELOADD: row r from `from` + r * stride_bytes.
  template <int kTile>
  [[gnu::always_inline]] void load(const void* from, int64_t stride_bytes) {
    asm volatile(".byte 0xc4, 0xe2, 0x7b, 0x4b, %c0, 0x08"
                 :
                 : "i"(0x04 | kTile << 3), "a"(from), "c"(stride_bytes)
                 : "memory");
  }

  // TILESTORED.
  template <int kTile>
  [[gnu::always_inline]] void store(void* to, int64_t stride_bytes) {
    asm volatile(".byte 0xc4, 0xe2, 0x7a, 0x4b, %c0, 0x08"
                 :
                 : "i"(0x04 | kTile << 3), "a"(to), "c"(stride_bytes)
                 : "memory");
  }

  // TDPBF16PS: C[m][n] += A[m][2k] * B[k][2n] + A[m][2k + 1] * B[k][2n + 1], float32 sums, round to
  // nearest even, subnormals as zero.
  template <int kC, int kA, int kB>
  [[gnu::always_inline]] void multiply_add() {
    asm volatile(".byte 0xc4, 0xe2, %c0, 0x5c, %c1"
                 :
                 : "i"((~kB & 15) << 3 | 2), "i"(0xc0 | kC << 3 | kA));
  }
};

#endif

}  // namespace tilefold::cpu
