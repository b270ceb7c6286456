// Two kernels in which barriers of the whole CTA order every access to shared memory, for
// compute-sanitizer's racecheck: it finds nothing in the first and reports races in the second,
// where half of the warps also meets at named barriers and the other half does not. They copy and
// wait as the sm80 rows with one stage do; for their pairs of warps the runner of the device tests
// leaves two cases out (LEFT_OUT in run_gpu_tests.py). Both kernels' results are checked.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared.cuh"

namespace tilefold {
namespace {

constexpr int kSkipped = 77;
constexpr int kThreads = 256;
constexpr int kReaders = kThreads / 2;  // the first warps read, the others pass over
constexpr int kMeetings = 3;            // of a pair of readers in a round, as in forward_kernel.cuh
constexpr int kRounds = 16;
constexpr int kTiles =
    2 * kRounds + 1;  // of one int4 a thread: K and V of each round, and a last K

struct Chunk {
  int32_t x, y, z, w;
};

// out[t] = the sum over rounds of sum(K) - 2 sum(V), reader by reader. All threads copy V while the
// readers read K, and the next K while they read V. With `kPassersMeet` those who pass over a round
// meet as often as the readers.
template <bool kPassersMeet>
__global__ void read_tiles(const Chunk* in, int32_t* out) {
  __shared__ alignas(16) Chunk k[kThreads];
  __shared__ alignas(16) Chunk v[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const bool reads = thread < kReaders;
  const int pair = thread / 64;
  const auto load = [&](Chunk* tile, int index) {
    ptx::cp_async_16(ptx::shared_address(tile + thread), in + index * kThreads + thread);
    ptx::cp_async_commit_group();
  };
  const auto sum_of = [&](const Chunk* tile) {
    int32_t sum = 0;
    for (int i = 0; i < kThreads; i += 32) sum += tile[(thread + i) % kThreads].x;
    return sum;
  };
  int32_t sum = 0;
  load(k, 0);
  for (int round = 0; round < kRounds; ++round) {
    ptx::cp_async_wait_group<0>();
    ptx::barrier_sync_cta();  // K is there, V has been read
    load(v, 2 * round + 1);
    if (reads) sum += sum_of(k);
    ptx::cp_async_wait_group<0>();
    ptx::barrier_sync_cta();  // V is there, K has been read
    load(k, 2 * round + 2);
    if (reads || kPassersMeet) {
      for (int i = 0; i < kMeetings; ++i) ptx::barrier_sync(1 + pair, 64);  // orders nothing here
    }
    if (reads) sum -= 2 * sum_of(v);
  }
  ptx::cp_async_wait_group<0>();
  if (reads) out[thread] = sum;
}

int fail(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  return 1;
}

int run(bool passers_meet) {
  int capability = 0;
  if (cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      capability < 8) {
    std::printf("skipped: no GPU of compute capability 8.0 or later\n");
    return kSkipped;
  }
  std::vector<Chunk> in(kTiles * kThreads);
  for (size_t i = 0; i < in.size(); ++i) in[i].x = static_cast<int32_t>(i * i % 1009);
  Chunk* device_in = nullptr;
  int32_t* device_out = nullptr;
  std::vector<int32_t> out(kReaders);
  const size_t in_bytes = in.size() * sizeof(Chunk);
  const size_t out_bytes = out.size() * sizeof(int32_t);
  if (const auto error = cudaMalloc(&device_in, in_bytes)) return fail("cudaMalloc", error);
  if (const auto error = cudaMalloc(&device_out, out_bytes)) return fail("cudaMalloc", error);
  if (const auto error = cudaMemcpy(device_in, in.data(), in_bytes, cudaMemcpyHostToDevice)) {
    return fail("copy to the GPU", error);
  }
  if (passers_meet) {
    read_tiles<true><<<1, kThreads>>>(device_in, device_out);
  } else {
    read_tiles<false><<<1, kThreads>>>(device_in, device_out);
  }
  if (const auto error = cudaGetLastError()) return fail("launch", error);
  if (const auto error = cudaMemcpy(out.data(), device_out, out_bytes, cudaMemcpyDeviceToHost)) {
    return fail("copy from the GPU", error);
  }
  for (int thread = 0; thread < kReaders; ++thread) {
    int32_t expected = 0;
    for (int tile = 0; tile < 2 * kRounds; ++tile) {
      for (int i = 0; i < kThreads; i += 32) {
        const int32_t x = in[tile * kThreads + (thread + i) % kThreads].x;
        expected += tile % 2 == 0 ? x : -2 * x;
      }
    }
    if (out[thread] != expected) {
      std::printf("thread %d: %d instead of %d\n", thread, out[thread], expected);
      return 1;
    }
  }
  std::printf("all sums are right\n");
  return 0;
}

}  // namespace
}  // namespace tilefold

int main(int argc, char** argv) {
  const char* kind = argc == 2 ? argv[1] : "";
  if (std::strcmp(kind, "same") != 0 && std::strcmp(kind, "different") != 0) {
    std::printf("usage: %s same|different    (numbers of named barriers)\n", argv[0]);
    return 2;
  }
  return tilefold::run(std::strcmp(kind, "same") == 0);
}
