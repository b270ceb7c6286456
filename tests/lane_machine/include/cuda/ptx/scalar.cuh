// Host meaning of src/cuda/ptx/scalar.cuh.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "lane_machine/device.h"
#include "lane_machine/numbers.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline uint16_t ld_global_u16(const void* address, Site site = Site::current()) {
  uint16_t value;
  device::load_global(&value, address, 2, site);
  return value;
}

inline void st_global_u16(void* address, uint16_t value, Site site = Site::current()) {
  device::store_global(address, &value, 2, site);
}

inline void st_shared_u16(uint32_t address, uint16_t value, Site site = Site::current()) {
  device::store_shared(address, &value, 2, site);
}

template <DType kDType>
float cvt_f32(uint16_t value) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  return lane_machine::narrow_to_float<kDType == DType::kBFloat16>(value);
}

}  // namespace tilefold::ptx
