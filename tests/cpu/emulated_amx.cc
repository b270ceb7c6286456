// Compiles the kernel for matrix tiles over emulated tiles, for the baseline and AVX2.
#include "emulated_amx.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "emulated_amx.cc"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                          \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128 | (1LL << 6) /* Zen 4 */ | (1LL << 4) /* Sapphire Rapids */)
#endif
#ifndef HWY_IS_DEBUG_BUILD
#define HWY_IS_DEBUG_BUILD 0
#endif
#include "hwy/foreach_target.h"
// Order matters: foreach_target.h first.
#include <cmath>
#include <cstring>

#include "cpu/forward-inl.h"
#include "cpu/forward_amx-inl.h"
#include "cpu/processor.h"
#include "hwy/highway.h"

#ifndef TILEFOLD_TESTS_CPU_EMULATED_TILES
#define TILEFOLD_TESTS_CPU_EMULATED_TILES
namespace tilefold::cpu_test {

// Eight tiles of 16 rows of 64 bytes. A product that reads a tile before it was loaded is poisoned.
class EmulatedTiles {
 public:
  EmulatedTiles() { std::memset(tiles_, 0xFF, sizeof(tiles_)); }

  template <int kTile>
  void zero() {
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void load(const void* from, int64_t stride_bytes) {
    for (int row = 0; row < 16; ++row) {
      std::memcpy(tiles_[kTile][row], static_cast<const char*>(from) + row * stride_bytes, 64);
    }
  }
  template <int kTile>
  void store(void* to, int64_t stride_bytes) {
    for (int row = 0; row < 16; ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride_bytes, tiles_[kTile][row], 64);
    }
  }
  template <int kC, int kA, int kB>
  void multiply_add() {
    float a[16][32];
    float b[16][32];
    float c[16][16];
    widen<kA>(a);
    widen<kB>(b);
    std::memcpy(c, tiles_[kC], sizeof(c));
    for (int m = 0; m < 16; ++m) {
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < 16; ++n) {
          c[m][n] += a[m][2 * k] * b[k][2 * n];
          c[m][n] += a[m][2 * k + 1] * b[k][2 * n + 1];
        }
      }
    }
    std::memcpy(tiles_[kC], c, sizeof(c));
  }

 private:
  template <int kTile>
  void widen(float (&to)[16][32]) const {
    uint16_t bits[16][32];
    std::memcpy(bits, tiles_[kTile], sizeof(bits));
    for (int row = 0; row < 16; ++row) {
      for (int i = 0; i < 32; ++i) {
        const float value = cpu::float_from_bfloat16(bits[row][i]);
        to[row][i] = std::fpclassify(value) == FP_SUBNORMAL ? 0.0f : value;
      }
    }
  }

  alignas(64) std::byte tiles_[8][16][64];
};

}  // namespace tilefold::cpu_test
#endif

HWY_BEFORE_NAMESPACE();
namespace tilefold::cpu {
namespace HWY_NAMESPACE {
namespace {

bool emulated_supported() { return true; }

int64_t emulated_scratch_bytes(const ForwardPlan& plan) {
  return std::max(amx::scratch_bytes(plan), scratch_bytes(plan));
}

void emulated_run_item(const ForwardPlan& plan, int64_t group, int64_t m_block, int64_t split,
                       std::byte* scratch) {
  if (!amx::serves(plan) ||
      !amx::run_item<cpu_test::EmulatedTiles>(plan, group, m_block, split, scratch)) {
    run_item(plan, group, m_block, split, scratch);
  }
}

}  // namespace

ForwardTarget emulated_target() {
  return {"EmulatedAmx",          amx::kPanel,      emulated_supported, amx::serves,
          emulated_scratch_bytes, emulated_run_item};
}

}  // namespace HWY_NAMESPACE
}  // namespace tilefold::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilefold::cpu_test {

const cpu::ForwardTarget* emulated_amx_target() {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX2)
  static const cpu::ForwardTarget target = cpu::processor().avx2
                                               ? cpu::N_AVX2::emulated_target()
                                               : cpu::HWY_STATIC_DISPATCH(emulated_target)();
#else
  static const cpu::ForwardTarget target = cpu::HWY_STATIC_DISPATCH(emulated_target)();
#endif
  return &target;
}

}  // namespace tilefold::cpu_test
#endif  // HWY_ONCE
