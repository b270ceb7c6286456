// The CPU row of the kernel table, and the CPU as a device.
#include <cstdio>
#include <thread>

#include "core/kernel.h"
#include "cpu/forward.h"
#include "cpu/processor.h"

namespace tilefold {
namespace {

int preference(const KernelRow&, const ForwardProblem&, const DeviceProperties&, Reason*) {
  return 1;
}

tilefold_status launch(const KernelRow&, const ForwardProblem& problem, const DeviceProperties&,
                       void*, void*) {
  return cpu::forward(problem);
}

constexpr KernelRow kRows[] = {{.name = "cpu",
                                .backend = "cpu",
                                .dtypes = "float32,float16,bfloat16",
                                .preference = preference,
                                .launch = launch}};

}  // namespace

std::span<const KernelRow> cpu_kernels() { return kRows; }

const DeviceProperties& cpu_device() {
  static const DeviceProperties properties = [] {
    const cpu::Processor& processor = cpu::processor();
    DeviceProperties p;
    p.num_multiprocessors = static_cast<int32_t>(std::thread::hardware_concurrency());
    p.l2_bytes = processor.last_level_bytes;
    p.usable = true;
    std::snprintf(p.name, sizeof(p.name), "%s", processor.name);
    std::snprintf(p.note, sizeof(p.note), "%s", cpu::targets_in_use());
    return p;
  }();
  return properties;
}

}  // namespace tilefold
