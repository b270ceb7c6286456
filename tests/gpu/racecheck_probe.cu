// Two kernels in which barriers of the whole CTA order every access to shared memory, for
// compute-sanitizer's racecheck: it finds nothing in the first and reports a race in the second,
// whose warps meet at different numbers of named barriers in between. So it does for the sm80 rows
// in which pairs of warps exchange P while others, whose rows see nothing of a block, do not; the
// runner of the device tests leaves a case of those rows out for that (run_gpu_tests.py). Both
// kernels' results are checked.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cuda/ptx/barrier.cuh"

namespace tilefold {
namespace {

constexpr int kSkipped = 77;
constexpr int kHalf = 64;  // threads: two warps write a buffer, two read it
constexpr int kRounds = 16;

// out[t] = sum over rounds of what thread t ^ 33 of the writers wrote. In every round the readers
// meet twice at a named barrier, which orders nothing; with `kWritersMeet` the writers do so too.
template <bool kWritersMeet>
__global__ void hand_over(const int32_t* in, int32_t* out) {
  __shared__ int32_t buffer[kHalf];
  const int thread = static_cast<int>(threadIdx.x) % kHalf;
  const bool writes = threadIdx.x >= kHalf;
  int32_t sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    ptx::barrier_sync_cta();  // the buffer has been read
    if (writes) buffer[thread] = in[round * kHalf + thread];
    ptx::barrier_sync_cta();  // it is written
    if (!writes) {
      ptx::barrier_sync(1, kHalf);
      ptx::barrier_sync(1, kHalf);
      sum += buffer[thread ^ 33];
    } else if (kWritersMeet) {
      ptx::barrier_sync(2, kHalf);
      ptx::barrier_sync(2, kHalf);
    }
  }
  if (!writes) out[thread] = sum;
}

int fail(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  return 1;
}

int run(bool writers_meet) {
  int capability = 0;
  if (cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      capability < 8) {
    std::printf("skipped: no GPU of compute capability 8.0 or later\n");
    return kSkipped;
  }
  std::vector<int32_t> in(kRounds * kHalf);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * i % 1009);
  int32_t* device = nullptr;  // the inputs, then the outputs
  const size_t in_bytes = in.size() * sizeof(int32_t);
  if (const auto error = cudaMalloc(&device, in_bytes + kHalf * sizeof(int32_t))) {
    return fail("cudaMalloc", error);
  }
  int32_t* device_out = device + in.size();
  if (const auto error = cudaMemcpy(device, in.data(), in_bytes, cudaMemcpyHostToDevice)) {
    return fail("copy to the GPU", error);
  }
  if (writers_meet) {
    hand_over<true><<<1, 2 * kHalf>>>(device, device_out);
  } else {
    hand_over<false><<<1, 2 * kHalf>>>(device, device_out);
  }
  if (const auto error = cudaGetLastError()) return fail("launch", error);
  std::vector<int32_t> out(kHalf);
  if (const auto error = cudaMemcpy(out.data(), device_out, out.size() * sizeof(int32_t),
                                    cudaMemcpyDeviceToHost)) {
    return fail("copy from the GPU", error);
  }
  for (int thread = 0; thread < kHalf; ++thread) {
    int32_t expected = 0;
    for (int round = 0; round < kRounds; ++round) expected += in[round * kHalf + (thread ^ 33)];
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
