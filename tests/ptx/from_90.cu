// Every wrapper of src/cuda/ptx that needs compute capability 9.0, once: compiled for each
// architecture of the build that has it, never run.
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"

namespace tilefold::ptx {

__global__ void compile_mbarrier(uint32_t* out, uint32_t barrier, uint32_t parity) {
  mbarrier_init(barrier, 1);
  fence_mbarrier_init();
  mbarrier_arrive(barrier);
  mbarrier_arrive_expect_tx(barrier, 1024);
  mbarrier_wait(barrier, parity);
}

__global__ void compile_stmatrix(uint32_t shared, const uint32_t* in) {
  const uint32_t r[4] = {in[0], in[1], in[2], in[3]};
  stmatrix_x4(shared, r);
}

template <CacheUse kUse>
__device__ void use_tma(const TensorMap* map, uint32_t shared, uint32_t barrier, int32_t at) {
  tma_load_4d<kUse>(shared, map, barrier, at, at, at, at);
  tma_store_4d<kUse>(map, shared, at, at, at, at);
}

__global__ void compile_tma(const __grid_constant__ TensorMap map, uint64_t* out, uint32_t shared,
                            uint32_t barrier, int32_t at) {
  prefetch_tensor_map(&map);
  use_tma<CacheUse::kAgain>(&map, shared, barrier, at);
  use_tma<CacheUse::kOnce>(&map, shared, barrier, at);
  tma_load_5d<CacheUse::kOnce>(shared, &map, barrier, at, at, at, at, at);
  tma_store_5d<CacheUse::kOnce>(&map, shared, at, at, at, at, at);
  fence_proxy_async();
  tma_store_commit();
  tma_store_wait_read<1>();
  tma_store_wait_read();
  tma_store_wait();
  out[0] = evict_first_policy();
}

__global__ void compile_elect(uint32_t* out) { out[0] = elect_one(); }

}  // namespace tilefold::ptx
