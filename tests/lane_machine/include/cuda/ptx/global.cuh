// Host meaning of src/cuda/ptx/global.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline void ld_global_v4(uint32_t (&value)[4], const void* address, Site site = Site::current()) {
  device::load_global(value, address, 16, site);
}

inline float ld_global_f32(const void* address, Site site = Site::current()) {
  float value;
  device::load_global(&value, address, 4, site);
  return value;
}

inline void ld_global_f32_v4(float (&value)[4], const void* address, Site site = Site::current()) {
  device::load_global(value, address, 16, site);
}

inline void st_global_v4(void* address, const uint32_t (&value)[4], Site site = Site::current()) {
  device::store_global(address, value, 16, site);
}

inline void st_global_f32(void* address, float value, Site site = Site::current()) {
  device::store_global(address, &value, 4, site);
}

inline void st_global_f32_v2(void* address, float value0, float value1,
                             Site site = Site::current()) {
  const float value[2] = {value0, value1};
  device::store_global(address, value, 8, site);
}

}  // namespace tilefold::ptx
