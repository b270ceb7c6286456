// The generic rows of the kernel table: one per dtype, serving every problem of that dtype.
#include <array>
#include <cstdio>

#include "core/kernel.h"
#include "cuda/generic/forward.h"
#include "cuda/generic/forward_config.h"

namespace tilefold {
namespace {

constexpr int kLastResort = 1;  // below every other row: this one serves what they leave

// What sets the rows apart.
struct Variant {
  DType dtype;
  const char* name;
  cudaError_t (*launch)(const ForwardProblem& problem, cudaStream_t stream);
};
constexpr Variant kVariants[] = {
    {DType::kFloat32, "generic_fp32", &generic::launch_forward<DType::kFloat32>},
    {DType::kFloat16, "generic_fp16", &generic::launch_forward<DType::kFloat16>},
    {DType::kBFloat16, "generic_bf16", &generic::launch_forward<DType::kBFloat16>},
};

int preference(const KernelRow& row, const ForwardProblem& problem, const DeviceProperties&,
               Reason* reason) {
  const auto& variant = *static_cast<const Variant*>(row.backend_data);
  if (problem.dtype == variant.dtype) return kLastResort;
  reason->set("the dtype is %s; this row takes %s", dtype_name(problem.dtype),
              dtype_name(variant.dtype));
  return 0;
}

tilefold_status launch(const KernelRow& row, const ForwardProblem& problem, const DeviceProperties&,
                       void*, void* stream) {
  const auto& variant = *static_cast<const Variant*>(row.backend_data);
  const cudaError_t error = variant.launch(problem, static_cast<cudaStream_t>(stream));
  if (error == cudaSuccess) return TILEFOLD_OK;
  cudaGetLastError();  // ours, and reported here
  return fail(TILEFOLD_ERROR_CUDA, "kernel '%s' could not be launched: %s", row.name,
              cudaGetErrorString(error));
}

KernelRow make_row(const Variant& variant) {
  KernelRow row;
  std::snprintf(row.name, sizeof(row.name), "%s", variant.name);
  row.backend = "generic";
  row.dtypes = dtype_name(variant.dtype);
  row.block_n = generic::ForwardConfig::kBlockN;
  row.num_threads = generic::ForwardConfig::kThreads;
  row.shared_memory_bytes = generic::ForwardConfig{}.smem_bytes();
  row.preference = &preference;
  row.launch = &launch;
  row.backend_data = &variant;
  return row;
}

}  // namespace

std::span<const KernelRow> generic_kernels() {
  static const std::array<KernelRow, 3> rows = {make_row(kVariants[0]), make_row(kVariants[1]),
                                                make_row(kVariants[2])};
  return rows;
}

}  // namespace tilefold
