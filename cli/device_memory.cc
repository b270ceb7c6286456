// Memory, copies and clocks of the device that a command runs on.
#include "cli/device_memory.h"

#include <cstring>
#include <new>
#include <utility>

#include "cli/failure.h"

namespace tilefold::cli {
namespace {

constexpr std::align_val_t kAlignment{256};

bool on_cuda(Device device) { return device.type == kDLCUDA; }

}  // namespace

DeviceMemory::DeviceMemory(Device device, size_t bytes) : device_(device), size_bytes_(bytes) {
  // At least one byte: a tensor without elements still has an address.
  const size_t allocated = bytes > 0 ? bytes : 1;
  data_ = static_cast<std::byte*>(on_cuda(device) ? cuda::allocate(device.id, allocated)
                                                  : ::operator new(allocated, kAlignment));
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  if (on_cuda(device_)) {
    cuda::deallocate(device_.id, data_);
  } else {
    ::operator delete(data_, kAlignment);
  }
}

void DeviceMemory::swap(DeviceMemory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
}

void DeviceMemory::upload(std::span<const std::byte> bytes) {
  if (on_cuda(device_)) {
    cuda::copy_to_device(device_.id, data_, bytes.data(), bytes.size());
  } else if (!bytes.empty()) {
    std::memcpy(data_, bytes.data(), bytes.size());
  }
}

void DeviceMemory::download(std::span<std::byte> bytes) const {
  if (on_cuda(device_)) {
    cuda::copy_to_host(device_.id, bytes.data(), data_, bytes.size());
  } else if (!bytes.empty()) {
    std::memcpy(bytes.data(), data_, bytes.size());
  }
}

Workspace make_workspace(Device device) {
  if (!on_cuda(device)) return Workspace();
  return Workspace(
      device, [device](size_t bytes) { return cuda::allocate(device.id, bytes); },
      [device](void* memory) { cuda::deallocate(device.id, memory); });
}

void synchronize(Device device) {
  if (on_cuda(device)) cuda::synchronize(device.id);
}

Stopwatch::Stopwatch(Device device) : device_(device) {
  if (!on_cuda(device)) return;
  for (void*& event : events_) event = cuda::create_event(device.id);
}

Stopwatch::~Stopwatch() {
  for (void* event : events_) {
    if (event != nullptr) cuda::destroy_event(device_.id, event);
  }
}

void Stopwatch::start() {
  if (on_cuda(device_)) {
    cuda::record_event(device_.id, events_[0]);
  } else {
    started_ = std::chrono::steady_clock::now();
  }
}

double Stopwatch::stop_ms() {
  if (on_cuda(device_)) {
    cuda::record_event(device_.id, events_[1]);
    return cuda::elapsed_ms(device_.id, events_[0], events_[1]);
  }
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - started_;
  return elapsed.count();
}

#ifndef TILEFOLD_CLI_WITH_CUDA

namespace cuda {
namespace {

[[noreturn]] void refuse() {
  fail(ExitCode::kLibraryRefused, "this build of tilefold has no CUDA; accepted: --device cpu");
}

}  // namespace

bool available() { return false; }
void* allocate(int, size_t) { refuse(); }
void deallocate(int, void*) noexcept {}
void copy_to_device(int, void*, const void*, size_t) { refuse(); }
void copy_to_host(int, void*, const void*, size_t) { refuse(); }
void synchronize(int) { refuse(); }
void* create_event(int) { refuse(); }
void destroy_event(int, void*) noexcept {}
void record_event(int, void*) { refuse(); }
double elapsed_ms(int, void*, void*) { refuse(); }

}  // namespace cuda

#endif  // TILEFOLD_CLI_WITH_CUDA

}  // namespace tilefold::cli
