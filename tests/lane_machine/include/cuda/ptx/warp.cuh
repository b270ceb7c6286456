// Host meaning of src/cuda/ptx/warp.cuh.
#pragma once

#include <bit>
#include <cstdint>

#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

constexpr uint32_t kWholeWarp = 0xffffffffu;

inline float shfl_xor(float value, int mask, Site site = Site::current()) {
  return std::bit_cast<float>(
      device::shuffle(std::bit_cast<uint32_t>(value), device::lane_in_warp() ^ mask, site));
}

inline int shfl_idx(int value, int lane, Site site = Site::current()) {
  return static_cast<int>(device::shuffle(static_cast<uint32_t>(value), lane, site));
}

inline float shfl_idx(float value, int lane, Site site = Site::current()) {
  return std::bit_cast<float>(device::shuffle(std::bit_cast<uint32_t>(value), lane, site));
}

inline bool vote_any(bool predicate, Site site = Site::current()) {
  return device::ballot(predicate, site) != 0;
}

inline bool vote_all(bool predicate, Site site = Site::current()) {
  return device::ballot(predicate, site) == kWholeWarp;
}

inline void sync_warp(Site site = Site::current()) { device::sync_warp(site); }

}  // namespace tilefold::ptx
