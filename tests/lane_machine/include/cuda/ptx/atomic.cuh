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
  device::atomic_store(address, &value, 4, site);
}

inline void atomic_store_relaxed(uint64_t* address, uint64_t value, Site site = Site::current()) {
  device::atomic_store(address, &value, 8, site);
}

inline void atomic_store_release(uint64_t* address, uint64_t value, Site site = Site::current()) {
  device::atomic_store(address, &value, 8, site);
}

inline uint64_t atomic_load_acquire(const uint64_t* address, Site site = Site::current()) {
  uint64_t value;
  device::load_global(&value, address, 8, site);
  return value;
}

// CTAs run one after another: nothing comes between the load and the store.
inline uint64_t atomic_compare_and_swap_relaxed(uint64_t* address, uint64_t expected,
                                                uint64_t desired, Site site = Site::current()) {
  const uint64_t before = atomic_load_acquire(address, site);
  if (before == expected) device::atomic_store(address, &desired, 8, site);
  return before;
}

// Likewise: what has not come will not come.
inline void atomic_wait_acquire(const uint64_t* address, uint64_t value,
                                Site site = Site::current()) {
  if (atomic_load_acquire(address, site) != value) device::wait_forever(site);
}

}  // namespace tilefold::ptx
