// Host meaning of src/cuda/ptx/stmatrix.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline void stmatrix_x4(uint32_t address, const uint32_t (&r)[4], Site site = Site::current()) {
  device::stmatrix(r, 4, false, address, site);
}

}  // namespace tilefold::ptx
