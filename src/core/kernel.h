// The table of kernels that dispatch walks: what a back end registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/problem.h"
#include "core/status.h"

namespace tilefold {

// What dispatch knows of the device that a problem lies on. For the CPU only `type` is meaningful.
struct DeviceProperties {
  DeviceType type = DeviceType::kCpu;
  int32_t id = 0;
  int32_t compute_capability = 0;  // 10 * major + minor
  int32_t num_multiprocessors = 0;
  int64_t shared_memory_bytes = 0;  // most that one CTA may opt in to
  int64_t l2_bytes = 0;
  int32_t driver_version = 0;  // as cudaDriverGetVersion gives it, e.g. 13000
  char name[128] = "";
  bool usable = false;
  char note[256] = "";
};

// One compiled kernel.
struct KernelRow {
  char name[64] = "";
  const char* backend = "";
  const char* dtypes = "";
  int32_t head_dim = 0;    // largest D of the tile, 0 = any
  int32_t head_dim_v = 0;  // largest Dv of the tile, 0 = any
  int32_t block_m = 0;
  int32_t block_n = 0;
  int32_t num_stages = 0;
  int32_t num_threads = 0;
  int32_t shared_memory_bytes = 0;

  // How much this row is wanted for the problem on the device: > 0 eligible (the highest wins, the
  // earlier row on a tie), 0 not eligible, with the reason written. Cheap, no allocation, no device
  // calls; and the same for problems that differ in multiples of 256 bytes between addresses alone:
  // dispatch remembers its last answer.
  int (*preference)(const KernelRow& row, const ForwardProblem& problem,
                    const DeviceProperties& device, Reason* reason) = nullptr;

  // Bytes of workspace it needs for the problem (0 if null).
  size_t (*workspace_bytes)(const KernelRow& row, const ForwardProblem& problem,
                            const DeviceProperties& device) = nullptr;

  // Runs or enqueues it. The device of the problem is current. The workspace is at least
  // workspace_bytes() large and 256-byte aligned. Never called for a problem that writes nothing;
  // seqlen_k may be 0.
  tilefold_status (*launch)(const KernelRow& row, const ForwardProblem& problem,
                            const DeviceProperties& device, void* workspace,
                            void* stream) = nullptr;

  // Whatever the back end needs to find its own code (a config, a function pointer).
  const void* backend_data = nullptr;
};

// All rows of this build, in order of priority: sm90, sm80, generic, cpu.
std::span<const KernelRow> kernel_table();

// Each back end's rows (an empty span where the build leaves it out).
std::span<const KernelRow> cpu_kernels();
std::span<const KernelRow> sm80_kernels();
std::span<const KernelRow> sm90_kernels();
std::span<const KernelRow> generic_kernels();

// CUDA devices as the runtime shows them; defined by src/cuda/device.cc, or by src/core/no_cuda.cc
// without CUDA.
int32_t cuda_device_count();
// The properties of CUDA device `id` (read once, then cached); null if there is no such device,
// with the reason.
const DeviceProperties* cuda_device(int32_t id, Reason* reason);
// Makes a CUDA device current for its lifetime and puts the old one back.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int32_t id);
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;
  bool ok() const { return ok_; }

 private:
  [[maybe_unused]] int32_t previous_ = 0;  // neither is used without CUDA
  [[maybe_unused]] bool changed_ = false;
  bool ok_ = true;
};

// The CPU as a device: its name, threads, and the SIMD target in use as the note.
const DeviceProperties& cpu_device();

}  // namespace tilefold
