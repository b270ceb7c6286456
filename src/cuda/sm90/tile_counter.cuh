// The counter of a dynamic schedule: hands each CTA of the grid its next tile.
//
// It lies in the workspace, whose contents nobody has prepared: a launch to set it to 0 would cost
// the host 4 us. So a launch carries a ticket, a number that memory holds by chance only (one in
// 2^62). The first CTA that comes to count claims the counter with it, sets the count to 0 and
// opens it; who comes meanwhile waits. The last count of a launch closes it, so that the same
// launch, replayed from a CUDA graph, finds it closed.
#pragma once

#include <cstdint>

#include "cuda/ptx/atomic.cuh"
#include "cuda/sm90/forward_params.h"

namespace tilefold::sm90 {

// Before a CTA's first count.
__device__ __forceinline__ void open_tile_counter(TileCounter* counter, uint64_t ticket) {
  const uint64_t claimed = ticket;
  const uint64_t open = ticket + 1;
  const uint64_t seen = ptx::atomic_load_acquire(&counter->state);
  if (seen == open) return;
  if (seen != claimed &&
      ptx::atomic_compare_and_swap_relaxed(&counter->state, seen, claimed) == seen) {
    ptx::atomic_store_relaxed(&counter->count, 0);
    ptx::atomic_store_release(&counter->state, open);
    return;
  }
  ptx::atomic_wait_acquire(&counter->state, open);
}

// A tile that no CTA has had, or one beyond the last. The first tile of a CTA is that of its own
// number, and every tile brings one call.
__device__ __forceinline__ int32_t count_tile(TileCounter* counter, int32_t num_ctas,
                                              int32_t num_tiles) {
  const auto before = static_cast<int32_t>(ptx::atomic_add_relaxed(&counter->count, 1));
  if (before == num_tiles - 1) ptx::atomic_store_relaxed(&counter->state, kTileCounterClosed);
  return num_ctas + before;
}

}  // namespace tilefold::sm90
