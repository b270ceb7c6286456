// Arrays of any Python library seen as DLTensors, and new arrays of the same library.
#pragma once

#include <Python.h>
#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

#include "dlpack_exchange.h"

namespace tilefold::python {

namespace nb = nanobind;

// PyTorch's own C++ functions behind three questions that every call asks it; null where this
// PyTorch has none of that name.
//
// PERF: through their Python wrappers the three take 0.15 to 0.3 us.
struct TorchState {
  bool (*grad_mode)() = nullptr;            // at::GradMode::is_enabled()
  int64_t (*num_modes)() = nullptr;         // c10::impl::TorchDispatchModeTLS::stack_len()
  const void* const* (*trace)() = nullptr;  // torch::jit::tracer::getTracingState(): a reference
                                            // to a shared_ptr, whose first word is the pointer
};

// What is known of one array type. Made by tilefold._arrays.adapt(type) the first time that the
// type is met, and kept for the life of the process.
struct Adapter {
  nb::object library;             // "numpy", "torch", ...: arrays of one call must agree on it
  nb::object export_dlpack;       // array, stream -> DLPack capsule; not called when `api` is there
  nb::object reread;              // name, array -> array to export in its place, or an exception
  nb::object empty_like;          // array -> array of its shape, dtype, device, order of axes
  nb::object empty;               // array, shape -> array of its dtype and device
  nb::object empty_float32;       // array, shape -> float32 array on its device
  nb::object current_stream;      // array -> int, the CUDA stream that the library works on
  nb::object redirect;            // called with forward()'s arguments in its place, or None
  nb::object empty_strided_cuda;  // shape, strides, dtype -> array on the current device, or None
  nb::object current_cuda_device;  // () -> int; None where there is one device only
  nb::object float16;              // dtypes, for empty_strided_cuda
  nb::object bfloat16;
  nb::object float32;
  const ExchangeApi* api = nullptr;
  bool watches_gradients = false;  // arrays have `requires_grad`
  nb::object gradients_on;         // () -> bool
  TorchState torch_state;          // the same questions, and two more below, without Python
  // Of PyTorch's plain tensors, whose calls do not pass its dispatcher; None for others.
  nb::object num_modes;          // () -> int, dispatch modes that want to see every operator
  nb::object is_tracing;         // () -> bool, whether torch.jit.trace is recording
  nb::object intercepted;        // called with forward()'s arguments where one of them is on
  nb::object forward_ad;         // dict of a module whose _current_level is below 0 when it is off
  nb::object refuse_tangents;    // arrays of a call -> None, or an exception
  nb::object in_inference_mode;  // () -> bool, where gradients are watched
  nb::object wrote;              // called with a caller's array that was written, or None
};

// The adapter of `array`'s type. Throws TypeError (naming the argument) for what is not an array.
const Adapter& adapter_of(nb::handle array, const char* name);

// Python's truth of an object; an exception where it has none.
bool is_true(nb::handle value);

enum class Layout { kHeadsFirst, kRowsFirst };  // [B, H, N, D] or [B, N, H, D]

// An array as the library takes it: axes in the order [B, H, N, D] whatever the layout.
class View {
 public:
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  // `stream` is what DLPack's __dlpack__ takes, or None.
  void read(const Adapter& adapter, nb::handle array, const char* name, Layout layout,
            nb::handle stream);
  const DLTensor* tensor() const { return &tensor_; }
  DLTensor* tensor() { return &tensor_; }
  bool read_only() const { return read_only_; }
  // Whether elements are missing: some wrappers of PyTorch are exported without their memory.
  bool is_hollow() const;
  bool is_cuda() const {
    return tensor_.device.device_type == kDLCUDA || tensor_.device.device_type == kDLCUDAManaged;
  }

 private:
  void from_capsule(PyObject* capsule, const char* name);
  void take_axes(Layout layout);
  static void refuse_negative_view(nb::handle array, const char* name);

  static constexpr int kMaxRank = 4;
  DLTensor tensor_ = {};
  int64_t shape_[kMaxRank] = {};
  int64_t strides_[kMaxRank] = {};
  nb::object owner_;  // keeps the capsule (and an array made by reread) alive
  nb::object reread_;
  bool read_only_ = false;
};

}  // namespace tilefold::python
