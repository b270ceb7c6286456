// Encoding of tensor maps through the driver's entry point, looked up at run time: the library does
// not link to libcuda.
#include "cuda/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cinttypes>

namespace tilefold {
namespace {

constexpr int64_t kAlignmentBytes = 16;  // of the base and of every stride
constexpr int64_t kStrideLimitBytes = int64_t{1} << 40;
constexpr int64_t kExtentLimit = int64_t{1} << 31;  // coordinates are signed 32-bit numbers
constexpr int kMostRank = 5;
constexpr int kEntryPointVersion = 12000;  // the CUDA version that brought cuTensorMapEncodeTiled

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &entry, kEntryPointVersion, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
      cudaGetLastError();  // not the caller's error
      entry = nullptr;
    }
    return reinterpret_cast<EncodeTiled>(entry);
  }();
  return function;
}

// From group to group; where there is one, 0, which any operand's one group can have.
int64_t group_stride(const TensorMapOperand& operand) {
  return operand.heads > operand.group ? operand.group * operand.strides.head : 0;
}

}  // namespace

bool tensor_map_takes(const TensorMapOperand& operand, Reason* reason) {
  const char* name = operand.name;
  if (operand.dtype == DType::kFloat32) {
    reason->set("%s: its dtype is float32; takes float16 and bfloat16", name);
    return false;
  }
  if (operand.batch == 0 || operand.heads == 0 || operand.rows == 0 || operand.columns == 0) {
    return true;  // nothing there that a map would have to address
  }
  if (reinterpret_cast<uintptr_t>(operand.data) % kAlignmentBytes != 0) {
    reason->set("%s: its address is %p; takes a multiple of 16 bytes", name, operand.data);
    return false;
  }
  if (operand.columns > 1 && operand.strides.column != 1) {
    reason->set("%s: its last stride is %" PRId64 "; takes 1", name, operand.strides.column);
    return false;
  }
  const struct {
    const char* axis;
    int64_t stride;
    int64_t extent;
  } axes[] = {{"batch", operand.strides.batch, operand.batch},
              {"head", operand.strides.head, operand.heads},
              {"group", group_stride(operand), operand.heads},
              {"row", operand.strides.row, operand.rows},
              {"column", 0, operand.columns}};
  const int64_t element_bytes = dtype_bytes(operand.dtype);
  for (const auto& a : axes) {
    if (a.extent > kExtentLimit - 1) {
      reason->set("%s: its %s extent is %" PRId64 "; takes less than 2^31", name, a.axis, a.extent);
      return false;
    }
    const int64_t stride_bytes = a.stride * element_bytes;  // fits: offsets in bytes do
    if (stride_bytes < 0 || stride_bytes >= kStrideLimitBytes ||
        stride_bytes % kAlignmentBytes != 0) {
      reason->set("%s: its %s stride is %" PRId64 " elements; takes multiples of %" PRId64
                  " from 0 to 2^40 bytes",
                  name, a.axis, a.stride, kAlignmentBytes / element_bytes);
      return false;
    }
  }
  return true;
}

bool encode_tensor_map(const TensorMapOperand& operand, TensorMap* map, Reason* reason) {
  const EncodeTiled encode = encode_tiled();
  if (encode == nullptr) {
    reason->set("the driver has no cuTensorMapEncodeTiled; CUDA 12.0 or later is needed");
    return false;
  }
  const int64_t element_bytes = dtype_bytes(operand.dtype);
  const auto extent = [](int64_t n) { return static_cast<cuuint64_t>(std::max<int64_t>(n, 1)); };
  const auto stride = [&](int64_t elements) {
    return static_cast<cuuint64_t>(elements * element_bytes);
  };
  const bool grouped = operand.group > 0;
  const int rank = grouped ? kMostRank : kMostRank - 1;
  cuuint64_t extents[kMostRank] = {extent(operand.columns), extent(operand.rows),
                                   extent(operand.heads), extent(operand.batch)};
  cuuint64_t strides[kMostRank - 1] = {stride(operand.strides.row), stride(operand.strides.head),
                                       stride(operand.strides.batch)};
  if (grouped) {
    extents[2] = extent(operand.group);
    extents[3] = extent(operand.heads / operand.group);
    extents[4] = extent(operand.batch);
    strides[2] = stride(group_stride(operand));
    strides[3] = stride(operand.strides.batch);
  }
  const cuuint32_t box[kMostRank] = {static_cast<cuuint32_t>(operand.box_columns),
                                     static_cast<cuuint32_t>(operand.box_rows),
                                     static_cast<cuuint32_t>(operand.box_heads), 1, 1};
  const cuuint32_t element_strides[kMostRank] = {1, 1, 1, 1, 1};
  const CUtensorMapDataType type = operand.dtype == DType::kFloat16
                                       ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  // The swizzle spans a row of the box: 128 bytes, or 64 where boxes are that narrow.
  const CUtensorMapSwizzle swizzle = operand.box_columns * element_bytes > 64
                                         ? CU_TENSOR_MAP_SWIZZLE_128B
                                         : CU_TENSOR_MAP_SWIZZLE_64B;
  const CUtensorMapL2promotion promotion = operand.fetch == FetchBytes::k128
                                               ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                               : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  const CUresult result =
      encode(reinterpret_cast<CUtensorMap*>(map), type, static_cast<cuuint32_t>(rank),
             const_cast<void*>(operand.data), extents, strides, box, element_strides,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    reason->set("%s: cuTensorMapEncodeTiled refused it (CUresult %d)", operand.name,
                static_cast<int>(result));
    return false;
  }
  return true;
}

}  // namespace tilefold
