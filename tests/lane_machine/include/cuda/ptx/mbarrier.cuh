// Host meaning of src/cuda/ptx/mbarrier.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals, Site site = Site::current()) {
  device::mbarrier_init(barrier, arrivals, site);
}

inline void fence_mbarrier_init(Site site = Site::current()) { device::fence_mbarrier_init(site); }

inline void mbarrier_arrive(uint32_t barrier, Site site = Site::current()) {
  device::mbarrier_arrive(barrier, 0, site);
}

inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes,
                                      Site site = Site::current()) {
  device::mbarrier_arrive(barrier, bytes, site);
}

// Without a limit in any build: the machine reports a wait that cannot end.
inline void mbarrier_wait(uint32_t barrier, uint32_t parity, Site site = Site::current()) {
  device::mbarrier_wait(barrier, parity, site);
}

}  // namespace tilefold::ptx
