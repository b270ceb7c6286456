// Host meaning of src/cuda/ptx/wgmma.cuh.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline void wgmma_fence(Site site = Site::current()) { device::wgmma_fence(site); }

inline void wgmma_commit(Site site = Site::current()) { device::wgmma_commit(site); }

template <int kPending>
void wgmma_wait(Site site = Site::current()) {
  static_assert(kPending >= 0 && kPending <= 7);
  device::wgmma_wait(kPending, site);
}

template <int kCount>
void pin_registers(float (&)[kCount]) {}

template <int kN, DType kDType>
void wgmma_ss(float (&d)[kN / 2], uint64_t a, uint64_t b, bool accumulate,
              Site site = Site::current()) {
  device::wgmma(kN, kDType == DType::kBFloat16, d, nullptr, a, b, false, accumulate, site);
}

template <int kN, DType kDType>
void wgmma_rs(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, Site site = Site::current()) {
  device::wgmma(kN, kDType == DType::kBFloat16, d, a, 0, b, true, true, site);
}

}  // namespace tilefold::ptx
