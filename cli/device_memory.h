// Memory, copies and clocks of the device that a command runs on: the CPU, or CUDA where the build
// has it. The CUDA half is device_memory_cuda.cc, compiled only then.
#pragma once

#include <tilefold/tilefold.hpp>

#include <chrono>
#include <cstddef>
#include <span>

namespace tilefold::cli {

/// Memory of its own on a device, aligned to 256 bytes. \throws Failure (I/O) where there is none
/// left.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device device, size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  /// Copies the host's bytes into it, or its first bytes to the host; waits.
  void upload(std::span<const std::byte> bytes);
  void download(std::span<std::byte> bytes) const;

 private:
  void swap(DeviceMemory& other) noexcept;

  Device device_;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

/// A workspace whose memory is on `device`.
Workspace make_workspace(Device device);

/// Waits until all work of the device is done. \throws Failure with what went wrong in it
void synchronize(Device device);

/// Times work of a device: steady_clock on the CPU, CUDA events on the default stream of a GPU.
class Stopwatch {
 public:
  explicit Stopwatch(Device device);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start();
  /// Waits for the work since start(); its time, ms.
  double stop_ms();

 private:
  Device device_;
  std::chrono::steady_clock::time_point started_;
  void* events_[2] = {nullptr, nullptr};
};

namespace cuda {

// What a build without CUDA answers: the device is refused before any of these is called.
bool available();
void* allocate(int device, size_t bytes);
void deallocate(int device, void* memory) noexcept;
void copy_to_device(int device, void* to, const void* from, size_t bytes);
void copy_to_host(int device, void* to, const void* from, size_t bytes);
void synchronize(int device);
void* create_event(int device);
void destroy_event(int device, void* event) noexcept;
void record_event(int device, void* event);
double elapsed_ms(int device, void* start, void* stop);

}  // namespace cuda
}  // namespace tilefold::cli
