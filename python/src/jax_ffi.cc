// The XLA handler that tilefold.jax.attention compiles to.
#include "jax_ffi.h"

#include <tilefold/tilefold.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>

#include "scratch.h"

namespace tilefold::python {
namespace {

constexpr size_t kXlaAlignment = 16;  // the most that XLA promises for a handler's scratch

xla::Error* error(const xla::CallFrame& frame, xla::ErrorCode code, const char* message) {
  xla::ErrorCreate create = {sizeof(create), nullptr, message, code};
  return frame.api->error_create(&create);
}

xla::Error* error(const xla::CallFrame& frame, tilefold_status status) {
  xla::ErrorCode code = xla::ErrorCode::kInternal;
  switch (status) {
    case TILEFOLD_ERROR_INVALID_ARGUMENT: code = xla::ErrorCode::kInvalidArgument; break;
    case TILEFOLD_ERROR_UNSUPPORTED: code = xla::ErrorCode::kUnimplemented; break;
    case TILEFOLD_ERROR_DEVICE: code = xla::ErrorCode::kFailedPrecondition; break;
    case TILEFOLD_ERROR_OUT_OF_MEMORY: code = xla::ErrorCode::kResourceExhausted; break;
    default: break;
  }
  return error(frame, code, tilefold_last_error());
}

// XLA asks a handler for its interface's version before it calls it. What the handler reads has
// kept its place through all of 0.x, so the answer is the version that asks.
bool answers_metadata(xla::CallFrame* frame) {
  for (xla::Extension* extension = frame->extensions; extension != nullptr;
       extension = extension->next) {
    if (extension->type != xla::kMetadataExtension) continue;
    xla::Metadata* metadata = reinterpret_cast<xla::MetadataExtension*>(extension)->metadata;
    metadata->api_version.major = 0;
    metadata->api_version.minor = frame->api != nullptr ? frame->api->api_version.minor : 0;
    metadata->traits = 0;
    return true;
  }
  return false;
}

struct Tensor {
  DLTensor tensor = {};
  std::array<int64_t, 4> shape = {};
  std::array<int64_t, 4> strides = {};

  // Folds the leading axes into the batch. `rank` is 4, or 3 for the LSE.
  bool read(const xla::Buffer& buffer, int rank, bool rows_first, DLDevice device) {
    if (buffer.rank < rank) return false;
    const int64_t folded = buffer.rank - rank;
    int64_t batch = 1;
    for (int64_t axis = 0; axis <= folded; ++axis) batch *= buffer.dims[axis];
    shape[0] = batch;
    for (int axis = 1; axis < rank; ++axis) shape[axis] = buffer.dims[folded + axis];
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= std::max<int64_t>(shape[axis], 1);
    }
    if (rank == 4 && rows_first) {
      std::swap(shape[1], shape[2]);
      std::swap(strides[1], strides[2]);
    }
    switch (buffer.dtype) {
      case xla::DataType::kF32: tensor.dtype = {kDLFloat, 32, 1}; break;
      case xla::DataType::kF16: tensor.dtype = {kDLFloat, 16, 1}; break;
      case xla::DataType::kBF16: tensor.dtype = {kDLBfloat, 16, 1}; break;
      default: return false;
    }
    tensor.data = buffer.data;
    tensor.device = device;
    tensor.ndim = rank;
    tensor.shape = shape.data();
    tensor.strides = strides.data();
    return true;
  }
};

// The attributes that tilefold/jax.py passes; all integers are 64-bit.
struct Settings {
  int64_t causal = 0;
  int64_t window_left = -1;
  int64_t window_right = -1;
  int64_t window_align = 0;
  int64_t empty_row_lse = 0;
  int64_t has_scale = 0;
  float scale = 0.0f;
  int64_t num_threads = 0;
  int64_t rows_first = 0;
  char kernel[64] = "";

  bool read(const xla::Attributes& attributes) {
    for (int64_t i = 0; i < attributes.size; ++i) {
      const std::string_view name(attributes.names[i]->data, attributes.names[i]->size);
      if (name == "kernel") {
        const auto* text = static_cast<const xla::ByteSpan*>(attributes.values[i]);
        if (attributes.types[i] != xla::AttributeType::kString || text->size >= sizeof(kernel)) {
          return false;
        }
        std::memcpy(kernel, text->data, text->size);
        kernel[text->size] = '\0';
        continue;
      }
      if (attributes.types[i] != xla::AttributeType::kScalar) return false;
      const auto* scalar = static_cast<const xla::Scalar*>(attributes.values[i]);
      if (name == "scale") {
        if (scalar->dtype != xla::DataType::kF32) return false;
        std::memcpy(&scale, scalar->value, sizeof(scale));
        continue;
      }
      int64_t* field = integer(name);
      if (field == nullptr || scalar->dtype != xla::DataType::kS64) return false;
      std::memcpy(field, scalar->value, sizeof(*field));
    }
    return true;
  }

 private:
  int64_t* integer(std::string_view name) {
    if (name == "causal") return &causal;
    if (name == "window_left") return &window_left;
    if (name == "window_right") return &window_right;
    if (name == "window_align") return &window_align;
    if (name == "empty_row_lse") return &empty_row_lse;
    if (name == "has_scale") return &has_scale;
    if (name == "num_threads") return &num_threads;
    if (name == "rows_first") return &rows_first;
    return nullptr;
  }
};

tilefold_options options_of(const Settings& settings) {
  tilefold_options options;
  tilefold_options_init(&options, sizeof(options));
  options.causal = static_cast<int32_t>(settings.causal);
  options.has_scale = static_cast<int32_t>(settings.has_scale);
  options.scale = settings.has_scale ? settings.scale : 0.0f;
  options.empty_row_lse = static_cast<int32_t>(settings.empty_row_lse);
  options.window_left = settings.window_left;
  options.window_right = settings.window_right;
  options.window_align = static_cast<int32_t>(settings.window_align);
  options.num_threads = static_cast<int32_t>(settings.num_threads);
  options.kernel = settings.kernel[0] != '\0' ? settings.kernel : nullptr;
  return options;
}

xla::Error* run(xla::CallFrame* frame, DLDevice device, void* stream) {
  Settings settings;
  Tensor q, k, v, o, lse;
  const bool has_lse = frame->results.size == 2;
  const bool known = settings.read(frame->attributes);
  const bool rows_first = settings.rows_first != 0;
  if (!known || frame->arguments.size != 3 || frame->results.size < 1 || frame->results.size > 2 ||
      !q.read(*frame->arguments.buffers[0], 4, rows_first, device) ||
      !k.read(*frame->arguments.buffers[1], 4, rows_first, device) ||
      !v.read(*frame->arguments.buffers[2], 4, rows_first, device) ||
      !o.read(*frame->results.buffers[0], 4, rows_first, device) ||
      (has_lse && !lse.read(*frame->results.buffers[1], 3, false, device))) {
    return error(*frame, xla::ErrorCode::kInvalidArgument,
                 "tilefold_attention: the call's buffers or attributes are not those that "
                 "tilefold.jax.attention makes");
  }
  const tilefold_options options = options_of(settings);
  const DLTensor* lse_tensor = has_lse ? &lse.tensor : nullptr;
  tilefold_status status = tilefold_forward(&q.tensor, &k.tensor, &v.tensor, &o.tensor, lse_tensor,
                                            &options, nullptr, 0, stream);
  if (status != TILEFOLD_ERROR_WORKSPACE) {
    return status == TILEFOLD_OK ? nullptr : error(*frame, status);
  }
  size_t bytes = 0;
  status = tilefold_forward_workspace_bytes(&q.tensor, &k.tensor, &v.tensor, &o.tensor, lse_tensor,
                                            &options, &bytes);
  if (status != TILEFOLD_OK) return error(*frame, status);
  bytes = workspace_size(bytes);
  const auto run_with = [&](void* workspace) {
    return tilefold_forward(&q.tensor, &k.tensor, &v.tensor, &o.tensor, lse_tensor, &options,
                            workspace, bytes, stream);
  };
  if (device.device_type == kDLCPU) {
    const HostMemory host = allocate_on_host(bytes);
    if (host == nullptr) {
      return error(*frame, xla::ErrorCode::kResourceExhausted,
                   "host memory for scratch could not be had");
    }
    status = run_with(host.get());
    return status == TILEFOLD_OK ? nullptr : error(*frame, status);
  }
  const size_t taken = bytes + kWorkspaceAlignment;
  xla::DeviceMemoryAllocate allocate = {sizeof(allocate), nullptr, frame->context, taken,
                                        kXlaAlignment,    nullptr};
  if (xla::Error* failed = frame->api->device_memory_allocate(&allocate)) return failed;
  void* workspace = allocate.data;
  size_t room = taken;
  status = run_with(std::align(kWorkspaceAlignment, bytes, workspace, room));
  xla::Error* const refused = status == TILEFOLD_OK ? nullptr : error(*frame, status);
  // Given back in the stream's order: what takes it next runs after the kernels enqueued above.
  xla::DeviceMemoryFree release = {sizeof(release), nullptr, frame->context, taken, allocate.data};
  xla::Error* const not_freed = frame->api->device_memory_free(&release);
  return refused != nullptr ? refused : not_freed;
}

}  // namespace

xla::Error* attention_handler_cpu(xla::CallFrame* frame) {
  if (answers_metadata(frame)) return nullptr;
  return run(frame, DLDevice{kDLCPU, 0}, nullptr);
}

xla::Error* attention_handler_cuda(xla::CallFrame* frame) {
  if (answers_metadata(frame)) return nullptr;
  xla::StreamGet stream = {sizeof(stream), nullptr, frame->context, nullptr};
  if (xla::Error* failed = frame->api->stream_get(&stream)) return failed;
  xla::DeviceOrdinalGet device = {sizeof(device), nullptr, frame->context, 0};
  if (frame->api->struct_bytes < sizeof(xla::Api)) {
    return error(*frame, xla::ErrorCode::kUnimplemented,
                 "tilefold_attention: this jaxlib is too old; 0.9 or later is needed on CUDA");
  }
  if (xla::Error* failed = frame->api->device_ordinal_get(&device)) return failed;
  return run(frame, DLDevice{kDLCUDA, device.ordinal}, stream.stream);
}

}  // namespace tilefold::python
