// Host meaning of src/cuda/ptx/atomic.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline uint32_t atomic_add_relaxed(uint32_t* address, uint32_t value, Site site = Site::current()) {
  return device::atomic_add(address, value, site);
}

inline void atomic_store_relaxed(uint32_t* address, uint32_t value, Site site = Site::current()) {
  device::store_global(address, &value, 4, site);
}

}  // namespace tilefold::ptx
