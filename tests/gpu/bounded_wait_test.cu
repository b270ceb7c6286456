// In builds with TILEFOLD_BOUNDED_SPINS a wait that ends late, ends; one that does not end traps,
// and the host sees an error instead of a hang. A program by itself, run for each kind of wait:
// after a trap the process has no use of the GPU any more.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cuda/ptx/atomic.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"

namespace tilefold {
namespace {

constexpr int kSkipped = 77;
constexpr double kLongestSeconds = 20;  // the limit is at most 12.9

__device__ uint64_t flag;

// Warp 0 waits for warp 1, on an mbarrier or on a word in memory; it comes some 20 ms later or not
// at all.
__global__ void wait_for_arrival(bool on_mbarrier, bool comes) {
  constexpr int64_t kClocksBefore = 40'000'000;
  const uint32_t barrier = ptx::shared_address(ptx::dynamic_shared_memory());
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    flag = 0;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (on_mbarrier) {
      ptx::mbarrier_wait(barrier, 0);
    } else {
      ptx::atomic_wait_acquire(&flag, 1);
    }
  } else if (threadIdx.x == 32 && comes) {
    const int64_t start = clock64();
    while (clock64() - start < kClocksBefore) continue;
    if (on_mbarrier) {
      ptx::mbarrier_arrive(barrier);
    } else {
      ptx::atomic_store_release(&flag, 1);
    }
  }
}

cudaError_t run(bool on_mbarrier, bool comes) {
  wait_for_arrival<<<1, 64, sizeof(uint64_t)>>>(on_mbarrier, comes);
  const cudaError_t launched = cudaGetLastError();
  return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

int fail(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  return 1;
}

int test(bool on_mbarrier) {
  int capability = 0;
  if (cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      capability != 9) {
    std::printf("skipped: no GPU of compute capability 9.0\n");
    return kSkipped;
  }
  if (const cudaError_t error = run(on_mbarrier, true)) return fail("a wait that ends", error);
  const auto start = std::chrono::steady_clock::now();
  const cudaError_t error = run(on_mbarrier, false);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (error == cudaSuccess) return fail("a wait that does not end", error);
  std::printf("a wait that does not end: %s after %.1f s\n", cudaGetErrorString(error),
              seconds.count());
  return seconds.count() <= kLongestSeconds ? 0 : 1;
}

}  // namespace
}  // namespace tilefold

int main(int argc, char** argv) {
  const char* kind = argc == 2 ? argv[1] : "";
  if (std::strcmp(kind, "mbarrier") != 0 && std::strcmp(kind, "memory") != 0) {
    std::printf("usage: %s mbarrier|memory\n", argv[0]);
    return 2;
  }
  return tilefold::test(std::strcmp(kind, "mbarrier") == 0);
}
