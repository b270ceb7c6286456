// The generic rows of the kernel table: one per dtype, serving every problem of that dtype.
#include <array>
#include <cstdio>

#include "core/kernel.h"
#include "cuda/generic/forward.h"
#include "cuda/generic/forward_config.h"

namespace tilefold {
namespace {

constexpr int kLastResort = 1;  // below every other row: this one serves what they leave

// A row's dtype, for its preference.
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

int preference(const KernelRow& row, const ForwardProblem& problem, const DeviceProperties&,
               Reason* reason) {
  const DType dtype = *static_cast<const DType*>(row.backend_data);
  if (problem.dtype == dtype) return kLastResort;
  reason->set("the dtype is %s; this row takes %s", dtype_name(problem.dtype), dtype_name(dtype));
  return 0;
}

tilefold_status launch(const KernelRow& row, const ForwardProblem& problem, const DeviceProperties&,
                       void*, void* stream) {
  const cudaError_t error = generic::launch_forward(problem, static_cast<cudaStream_t>(stream));
  if (error == cudaSuccess) return TILEFOLD_OK;
  cudaGetLastError();  // ours, and reported here
  return fail(TILEFOLD_ERROR_CUDA, "kernel '%s' could not be launched: %s", row.name,
              cudaGetErrorString(error));
}

KernelRow make_row(const DType& dtype, const char* short_name) {
  KernelRow row;
  std::snprintf(row.name, sizeof(row.name), "generic_%s", short_name);
  row.backend = "generic";
  row.dtypes = dtype_name(dtype);
  row.block_n = generic::ForwardConfig::kBlockN;
  row.num_threads = generic::ForwardConfig::kThreads;
  row.shared_memory_bytes = generic::ForwardConfig{}.smem_bytes();
  row.preference = &preference;
  row.launch = &launch;
  row.backend_data = &dtype;
  return row;
}

}  // namespace

std::span<const KernelRow> generic_kernels() {
  static const std::array<KernelRow, 3> rows = {
      make_row(kDTypes[0], "fp32"), make_row(kDTypes[1], "fp16"), make_row(kDTypes[2], "bf16")};
  return rows;
}

}  // namespace tilefold
