// The CUDA devices of a build without CUDA: none.
#include "core/kernel.h"

namespace tilefold {

std::span<const KernelRow> sm80_kernels() { return {}; }
std::span<const KernelRow> sm90_kernels() { return {}; }
std::span<const KernelRow> generic_kernels() { return {}; }

int32_t cuda_device_count() { return 0; }

const DeviceProperties* cuda_device(int32_t id, Reason* reason) {
  reason->set(
      "it is on CUDA device %d, but this build of tilefold has no CUDA back end; build with nvcc "
      "(-DTILEFOLD_CUDA=ON)",
      id);
  return nullptr;
}

CudaDeviceGuard::CudaDeviceGuard(int32_t) { ok_ = false; }
CudaDeviceGuard::~CudaDeviceGuard() = default;

}  // namespace tilefold
