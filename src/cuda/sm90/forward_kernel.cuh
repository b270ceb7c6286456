// The Hopper forward kernel: a TMA producer warpgroup and two to four wgmma consumer warpgroups in
// a persistent CTA (FlashAttention-3's warp specialisation). FlashAttention-2's Algorithm 1 with
// FlashAttention-3's two overlaps: within a warpgroup P V of one block runs beside the softmax of
// the next, and warpgroups take turns at the tensor cores (its ping-pong).
// docs/hopper.md tells the story with its timeline.
#pragma once

#include <cstdint>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/sm90/consumer.cuh"
#include "cuda/sm90/forward_config.h"
#include "cuda/sm90/forward_params.h"
#include "cuda/sm90/pipeline.cuh"
#include "cuda/sm90/producer.cuh"

namespace tilefold::sm90 {

// The body of a kernel; instantiate.cuh gives it its name. `params` is the kernel's
// __grid_constant__ parameter itself, by reference: TMA reads the tensor maps where they lie in it.
template <ForwardConfig kConfig>
__device__ __forceinline__ void forward(const ForwardParams& params) {
  static_assert(kConfig.valid());
  const uint32_t smem = ptx::shared_address(ptx::dynamic_shared_memory());
  if (threadIdx.x == 0) init_barriers<kConfig>(smem);
  ptx::barrier_sync_cta();
  const int warpgroup = ptx::shfl_idx(static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  if (warpgroup == kConfig.warpgroups) {
    ptx::setmaxnreg_dec<kConfig.producer_registers()>();
    // One lane loads, one of another warp opens the tile counter meanwhile, which takes
    // microseconds. The others leave: no barrier of the whole CTA may follow.
    const int warp = ptx::shfl_idx(static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32, 0);
    if (warp == 0) {
      if (ptx::elect_one()) produce<kConfig>(params, smem);
    } else if (kConfig.counts_tiles() && warp == 1) {
      if (ptx::elect_one()) count_first_tile<kConfig>(params, smem);
    }
  } else {
    ptx::setmaxnreg_inc<kConfig.consumer_registers()>();
    consume<kConfig>(params, smem, warpgroup);
  }
}

}  // namespace tilefold::sm90
