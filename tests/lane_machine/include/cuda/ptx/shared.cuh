// Host meaning of src/cuda/ptx/shared.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

constexpr int kDynamicSharedAlignment = 1024;

inline unsigned char* dynamic_shared_memory() { return device::shared_memory(); }

inline uint32_t shared_address(const void* pointer) { return device::shared_address(pointer); }

inline uint32_t ld_shared_u32(uint32_t address, Site site = Site::current()) {
  uint32_t value;
  device::load_shared(&value, address, 4, site);
  return value;
}

inline void ld_shared_v4(uint32_t (&value)[4], uint32_t address, Site site = Site::current()) {
  device::load_shared(value, address, 16, site);
}

inline float ld_shared_f32(uint32_t address, Site site = Site::current()) {
  float value;
  device::load_shared(&value, address, 4, site);
  return value;
}

inline void st_shared_u32(uint32_t address, uint32_t value, Site site = Site::current()) {
  device::store_shared(address, &value, 4, site);
}

inline void st_shared_v4(uint32_t address, const uint32_t (&value)[4],
                         Site site = Site::current()) {
  device::store_shared(address, value, 16, site);
}

inline void st_shared_f32(uint32_t address, float value, Site site = Site::current()) {
  device::store_shared(address, &value, 4, site);
}

}  // namespace tilefold::ptx
