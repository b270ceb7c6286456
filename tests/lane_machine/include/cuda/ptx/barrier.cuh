// Host meaning of src/cuda/ptx/barrier.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

constexpr int kNumNamedBarriers = 16;

inline void barrier_sync_cta(Site site = Site::current()) { device::barrier(0, 0, false, site); }

inline void barrier_sync(int id, int num_threads, Site site = Site::current()) {
  device::barrier(id, num_threads, false, site);
}

inline void barrier_arrive(int id, int num_threads, Site site = Site::current()) {
  device::barrier_arrive(id, num_threads, site);
}

inline bool barrier_red_or(int id, int num_threads, bool predicate, Site site = Site::current()) {
  return device::barrier(id, num_threads, predicate, site);
}

}  // namespace tilefold::ptx
