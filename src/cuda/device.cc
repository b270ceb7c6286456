// CUDA devices as the runtime shows them.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <mutex>
#include <vector>

#include "core/kernel.h"
#include "cuda/device_notes.h"

namespace tilefold {
namespace {

struct Devices {
  std::vector<DeviceProperties> list;
  char note[kNoteBytes] = "";  // why the list is empty
};

int32_t attribute(cudaDeviceAttr which, int32_t id) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, id) != cudaSuccess) {
    cudaGetLastError();  // not the caller's error
    return 0;
  }
  return value;
}

DeviceProperties read_device(int32_t id, int32_t driver_version) {
  DeviceProperties p;
  p.type = DeviceType::kCuda;
  p.id = id;
  p.compute_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, id) +
                         attribute(cudaDevAttrComputeCapabilityMinor, id);
  p.num_multiprocessors = attribute(cudaDevAttrMultiProcessorCount, id);
  p.shared_memory_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, id);
  p.l2_bytes = attribute(cudaDevAttrL2CacheSize, id);
  p.driver_version = driver_version;
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, id) == cudaSuccess) {
    std::snprintf(p.name, sizeof(p.name), "%.127s", properties.name);
  } else {
    cudaGetLastError();
  }
  note_usability(&p);
  return p;
}

const Devices& devices() {
  static const Devices all = [] {
    Devices result;
    int driver_version = 0;
    cudaDriverGetVersion(&driver_version);
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
      cudaGetLastError();
      note_no_device(result.note, driver_version, CUDART_VERSION,
                     error == cudaErrorInsufficientDriver, cudaGetErrorString(error));
      return result;
    }
    for (int32_t id = 0; id < count; ++id) result.list.push_back(read_device(id, driver_version));
    return result;
  }();
  return all;
}

}  // namespace

int32_t cuda_device_count() { return static_cast<int32_t>(devices().list.size()); }

const DeviceProperties* cuda_device(int32_t id, Reason* reason) {
  const Devices& all = devices();
  if (id >= 0 && id < static_cast<int32_t>(all.list.size())) return &all.list[id];
  if (all.list.empty()) {
    reason->set("it is on CUDA device %d, but the CUDA runtime shows no device: %s", id,
                all.note[0] ? all.note : "none is installed");
  } else {
    reason->set("it is on CUDA device %d; the devices here are 0 to %d", id,
                static_cast<int>(all.list.size()) - 1);
  }
  return nullptr;
}

CudaDeviceGuard::CudaDeviceGuard(int32_t id) {
  int current = 0;
  ok_ = cudaGetDevice(&current) == cudaSuccess;
  previous_ = current;
  if (ok_ && current != id) {
    ok_ = cudaSetDevice(id) == cudaSuccess;
    changed_ = ok_;
  }
}

CudaDeviceGuard::~CudaDeviceGuard() {
  if (changed_) cudaSetDevice(previous_);
}

}  // namespace tilefold
