// The CUDA half of device_memory.h, over the CUDA runtime.
#include <cuda_runtime_api.h>

#include "cli/device_memory.h"
#include "cli/failure.h"

namespace tilefold::cli::cuda {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    fail(ExitCode::kIo, "CUDA: {}: {}", what, cudaGetErrorString(error));
  }
}

void use(int device) { check(cudaSetDevice(device), "the device could not be made current"); }

}  // namespace

bool available() { return true; }

void* allocate(int device, size_t bytes) {
  use(device);
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "device memory could not be allocated");
  return memory;
}

void deallocate(int device, void* memory) noexcept {
  if (cudaSetDevice(device) == cudaSuccess) cudaFree(memory);
}

void copy_to_device(int device, void* to, const void* from, size_t bytes) {
  use(device);
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device failed");
}

void copy_to_host(int device, void* to, const void* from, size_t bytes) {
  use(device);
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the device failed");
}

void synchronize(int device) {
  use(device);
  check(cudaDeviceSynchronize(), "work on the device failed");
}

void* create_event(int device) {
  use(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "an event could not be made");
  return event;
}

void destroy_event(int device, void* event) noexcept {
  if (cudaSetDevice(device) == cudaSuccess) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void record_event(int device, void* event) {
  use(device);
  check(cudaEventRecord(static_cast<cudaEvent_t>(event), nullptr), "an event was not recorded");
}

double elapsed_ms(int device, void* start, void* stop) {
  use(device);
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(stop)), "work on the device failed");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(start), static_cast<cudaEvent_t>(stop)),
        "events could not be compared");
  return ms;
}

}  // namespace tilefold::cli::cuda
