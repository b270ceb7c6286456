// Measures the float32 FMA rate: chains of multiply-adds in registers, per SIMD target.
#include "bench/cpu_peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/cpu_peak.cc"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   (1LL << 6) /* Zen 4 */ | (1LL << 4) /* Sapphire Rapids */)
#endif
#ifndef HWY_IS_DEBUG_BUILD
#define HWY_IS_DEBUG_BUILD 0
#endif
#include "hwy/foreach_target.h"
// Order matters: foreach_target.h first.
#include <omp.h>

#include <chrono>
#include <cstdint>

#include "cpu/processor.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilefold::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// More chains than latency times throughput asks for, fewer than there are registers.
constexpr int kChains = 12;

// Runs `rounds` rounds of kChains multiply-adds; returns their flops.
int64_t spin(int64_t rounds, float* sink) {
  constexpr hn::ScalableTag<float> kTag{};
  hn::Vec<hn::ScalableTag<float>> chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(kTag, 1.0f + static_cast<float>(i));
  const auto factor = hn::Set(kTag, 0.999f);
  const auto term = hn::Set(kTag, 0.001f);
  for (int64_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, term);
  }
  for (int i = 1; i < kChains; ++i) chain[0] = hn::Add(chain[0], chain[i]);
  *sink = hn::GetLane(chain[0]);
  return rounds * kChains * static_cast<int64_t>(hn::MaxLanes(kTag)) * 2;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilefold::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilefold::bench {

double measure_fma_peak(int num_threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  auto* spin = HWY_STATIC_DISPATCH(spin);
#if HWY_ARCH_X86
  const cpu::Processor& processor = cpu::processor();
#if HWY_TARGETS & HWY_SSE4
  if (processor.sse4) spin = N_SSE4::spin;
#endif
#if HWY_TARGETS & HWY_AVX2
  if (processor.avx2) spin = N_AVX2::spin;
#endif
#if HWY_TARGETS & HWY_AVX3
  if (processor.avx512) spin = N_AVX3::spin;
#endif
#endif
  double rate = 0.0;
#pragma omp parallel num_threads(num_threads) reduction(+ : rate)
  {
    constexpr int64_t kRounds = 20000;
    float sink;
    spin(kRounds, &sink);  // wakes the vector units
#pragma omp barrier
    const auto start = Clock::now();
    double elapsed = 0.0;
    int64_t flops = 0;
    while (elapsed < seconds) {
      flops += spin(kRounds, &sink);
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    }
    rate += static_cast<double>(flops) / elapsed * 1e-9 + (sink == 12345.0f ? 1e-30 : 0.0);
  }
  return rate;
}

}  // namespace tilefold::bench
#endif  // HWY_ONCE
