// Arguments of the C interface -> ForwardProblem: every refusal that does not depend on a kernel is
// made here.
#include "core/validate.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "core/growth.h"

namespace tilefold {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
  }
  return "unknown";
}

namespace {

using Int128 = __int128;

constexpr int64_t kMaxExtent = int64_t{1} << 40;  // sums of extents stay far from overflow

// A tensor argument under validation: its name in sentences, and its axes' names.
struct Argument {
  const char* name;
  const DLTensor* tensor;
  int rank;
  const char* axes[4];
};

struct ByteRange {
  // [begin, end) as integers; empty when the tensor has no element.
  Int128 begin = 0;
  Int128 end = 0;
};

// "[2, 3, 4, 5]" into a caller's buffer.
struct ShapeText {
  char text[112];
  explicit ShapeText(const DLTensor& tensor) {
    size_t at = std::snprintf(text, sizeof(text), "[");
    for (int axis = 0; axis < tensor.ndim && at < sizeof(text) - 24; ++axis) {
      at += std::snprintf(text + at, sizeof(text) - at, "%s%" PRId64, axis ? ", " : "",
                          tensor.shape[axis]);
    }
    std::snprintf(text + at, sizeof(text) - at, "]");
  }
};

const char* device_type_name(int32_t type) {
  switch (type) {
    case kDLCPU: return "CPU";
    case kDLCUDA: return "CUDA";
    case kDLCUDAHost: return "CUDA pinned host";
    case kDLCUDAManaged: return "CUDA managed";
    default: return "unknown";
  }
}

// What a DLPack type code is called before its bits; null for one that has no name here.
const char* kind_of_dtype(int code) {
  switch (code) {
    case kDLInt: return "int";
    case kDLUInt: return "uint";
    case kDLFloat: return "float";
    case kDLBfloat: return "bfloat";
    case kDLComplex: return "complex";
    default: return nullptr;
  }
}

tilefold_status invalid_dtype(const Argument& argument, const char* accepted) {
  const DLDataType& dtype = argument.tensor->dtype;
  const char* kind = kind_of_dtype(dtype.code);
  constexpr int kBool = 6;  // kDLBool, which the oldest DLPack headers built with do not have
  if (dtype.code == kBool && dtype.lanes == 1) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT, "%s: its dtype is bool; accepted: %s",
                argument.name, accepted);
  }
  if (kind != nullptr && dtype.lanes == 1) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT, "%s: its dtype is %s%d; accepted: %s",
                argument.name, kind, dtype.bits, accepted);
  }
  return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
              "%s: its dtype is (code %d, bits %d, lanes %d); accepted: %s", argument.name,
              dtype.code, dtype.bits, dtype.lanes, accepted);
}

bool read_dtype(const DLDataType& dtype, DType* out) {
  if (dtype.lanes != 1) return false;
  if (dtype.code == kDLFloat && dtype.bits == 32) return *out = DType::kFloat32, true;
  if (dtype.code == kDLFloat && dtype.bits == 16) return *out = DType::kFloat16, true;
  if (dtype.code == kDLBfloat && dtype.bits == 16) return *out = DType::kBFloat16, true;
  return false;
}

// Rank, extents, data pointer: what is wrong in the tensor by itself.
tilefold_status check_shape(const Argument& argument) {
  const DLTensor* tensor = argument.tensor;
  if (tensor == nullptr) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT, "%s is NULL; a DLTensor is needed", argument.name);
  }
  if (tensor->ndim != argument.rank) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "%s: its rank is %d; accepted: %d, as [%s, %s, %s%s%s]", argument.name,
                tensor->ndim, argument.rank, argument.axes[0], argument.axes[1], argument.axes[2],
                argument.rank == 4 ? ", " : "", argument.rank == 4 ? argument.axes[3] : "");
  }
  if (tensor->shape == nullptr) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "%s: its shape is NULL; an array of %d extents is needed", argument.name,
                argument.rank);
  }
  bool empty = false;
  for (int axis = 0; axis < argument.rank; ++axis) {
    if (tensor->shape[axis] < 0) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "%s: the extent of axis %d (%s) is %" PRId64 "; it must be 0 or more",
                  argument.name, axis, argument.axes[axis], tensor->shape[axis]);
    }
    if (tensor->shape[axis] > kMaxExtent) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "%s: the extent of axis %d (%s) is %" PRId64 "; accepted: 0 to %" PRId64,
                  argument.name, axis, argument.axes[axis], tensor->shape[axis], kMaxExtent);
    }
    empty = empty || tensor->shape[axis] == 0;
  }
  if (tensor->data == nullptr && !empty) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "%s: its data pointer is NULL, but it has elements (shape %s); NULL is accepted "
                "for an empty tensor alone",
                argument.name, ShapeText(*tensor).text);
  }
  return TILEFOLD_OK;
}

// Normalised strides (0 on axes of length <= 1), data pointer and byte range.
tilefold_status read_layout(const Argument& argument, int64_t element_bytes,
                            std::array<int64_t, 4>* strides, void** data, ByteRange* range) {
  const DLTensor& tensor = *argument.tensor;
  std::array<Int128, 4> stride = {0, 0, 0, 0};
  Int128 contiguous = 1;
  bool empty = false;
  for (int axis = argument.rank - 1; axis >= 0; --axis) {
    const int64_t extent = tensor.shape[axis];
    empty = empty || extent == 0;
    if (extent > 1) stride[axis] = tensor.strides ? Int128(tensor.strides[axis]) : contiguous;
    contiguous *= std::max<int64_t>(extent, 1);
    if (contiguous > std::numeric_limits<int64_t>::max()) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "%s: shape %s has more elements than a signed 64-bit number can count",
                  argument.name, ShapeText(tensor).text);
    }
  }
  Int128 lowest = 0;
  Int128 highest = 0;
  if (!empty) {
    for (int axis = 0; axis < argument.rank; ++axis) {
      const Int128 reach = stride[axis] * (tensor.shape[axis] - 1);
      (reach < 0 ? lowest : highest) += reach;
    }
  }
  constexpr Int128 kMaxOffset = std::numeric_limits<int64_t>::max() / 16;
  if (highest > kMaxOffset || lowest < -kMaxOffset) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "%s: its strides reach beyond the address space (shape %s); element offsets must "
                "stay within +-%" PRId64,
                argument.name, ShapeText(tensor).text, static_cast<int64_t>(kMaxOffset));
  }
  // A tensor without elements has no use for strides; whatever the caller left there must not enter
  // arithmetic.
  for (int axis = 0; axis < 4; ++axis) {
    (*strides)[axis] = empty ? 0 : static_cast<int64_t>(stride[axis]);
  }
  uintptr_t base = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(tensor.data), tensor.byte_offset, &base)) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "%s: its byte_offset is %" PRIu64
                "; data + byte_offset must be an address, at most 0x%" PRIxPTR,
                argument.name, tensor.byte_offset, std::numeric_limits<uintptr_t>::max());
  }
  *data = reinterpret_cast<void*>(base);
  if (!empty) {
    if (base % element_bytes != 0) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "%s: its address 0x%" PRIxPTR
                  " (data + byte_offset) is not a multiple of the "
                  "element size, %" PRId64 " bytes",
                  argument.name, base, element_bytes);
    }
    range->begin = Int128(base) + lowest * element_bytes;
    range->end = Int128(base) + (highest + 1) * element_bytes;
  }
  return TILEFOLD_OK;
}

// Outputs: no two elements may share memory. Sorted by |stride|, each stride must clear all the
// axes below it.
tilefold_status check_no_self_overlap(const Argument& argument,
                                      const std::array<int64_t, 4>& strides) {
  std::array<int, 4> order = {0, 1, 2, 3};
  for (int i = 1; i < argument.rank; ++i) {
    for (int j = i; j > 0 && std::abs(strides[order[j]]) < std::abs(strides[order[j - 1]]); --j) {
      std::swap(order[j], order[j - 1]);
    }
  }
  for (int axis = 0; axis < argument.rank; ++axis) {
    if (argument.tensor->shape[axis] == 0) return TILEFOLD_OK;
  }
  Int128 reach = 0;
  for (int i = 0; i < argument.rank; ++i) {
    const int axis = order[i];
    if (argument.tensor->shape[axis] <= 1) continue;
    if (std::abs(strides[axis]) <= reach) {
      return fail(
          TILEFOLD_ERROR_INVALID_ARGUMENT,
          "%s: its strides do not nest (axis %d (%s), stride %" PRId64
          " elements, shape %s), so that "
          "elements may share memory; an output's strides must each be larger than all that the "
          "smaller ones reach",
          argument.name, axis, argument.axes[axis], strides[axis],
          ShapeText(*argument.tensor).text);
    }
    reach += Int128(std::abs(strides[axis])) * (argument.tensor->shape[axis] - 1);
  }
  return TILEFOLD_OK;
}

tilefold_status check_disjoint(const char* output, const ByteRange& a, const char* other,
                               const ByteRange& b) {
  if (a.begin < b.end && b.begin < a.end) {
    return fail(
        TILEFOLD_ERROR_INVALID_ARGUMENT,
        "%s: the span of its bytes, first to last, overlaps that of %s; an output needs a span of "
        "its own",
        output, other);
  }
  return TILEFOLD_OK;
}

tilefold_status check_extent(const char* name, const char* axis, int64_t value, const char* of,
                             int64_t expected) {
  if (value == expected) return TILEFOLD_OK;
  return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
              "%s: its %s is %" PRId64 ", but that of %s is %" PRId64 "; they must be equal", name,
              axis, value, of, expected);
}

// causal and window -> the two diagonals of ForwardProblem.
void set_mask(const tilefold_options& options, ForwardProblem* problem) {
  const int64_t nq = problem->seqlen_q;
  const int64_t nk = problem->seqlen_k;
  const int64_t bottom_right = nk - nq;
  // Sums of an extent and a window may pass int64: saturate first. Beyond +-(nq + nk) nothing
  // changes.
  const auto clamp_window = [&](int64_t window) { return std::min(window, nq + nk); };
  const bool window_bottom_right = options.window_align == TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT ||
                                   (options.window_align == TILEFOLD_WINDOW_ALIGN_AUTO &&
                                    options.causal == TILEFOLD_CAUSAL_BOTTOM_RIGHT);
  const int64_t centre = window_bottom_right ? bottom_right : 0;
  int64_t left = -nq;
  int64_t right = nk;
  if (options.window_left >= 0) left = centre - clamp_window(options.window_left);
  if (options.window_right >= 0) right = centre + clamp_window(options.window_right);
  if (options.causal == TILEFOLD_CAUSAL_TOP_LEFT) right = std::min<int64_t>(right, 0);
  if (options.causal == TILEFOLD_CAUSAL_BOTTOM_RIGHT) right = std::min(right, bottom_right);
  // A side that hides nothing is written in one way only.
  problem->diagonal_left = left <= 1 - nq ? -nq : std::min(left, nk);
  problem->diagonal_right = right >= nk - 1 ? nk : std::max(right, -nq);
}

tilefold_status check_options(const tilefold_options& options) {
  if (options.causal < 0 || options.causal > TILEFOLD_CAUSAL_BOTTOM_RIGHT) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "options.causal is %d; accepted: 0 (none), 1 (top-left), 2 (bottom-right)",
                options.causal);
  }
  if (options.has_scale != 0 && options.has_scale != 1) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT, "options.has_scale is %d; accepted: 0, 1",
                options.has_scale);
  }
  if (options.has_scale == 1 && !std::isfinite(options.scale)) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT, "options.scale is %g; accepted: any finite number",
                static_cast<double>(options.scale));
  }
  if (options.has_scale == 0 && options.scale != 0.0f) {
    return fail(
        TILEFOLD_ERROR_INVALID_ARGUMENT,
        "options.scale is %g while options.has_scale is 0; set has_scale to 1 to use it, or "
        "leave scale at 0",
        static_cast<double>(options.scale));
  }
  if (options.empty_row_lse < 0 ||
      options.empty_row_lse > TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "options.empty_row_lse is %d; accepted: 0 (+inf), 1 (-inf)", options.empty_row_lse);
  }
  if (options.window_left < -1) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "options.window_left is %" PRId64 "; accepted: -1 (unbounded), or 0 and more",
                options.window_left);
  }
  if (options.window_right < -1) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "options.window_right is %" PRId64 "; accepted: -1 (unbounded), or 0 and more",
                options.window_right);
  }
  if (options.window_align < 0 || options.window_align > TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "options.window_align is %d; accepted: 0 (auto), 1 (top-left), 2 (bottom-right)",
                options.window_align);
  }
  if (options.num_threads < 0) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "options.num_threads is %d; accepted: 0 (as OpenMP decides), or 1 and more",
                options.num_threads);
  }
  return TILEFOLD_OK;
}

tilefold_status check_devices(const Argument* arguments, int count, ForwardProblem* problem) {
  const DLDevice& device = arguments[0].tensor->device;
  switch (static_cast<int32_t>(device.device_type)) {
    case kDLCPU:
    case kDLCUDAHost: problem->device_type = DeviceType::kCpu; break;
    case kDLCUDA:
    case kDLCUDAManaged: problem->device_type = DeviceType::kCuda; break;
    default:
      return fail(
          TILEFOLD_ERROR_INVALID_ARGUMENT,
          "%s: its device type is %d; accepted: 1 (CPU), 2 (CUDA), 3 (CUDA pinned host), 13 "
          "(CUDA managed)",
          arguments[0].name, static_cast<int>(device.device_type));
  }
  problem->device_id = problem->device_type == DeviceType::kCuda ? device.device_id : 0;
  for (int i = 1; i < count; ++i) {
    const DLDevice& other = arguments[i].tensor->device;
    if (other.device_type != device.device_type || other.device_id != device.device_id) {
      return fail(
          TILEFOLD_ERROR_INVALID_ARGUMENT,
          "%s: it is on %s device %d (device type %d), but q is on %s device %d; all tensors "
          "must be on one device",
          arguments[i].name, device_type_name(other.device_type), other.device_id,
          static_cast<int>(other.device_type), device_type_name(device.device_type),
          device.device_id);
    }
  }
  return TILEFOLD_OK;
}

Strides to_strides(const std::array<int64_t, 4>& s) { return {s[0], s[1], s[2], s[3]}; }

}  // namespace

tilefold_status read_options(const tilefold_options* options, tilefold_options* complete) {
  tilefold_options_init(complete, sizeof(*complete));
  if (options == nullptr) return TILEFOLD_OK;
  const size_t given = options->struct_bytes;
  if (given < kFirstOptionsBytes) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "options.struct_bytes is %zu; it must be sizeof(tilefold_options), at least %zu: "
                "call tilefold_options_init() first",
                given, kFirstOptionsBytes);
  }
  // A caller of a later version may set members that this one does not know: they must be zero.
  if (given > sizeof(*complete)) {
    if (given > kLargestOptionsBytes) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "options.struct_bytes is %zu; it must be sizeof(tilefold_options), at most %zu: "
                  "call tilefold_options_init() first",
                  given, kLargestOptionsBytes);
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(options);
    for (size_t i = sizeof(*complete); i < given; ++i) {
      if (bytes[i] != 0) {
        return fail(TILEFOLD_ERROR_UNSUPPORTED,
                    "options: byte %zu is set, which belongs to a later version; this is version "
                    "%s, whose options have %zu bytes",
                    i, TILEFOLD_VERSION_STRING, sizeof(*complete));
      }
    }
  }
  read_known(options, given, complete);
  return check_options(*complete);
}

tilefold_status validate_forward(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                 const DLTensor* o, const DLTensor* lse,
                                 const tilefold_options* options, ForwardProblem* problem) {
  *problem = ForwardProblem{};
  const Argument arguments[] = {
      {"q", q, 4, {"batch", "heads", "Nq", "D"}},     {"k", k, 4, {"batch", "kv heads", "Nk", "D"}},
      {"v", v, 4, {"batch", "kv heads", "Nk", "Dv"}}, {"o", o, 4, {"batch", "heads", "Nq", "Dv"}},
      {"lse", lse, 3, {"batch", "heads", "Nq", ""}},
  };
  const int count = lse == nullptr ? 4 : 5;
  for (int i = 0; i < count; ++i) {
    if (auto status = check_shape(arguments[i])) return status;
  }

  // dtypes
  if (!read_dtype(q->dtype, &problem->dtype)) {
    return invalid_dtype(arguments[0], "float16, bfloat16, float32");
  }
  for (int i = 1; i < 4; ++i) {
    DType dtype;
    if (!read_dtype(arguments[i].tensor->dtype, &dtype)) {
      return invalid_dtype(arguments[i], "float16, bfloat16, float32");
    }
    if (dtype != problem->dtype) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "%s: its dtype is %s, but that of q is %s; q, k, v and o must have one dtype",
                  arguments[i].name, dtype_name(dtype), dtype_name(problem->dtype));
    }
  }
  if (lse != nullptr) {
    DType dtype;
    if (!read_dtype(lse->dtype, &dtype) || dtype != DType::kFloat32) {
      return invalid_dtype(arguments[4], "float32");
    }
  }

  // shapes
  problem->batch = q->shape[0];
  problem->num_heads = q->shape[1];
  problem->seqlen_q = q->shape[2];
  problem->head_dim = q->shape[3];
  problem->num_heads_kv = k->shape[1];
  problem->seqlen_k = k->shape[2];
  problem->head_dim_v = v->shape[3];
  const struct {
    const char* name;
    const char* axis;
    int64_t value;
    const char* of;
    int64_t expected;
  } extents[] = {
      {"k", "batch", k->shape[0], "q", q->shape[0]},
      {"v", "batch", v->shape[0], "q", q->shape[0]},
      {"o", "batch", o->shape[0], "q", q->shape[0]},
      {"k", "head dim", k->shape[3], "q", q->shape[3]},
      {"v", "number of heads", v->shape[1], "k", k->shape[1]},
      {"v", "length", v->shape[2], "k", k->shape[2]},
      {"o", "number of heads", o->shape[1], "q", q->shape[1]},
      {"o", "length", o->shape[2], "q", q->shape[2]},
      {"o", "head dim", o->shape[3], "v", v->shape[3]},
  };
  for (const auto& e : extents) {
    if (auto status = check_extent(e.name, e.axis, e.value, e.of, e.expected)) return status;
  }
  if (lse != nullptr) {
    const char* axes[] = {"batch", "number of heads", "length"};
    for (int axis = 0; axis < 3; ++axis) {
      if (auto status = check_extent("lse", axes[axis], lse->shape[axis], "q", q->shape[axis])) {
        return status;
      }
    }
  }
  if (problem->head_dim == 0) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT, "q: its head dim (D) is 0; accepted: 1 and more");
  }
  if (problem->head_dim_v == 0) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT, "v: its head dim (Dv) is 0; accepted: 1 and more");
  }
  if (problem->num_heads != 0 &&
      (problem->num_heads_kv == 0 || problem->num_heads % problem->num_heads_kv != 0)) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "q: its number of heads is %" PRId64
                ", which is not a multiple of that of k and v, "
                "%" PRId64,
                problem->num_heads, problem->num_heads_kv);
  }
  if (auto status = check_devices(arguments, count, problem)) return status;

  // layouts
  std::array<std::array<int64_t, 4>, 5> strides{};
  std::array<void*, 5> data{};
  std::array<ByteRange, 5> ranges{};
  for (int i = 0; i < count; ++i) {
    const int64_t element_bytes = i == 4 ? 4 : dtype_bytes(problem->dtype);
    if (auto status = read_layout(arguments[i], element_bytes, &strides[i], &data[i], &ranges[i])) {
      return status;
    }
  }
  for (int i = 3; i < count; ++i) {
    if (auto status = check_no_self_overlap(arguments[i], strides[i])) return status;
    for (int j = 0; j < i; ++j) {
      if (auto status =
              check_disjoint(arguments[i].name, ranges[i], arguments[j].name, ranges[j])) {
        return status;
      }
    }
  }
  problem->q = data[0];
  problem->k = data[1];
  problem->v = data[2];
  problem->o = data[3];
  problem->lse = static_cast<float*>(data[4]);
  problem->q_strides = to_strides(strides[0]);
  problem->k_strides = to_strides(strides[1]);
  problem->v_strides = to_strides(strides[2]);
  problem->o_strides = to_strides(strides[3]);
  problem->lse_strides = to_strides(strides[4]);

  // options
  tilefold_options complete;
  if (auto status = read_options(options, &complete)) return status;
  problem->scale =
      complete.has_scale
          ? complete.scale
          : static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem->head_dim)));
  problem->empty_row_lse = complete.empty_row_lse == TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY
                               ? std::numeric_limits<float>::infinity()
                               : -std::numeric_limits<float>::infinity();
  problem->num_threads = complete.num_threads;
  set_mask(complete, problem);
  return TILEFOLD_OK;
}

}  // namespace tilefold
