// Host meaning of src/cuda/ptx/tma.cuh.
#pragma once

#include <cstdint>

#include "cuda/tensor_map.h"
#include "lane_machine/device.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

enum class CacheUse { kAgain, kOnce };  // there is no cache here

inline void prefetch_tensor_map(const TensorMap*) {}

template <CacheUse kUse = CacheUse::kAgain>
inline void tma_load_4d(uint32_t destination, const TensorMap* map, uint32_t barrier,
                        int32_t column, int32_t row, int32_t head, int32_t batch,
                        Site site = Site::current()) {
  device::tma_load(destination, map, barrier, 4, {column, row, head, batch}, site);
}

template <CacheUse kUse = CacheUse::kAgain>
inline void tma_store_4d(const TensorMap* map, uint32_t source, int32_t column, int32_t row,
                         int32_t head, int32_t batch, Site site = Site::current()) {
  device::tma_store(map, source, 4, {column, row, head, batch}, site);
}

template <CacheUse kUse>
inline void tma_load_5d(uint32_t destination, const TensorMap* map, uint32_t barrier,
                        int32_t column, int32_t row, int32_t head, int32_t group, int32_t batch,
                        Site site = Site::current()) {
  device::tma_load(destination, map, barrier, 5, {column, row, head, group, batch}, site);
}

template <CacheUse kUse>
inline void tma_store_5d(const TensorMap* map, uint32_t source, int32_t column, int32_t row,
                         int32_t head, int32_t group, int32_t batch, Site site = Site::current()) {
  device::tma_store(map, source, 5, {column, row, head, group, batch}, site);
}

inline void tma_store_commit(Site site = Site::current()) { device::tma_store_commit(site); }

template <int kPending = 0>
inline void tma_store_wait_read(Site site = Site::current()) {
  device::tma_store_wait_read(kPending, site);
}

inline void tma_store_wait(Site site = Site::current()) { device::tma_store_wait(site); }

inline void fence_proxy_async(Site site = Site::current()) { device::fence_proxy_async(site); }

}  // namespace tilefold::ptx
