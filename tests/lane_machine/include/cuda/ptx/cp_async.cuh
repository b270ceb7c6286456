// Host meaning of src/cuda/ptx/cp_async.cuh.
#pragma once

#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline void cp_async_16(uint32_t shared_address, const void* global, Site site = Site::current()) {
  device::cp_async(shared_address, global, 16, 16, site);
}

inline void cp_async_16_zero_fill(uint32_t shared_address, const void* global,
                                  uint32_t source_bytes, Site site = Site::current()) {
  device::cp_async(shared_address, global, 16, static_cast<int>(source_bytes), site);
}

inline void cp_async_commit_group(Site site = Site::current()) { device::cp_async_commit(site); }

template <int kPending>
void cp_async_wait_group(Site site = Site::current()) {
  static_assert(kPending >= 0 && kPending < 8);
  device::cp_async_wait(kPending, site);
}

}  // namespace tilefold::ptx
