// Sets the tile counter of a dynamic schedule to 0, ahead of the kernel that counts with it. That
// kernel is launched as a dependent grid: it starts at once and waits only before its first count.
#include "cuda/ptx/atomic.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/sm90/tile_counter.h"

namespace tilefold::sm90 {

__global__ void sm90_reset_tile_counter(uint32_t* counter) {
  ptx::launch_dependent_grids();
  ptx::atomic_store_relaxed(counter, 0);
}

const void* reset_tile_counter_kernel() {
  return reinterpret_cast<const void*>(&sm90_reset_tile_counter);
}

}  // namespace tilefold::sm90
