// Host meaning of src/cuda/ptx/warpgroup.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

template <int kRegisters>
void setmaxnreg_dec(Site site = Site::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  device::setmaxnreg(kRegisters, false, site);
}

template <int kRegisters>
void setmaxnreg_inc(Site site = Site::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  device::setmaxnreg(kRegisters, true, site);
}

inline bool elect_one(Site site = Site::current()) { return device::elect_one(site); }

}  // namespace tilefold::ptx
