// The forward pass, compiled once per instruction set, and the table of what was compiled.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_targets.cc"

// The baseline, SSE4, AVX2 and AVX-512 (Highway's AVX3); what lies between gains nothing here.
// Scalable vectors cannot be array elements: SVE machines run NEON.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   (1LL << 6) /* Zen 4 */ | (1LL << 4) /* Sapphire Rapids */)
#endif
// Highway's checks abort, and live in its library, which we do without.
#ifndef HWY_IS_DEBUG_BUILD
#define HWY_IS_DEBUG_BUILD 0
#endif

#include "hwy/foreach_target.h"
// Order matters: foreach_target.h first.
#include "cpu/forward-inl.h"
#include "cpu/forward_plan.h"
#include "cpu/processor.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilefold::cpu {
namespace HWY_NAMESPACE {
namespace {

bool supported() {
#if HWY_TARGET == HWY_AVX3
  return processor().avx512;
#elif HWY_TARGET == HWY_AVX2
  return processor().avx2;
#elif HWY_TARGET == HWY_SSE4
  return processor().sse4;
#else
  return true;
#endif
}

}  // namespace

ForwardTarget target() {
  return {hwy::TargetName(HWY_TARGET), kLanes, kPanel, supported, scratch_bytes, run_item};
}

}  // namespace HWY_NAMESPACE
}  // namespace tilefold::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilefold::cpu {
namespace {

// HWY_EXPORT's table, without the part of it that needs Highway's library at run time.
const ForwardTarget kTargets[] = {
#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
    N_AVX3::target(),
#endif
#if HWY_TARGETS & HWY_AVX2
    N_AVX2::target(),
#endif
#if HWY_TARGETS & HWY_SSE4
    N_SSE4::target(),
#endif
#endif
#if HWY_STATIC_TARGET > HWY_SSE4 || !HWY_ARCH_X86
    HWY_STATIC_DISPATCH(target)(),
#endif
};

}  // namespace

int num_forward_targets() { return static_cast<int>(std::size(kTargets)); }
const ForwardTarget& forward_target(int index) { return kTargets[index]; }

}  // namespace tilefold::cpu
#endif  // HWY_ONCE
