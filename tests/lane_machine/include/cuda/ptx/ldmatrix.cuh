// Host meaning of src/cuda/ptx/ldmatrix.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline void ldmatrix_x1(uint32_t (&r)[1], uint32_t address, Site site = Site::current()) {
  device::ldmatrix(r, 1, false, address, site);
}

inline void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t address, Site site = Site::current()) {
  device::ldmatrix(r, 1, true, address, site);
}

inline void ldmatrix_x2(uint32_t (&r)[2], uint32_t address, Site site = Site::current()) {
  device::ldmatrix(r, 2, false, address, site);
}

inline void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address, Site site = Site::current()) {
  device::ldmatrix(r, 2, true, address, site);
}

inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address, Site site = Site::current()) {
  device::ldmatrix(r, 4, false, address, site);
}

inline void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address, Site site = Site::current()) {
  device::ldmatrix(r, 4, true, address, site);
}

}  // namespace tilefold::ptx
