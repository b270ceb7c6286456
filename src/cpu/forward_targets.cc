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
#include "cpu/amx_tiles.h"
#include "cpu/forward-inl.h"
#include "cpu/forward_amx-inl.h"
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

bool serves_all(const ForwardPlan&) { return true; }

#if HWY_TARGET == HWY_AVX3

bool amx_supported() { return processor().amx_bf16; }

int64_t amx_scratch_bytes(const ForwardPlan& plan) {
  return std::max(amx::scratch_bytes(plan), scratch_bytes(plan));
}

void amx_run_item(const ForwardPlan& plan, int64_t group, int64_t m_block, int64_t split,
                  std::byte* scratch) {
  if (!amx::serves(plan) || !amx::run_item<AmxTiles>(plan, group, m_block, split, scratch)) {
    run_item(plan, group, m_block, split, scratch);
  }
}

#endif

}  // namespace

#if HWY_TARGET == HWY_AVX3
ForwardTarget amx_target() {
  return {"AMX_BF16", amx::kPanel, amx_supported, amx::serves, amx_scratch_bytes, amx_run_item};
}
#endif

ForwardTarget target() {
  return {hwy::TargetName(HWY_TARGET), kPanel, supported, serves_all, scratch_bytes, run_item};
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
    N_AVX3::amx_target(),
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
