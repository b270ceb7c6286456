// Host meaning of src/cuda/ptx/mma.cuh.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                             Site site = Site::current()) {
  device::mma_m16n8k16(false, d, a, b0, b1, site);
}

inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              Site site = Site::current()) {
  device::mma_m16n8k16(true, d, a, b0, b1, site);
}

template <DType kDType>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  Site site = Site::current()) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  device::mma_m16n8k16(kDType == DType::kBFloat16, d, a, b0, b1, site);
}

}  // namespace tilefold::ptx
