// The CPU rows of the kernel table.
#include "core/kernel.h"

#include <thread>

namespace tilefold {

std::span<const KernelRow> cpu_kernels() { return {}; }

const DeviceProperties& cpu_device() {
  static const DeviceProperties properties = [] {
    DeviceProperties p;
    p.num_multiprocessors = static_cast<int32_t>(std::thread::hardware_concurrency());
    p.usable = true;
    return p;
  }();
  return properties;
}

}  // namespace tilefold
