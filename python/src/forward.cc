// tilefold.attention() and tilefold.explain() below their Python signatures.
#include "forward.h"

#include <array>
#include <chrono>
#include <string>

#include "scratch.h"

namespace tilefold::python {
namespace {

std::string kind_of(nb::handle object) {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  const nb::object module = nb::getattr(type, "__module__");
  return std::string(nb::str(module).c_str()) + "." +
         nb::str(nb::getattr(type, "__qualname__")).c_str();
}

const Adapter& adapter_like(const Adapter& first, nb::handle q, nb::handle array,
                            const char* name) {
  const Adapter& adapter = adapter_of(array, name);
  if (&adapter == &first || adapter.library.equal(first.library)) return adapter;
  throw nb::type_error((std::string(name) + " is a " + kind_of(array) + ", but q is a " +
                        kind_of(q) + "; the arrays of a call must be of one library")
                           .c_str());
}

void refuse_gradient(nb::handle array, const char* name) {
  // PERF: an interned name, three times a call; by a C string each would make and hash a new str.
  static PyObject* const attribute = PyUnicode_InternFromString("requires_grad");
  const nb::object wanted = nb::steal(PyObject_GetAttr(array.ptr(), attribute));
  if (!wanted.is_valid()) throw nb::python_error();
  if (wanted.ptr() != Py_True) return;
  PyErr_Format(PyExc_NotImplementedError,
               "%s: it requires a gradient, and this version has no backward pass; call under "
               "torch.no_grad() or torch.inference_mode(), or pass %s.detach()",
               name, name);
  throw nb::python_error();
}

// A number's, which is read and no more.
void refuse_gradient_of_scale(nb::handle scale) {
  if (scale.is_none() || PyFloat_Check(scale.ptr()) || PyLong_Check(scale.ptr())) return;
  if (nb::getattr(scale, "requires_grad", nb::none()).ptr() != Py_True) return;
  throw nb::type_error(
      "scale: it requires a gradient, which it would lose; call under torch.no_grad(), or pass a "
      "float");
}

nb::object call0(nb::handle function) {
  PyObject* arguments[] = {nullptr};
  PyObject* result =
      PyObject_Vectorcall(function.ptr(), arguments + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

// Whether something records or watches PyTorch's operators, and would see none of this call.
bool is_watched(const Adapter& adapter) {
  if (adapter.num_modes.is_none()) return false;
  const TorchState& state = adapter.torch_state;
  const bool has_modes =
      state.num_modes != nullptr ? state.num_modes() != 0 : is_true(call0(adapter.num_modes));
  if (has_modes) return true;
  return state.trace != nullptr ? *state.trace() != nullptr : is_true(call0(adapter.is_tracing));
}

bool gradients_are_on(const Adapter& adapter) {
  if (!adapter.watches_gradients) return false;
  return adapter.torch_state.grad_mode != nullptr ? adapter.torch_state.grad_mode()
                                                  : is_true(call0(adapter.gradients_on));
}

bool in_forward_ad(const Adapter& adapter) {
  if (adapter.forward_ad.is_none()) return false;
  static PyObject* const name = PyUnicode_InternFromString("_current_level");
  PyObject* level = PyDict_GetItemWithError(adapter.forward_ad.ptr(), name);  // borrowed
  if (level == nullptr) return false;
  const long number = PyLong_AsLong(level);
  if (number == -1) PyErr_Clear();
  return number >= 0;
}

bool is_served(const DLDataType& dtype) {
  if (dtype.lanes != 1) return false;
  return (dtype.code == kDLFloat && (dtype.bits == 32 || dtype.bits == 16)) ||
         (dtype.code == kDLBfloat && dtype.bits == 16);
}

bool same(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// An argument of rank 4 and its axes' names, in the library's order.
struct Axes {
  const char* argument;
  const char* names[4];
};
constexpr Axes kAxesOfQ = {"q", {"batch", "heads", "Nq", "D"}};
constexpr Axes kAxesOfK = {"k", {"batch", "kv heads", "Nk", "D"}};
constexpr Axes kAxesOfV = {"v", {"batch", "kv heads", "Nk", "Dv"}};
constexpr Axes kAxesOfOut = {"out", {"batch", "heads", "Nq", "Dv"}};

// The library would refuse it as well, but in its own order of axes.
void refuse_other_rank(int64_t rank, const Axes& axes, Layout layout) {
  if (rank == 4) return;
  const int second = layout == Layout::kHeadsFirst ? 1 : 2;
  const auto& names = axes.names;
  throw nb::value_error((std::string(axes.argument) + ": its rank is " + std::to_string(rank) +
                         "; accepted: 4, as [" + names[0] + ", " + names[second] + ", " +
                         names[3 - second] + ", " + names[3] + "]")
                            .c_str());
}

// The arrays of a call, read.
struct Inputs {
  View q;
  View k;
  View v;

  // `lse` may be null.
  bool has_dtype_fault(const DLTensor& o, const DLTensor* lse) const {
    const DLDataType& dtype = q.tensor()->dtype;
    return !is_served(dtype) || !same(dtype, k.tensor()->dtype) ||
           !same(dtype, v.tensor()->dtype) || !same(dtype, o.dtype) ||
           (lse != nullptr && !same(lse->dtype, DLDataType{kDLFloat, 32, 1}));
  }
  // Without the rank the output's shape cannot be told.
  void check_rank(Layout layout) const {
    refuse_other_rank(q.tensor()->ndim, kAxesOfQ, layout);
    refuse_other_rank(k.tensor()->ndim, kAxesOfK, layout);
    refuse_other_rank(v.tensor()->ndim, kAxesOfV, layout);
  }
  bool any_hollow() const { return q.is_hollow() || k.is_hollow() || v.is_hollow(); }
  std::array<int64_t, 4> output_shape() const {
    const int64_t* shape = q.tensor()->shape;
    return {shape[0], shape[1], shape[2], v.tensor()->shape[3]};
  }
};

nb::object call2(nb::handle function, nb::handle a, nb::handle b) {
  PyObject* arguments[] = {nullptr, a.ptr(), b.ptr()};
  PyObject* result = PyObject_Vectorcall(function.ptr(), arguments + 1,
                                         2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

nb::object call1(nb::handle function, nb::handle a) {
  PyObject* arguments[] = {nullptr, a.ptr()};
  PyObject* result = PyObject_Vectorcall(function.ptr(), arguments + 1,
                                         1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

using Extents = std::array<int64_t, 8>;  // four sizes, four strides

// PERF: an output by empty_like costs 1.65 us of a CUDA call's 9; by this, 0.95. For an output of
// q's shape whose axes lie in memory without gaps as [B, H, N, D] or [B, N, H, D]; an invalid
// object otherwise.
nb::object allocate_like_on_cuda(const Adapter& adapter, const DLTensor& q, Layout layout) {
  const int64_t* shape = q.shape;
  const int64_t* strides = q.strides;
  const bool heads_first = strides[1] == shape[2] * shape[3] && strides[2] == shape[3];
  const bool rows_first = strides[2] == shape[1] * shape[3] && strides[1] == shape[3];
  if (strides[3] != 1 || strides[0] != shape[1] * shape[2] * shape[3] ||
      !(heads_first || rows_first)) {
    return {};
  }
  if (!adapter.current_cuda_device.is_none() &&
      PyLong_AsLong(call0(adapter.current_cuda_device).ptr()) != q.device.device_id) {
    return {};
  }
  const bool is_bfloat16 = q.dtype.code == kDLBfloat;
  const nb::object& dtype = is_bfloat16          ? adapter.bfloat16
                            : q.dtype.bits == 16 ? adapter.float16
                                                 : adapter.float32;
  const int rows = layout == Layout::kHeadsFirst ? 2 : 1;
  const int heads = 3 - rows;
  const Extents extents = {shape[0],   shape[heads],   shape[rows],   shape[3],
                           strides[0], strides[heads], strides[rows], strides[3]};
  // PERF: calls come in runs of one shape; ten Python objects are the same for all of a run. The
  // interpreter's lock guards them, and they outlive the interpreter.
  static Extents last = {};
  static nb::object& sizes = *new nb::object;
  static nb::object& steps = *new nb::object;
  if (!sizes.is_valid() || extents != last) {
    sizes = nb::make_tuple(extents[0], extents[1], extents[2], extents[3]);
    steps = nb::make_tuple(extents[4], extents[5], extents[6], extents[7]);
    last = extents;
  }
  const nb::object held_sizes = sizes;  // another thread may replace them while PyTorch allocates
  const nb::object held_steps = steps;
  PyObject* arguments[] = {nullptr, held_sizes.ptr(), held_steps.ptr(), dtype.ptr()};
  PyObject* made = PyObject_Vectorcall(adapter.empty_strided_cuda.ptr(), arguments + 1,
                                       3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object allocate_output(const Adapter& adapter, nb::handle q, const Inputs& inputs,
                           Layout layout) {
  const auto shape = inputs.output_shape();
  const DLTensor& like = *inputs.q.tensor();
  if (!adapter.empty_strided_cuda.is_none() && inputs.q.is_cuda() && shape[3] == like.shape[3] &&
      is_served(like.dtype)) {
    nb::object made = allocate_like_on_cuda(adapter, like, layout);
    if (made.is_valid()) return made;
  }
  if (shape[3] == inputs.q.tensor()->shape[3]) return call1(adapter.empty_like, q);
  return layout == Layout::kHeadsFirst
             ? call2(adapter.empty, q, nb::make_tuple(shape[0], shape[1], shape[2], shape[3]))
             : call2(adapter.empty, q, nb::make_tuple(shape[0], shape[2], shape[1], shape[3]));
}

void* cuda_stream(const Adapter& adapter, nb::handle q, const DLDevice& device, nb::handle stream) {
  if (adapter.api != nullptr) {
    void* current = nullptr;
    if (adapter.api->current_stream(kDLCUDA, device.device_id, &current) != 0) {
      throw nb::python_error();
    }
    return current;
  }
  const nb::object number = call2(adapter.current_stream, q, stream);
  const size_t value = PyLong_AsSize_t(number.ptr());
  if (PyErr_Occurred()) throw nb::python_error();
  return reinterpret_cast<void*>(value);
}

// Memory for a call's scratch, where it needs any: from the arrays' library on CUDA (its allocator
// knows the stream), from the C library on the CPU.
class Workspace {
 public:
  void allocate(const Adapter& adapter, nb::handle q, bool is_cuda, size_t bytes) {
    bytes_ = workspace_size(bytes);
    if (!is_cuda) {
      host_ = allocate_on_host(bytes_);
      data_ = host_.get();
      if (data_ == nullptr) throw std::bad_alloc();
      return;
    }
    const nb::tuple shape = nb::make_tuple((bytes_ + kWorkspaceAlignment) / sizeof(float));
    device_ = call2(adapter.empty_float32, q, shape);
    View view;
    view.read(adapter_of(device_, "workspace"), device_, "workspace", Layout::kHeadsFirst,
              nb::none());
    const auto address =
        reinterpret_cast<uintptr_t>(view.tensor()->data) + view.tensor()->byte_offset;
    data_ = reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
                                    kWorkspaceAlignment);
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  HostMemory host_;
  nb::object device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Whether it is one of PyTorch's inference tensors, which are not written where gradients could be
// wanted. (A subclass is not asked: it may not know the question.)
bool is_inference_tensor(const Adapter& adapter, nb::handle array, const char* name) {
  if (!adapter.watches_gradients || !adapter.redirect.is_none()) return false;
  static PyObject* const method = PyUnicode_InternFromString("is_inference");
  PyObject* const self = array.ptr();
  const nb::object answer = nb::steal(PyObject_VectorcallMethod(method, &self, 1, nullptr));
  if (!answer.is_valid()) throw nb::python_error();
  if (answer.ptr() != Py_True) return false;
  if (is_true(call0(adapter.in_inference_mode))) return true;
  PyErr_Format(PyExc_RuntimeError,
               "%s: it is an inference tensor, which PyTorch lets nobody write outside of "
               "torch.inference_mode(); call in that mode, or pass %s.clone()",
               name, name);
  throw nb::python_error();
}

// A caller's output array: of q's library, without a gradient, writable. Returns whether somebody
// counts how often it is written.
bool read_output(const Adapter& first, nb::handle q, nb::handle array, const char* name,
                 Layout layout, nb::handle stream, View* view) {
  const Adapter& adapter = adapter_like(first, q, array, name);
  if (gradients_are_on(adapter)) refuse_gradient(array, name);
  const bool is_counted = !first.wrote.is_none() && !is_inference_tensor(adapter, array, name);
  view->read(adapter, array, name, layout, stream);
  if (view->read_only()) {
    throw nb::value_error((std::string(name) + ": it is read-only; an output is written").c_str());
  }
  return is_counted;
}

// Addresses that no process has: tensors for questions, whose memory is not looked at, lie there
// and overlap nothing.
constexpr uintptr_t kNowhere = uintptr_t{1} << 61;
constexpr uintptr_t kNowhereForO = uintptr_t{1} << 62;
constexpr uintptr_t kNowhereForLse = kNowhereForO + (uintptr_t{1} << 61);

// Outputs that are never made, for questions: the library looks at their shapes and at the
// alignment of their addresses.
class Placeholder {
 public:
  Placeholder(const DLTensor* q, const DLTensor* v, Layout layout)
      : shape_{q->shape[0], q->shape[1], q->shape[2], v->shape[3]},
        strides_{shape_[1] * shape_[2] * shape_[3], shape_[2] * shape_[3], shape_[3], 1} {
    if (layout == Layout::kRowsFirst) {
      strides_[1] = shape_[3];
      strides_[2] = shape_[1] * shape_[3];
    }
    o_ = *q;
    o_.shape = shape_.data();
    o_.strides = strides_.data();
    o_.byte_offset = 0;
    o_.data = reinterpret_cast<void*>(kNowhereForO);
    lse_ = o_;
    lse_.ndim = 3;
    lse_.strides = nullptr;
    lse_.dtype = {kDLFloat, 32, 1};
    lse_.data = reinterpret_cast<void*>(kNowhereForLse);
  }
  Placeholder(const Placeholder&) = delete;
  Placeholder& operator=(const Placeholder&) = delete;
  const DLTensor* o() const { return &o_; }
  const DLTensor* lse() const { return &lse_; }

 private:
  std::array<int64_t, 4> shape_;
  std::array<int64_t, 4> strides_;
  DLTensor o_ = {};
  DLTensor lse_ = {};
};

// A CPU tensor of a shape, whose memory is not looked at.
struct Shaped {
  DLTensor tensor = {};
  std::array<int64_t, 4> shape = {};

  Shaped(nb::handle extents, const Axes& axes, const DLDataType& dtype, Layout layout) {
    refuse_other_rank(static_cast<int64_t>(nb::len(extents)), axes, layout);
    for (int axis = 0; axis < 4; ++axis) shape[axis] = nb::cast<int64_t>(extents[axis]);
    if (layout == Layout::kRowsFirst) std::swap(shape[1], shape[2]);
    tensor.data = reinterpret_cast<void*>(kNowhere);
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 4;
    tensor.dtype = dtype;
    tensor.shape = shape.data();
  }
  Shaped(const Shaped&) = delete;
  Shaped& operator=(const Shaped&) = delete;
};

DLDataType dtype_named(nb::handle name) {
  const std::string text = nb::str(name).c_str();
  if (text == "float32") return {kDLFloat, 32, 1};
  if (text == "float16") return {kDLFloat, 16, 1};
  if (text == "bfloat16") return {kDLBfloat, 16, 1};
  throw nb::type_error(
      ("q: its dtype is " + text + "; accepted: float16, bfloat16, float32").c_str());
}

}  // namespace

nb::object forward(nb::handle q, nb::handle k, nb::handle v, const Arguments& arguments,
                   bool return_lse, nb::handle out, nb::handle stream, Entry entry) {
  const Adapter& adapter = adapter_of(q, "q");
  const Adapter& adapter_k = adapter_like(adapter, q, k, "k");
  const Adapter& adapter_v = adapter_like(adapter, q, v, "v");
  const bool watched = entry == Entry::kUser && is_watched(adapter);
  const auto go_by = [&](const nb::object& function) {
    return function(q, k, v, arguments.causal, arguments.window, arguments.scale, return_lse,
                    arguments.empty_row_lse, out, stream, arguments.layout, arguments.kernel,
                    arguments.window_align, arguments.num_threads);
  };
  for (const Adapter* one : {&adapter, &adapter_k, &adapter_v}) {
    const nb::object& redirect =
        one->redirect.is_none() && watched ? one->intercepted : one->redirect;
    if (!redirect.is_none()) return go_by(redirect);
  }
  if (in_forward_ad(adapter)) adapter.refuse_tangents(q, k, v, out);
  if (gradients_are_on(adapter)) {
    refuse_gradient(q, "q");
    refuse_gradient(k, "k");
    refuse_gradient(v, "v");
    refuse_gradient_of_scale(arguments.scale);
  }

  const Layout layout = parse_layout(arguments.layout);
  Inputs inputs;
  inputs.q.read(adapter, q, "q", layout, stream);
  inputs.k.read(adapter_k, k, "k", layout, stream);
  inputs.v.read(adapter_v, v, "v", layout, stream);
  inputs.check_rank(layout);
  tilefold_options options;
  parse_options(arguments, inputs.q.tensor()->shape[2], inputs.k.tensor()->shape[2], &options);

  nb::object o;
  nb::object lse;
  if (!out.is_none()) {
    const bool is_pair = return_lse && PyTuple_Check(out.ptr());
    if (is_pair && PyTuple_Size(out.ptr()) != 2) {
      throw nb::value_error(
          "out: it is a tuple of another length than 2; accepted: an array, or (o, lse)");
    }
    if (PyList_Check(out.ptr()) || (PyTuple_Check(out.ptr()) && !is_pair)) {
      throw nb::type_error((std::string("out: it is a ") +
                            (PyList_Check(out.ptr()) ? "list" : "tuple") +
                            "; accepted: an array, or with return_lse=True a tuple (o, lse)")
                               .c_str());
    }
    o = is_pair ? nb::borrow(PyTuple_GetItem(out.ptr(), 0)) : nb::borrow(out);
    if (is_pair) lse = nb::borrow(PyTuple_GetItem(out.ptr(), 1));
  }
  View view_o;
  bool count_o = false;
  if (o.is_valid() && !o.is_none()) {
    count_o = read_output(adapter, q, o, "out", layout, stream, &view_o);
    refuse_other_rank(view_o.tensor()->ndim, kAxesOfOut, layout);
  } else {
    o = allocate_output(adapter, q, inputs, layout);
    view_o.read(adapter_of(o, "o"), o, "o", layout, stream);
  }
  View view_lse;
  bool count_lse = false;
  if (return_lse) {
    if (lse.is_valid() && !lse.is_none()) {
      count_lse = read_output(adapter, q, lse, "out[1] (lse)", layout, stream, &view_lse);
    } else {
      const auto shape = inputs.output_shape();
      lse = call2(adapter.empty_float32, q, nb::make_tuple(shape[0], shape[1], shape[2]));
      view_lse.read(adapter_of(lse, "lse"), lse, "lse", layout, stream);
    }
  }

  const bool is_cuda = inputs.q.is_cuda();
  void* on_stream = is_cuda ? cuda_stream(adapter, q, inputs.q.tensor()->device, stream) : nullptr;
  const DLTensor* lse_tensor = return_lse ? view_lse.tensor() : nullptr;
  const auto run = [&](void* workspace, size_t workspace_bytes) {
    const nb::gil_scoped_release unlocked;
    return tilefold_forward(inputs.q.tensor(), inputs.k.tensor(), inputs.v.tensor(),
                            view_o.tensor(), lse_tensor, &options, workspace, workspace_bytes,
                            on_stream);
  };
  // PERF: first without a workspace. Most calls need none, and asking each time would cost a second
  // validation and choice of kernel.
  tilefold_status status = run(nullptr, 0);
  if (status == TILEFOLD_ERROR_WORKSPACE) {
    size_t bytes = 0;
    status =
        tilefold_forward_workspace_bytes(inputs.q.tensor(), inputs.k.tensor(), inputs.v.tensor(),
                                         view_o.tensor(), lse_tensor, &options, &bytes);
    if (status == TILEFOLD_OK) {
      Workspace workspace;
      workspace.allocate(adapter, q, is_cuda, bytes);
      status = run(workspace.data(), workspace.bytes());
    }
  }
  if (status != TILEFOLD_OK) {
    // torch.func.functionalize's tensors are hollow: PyTorch shows the operators what is inside.
    const bool any_hollow = inputs.any_hollow() || view_o.is_hollow() || view_lse.is_hollow();
    if (any_hollow && entry == Entry::kUser && !adapter.intercepted.is_none()) {
      return go_by(adapter.intercepted);
    }
    raise_status(status, inputs.has_dtype_fault(*view_o.tensor(), lse_tensor));
  }
  if (count_o) call1(adapter.wrote, o);
  if (count_lse) call1(adapter.wrote, lse);
  if (!return_lse) return o;
  return nb::make_tuple(o, lse);
}

nb::str explain(nb::handle q, nb::handle k, nb::handle v, const Arguments& arguments,
                bool return_lse) {
  const Adapter& adapter = adapter_of(q, "q");
  const Adapter& adapter_k = adapter_like(adapter, q, k, "k");
  const Adapter& adapter_v = adapter_like(adapter, q, v, "v");
  const Layout layout = parse_layout(arguments.layout);
  Inputs inputs;
  inputs.q.read(adapter, q, "q", layout, nb::none());
  inputs.k.read(adapter_k, k, "k", layout, nb::none());
  inputs.v.read(adapter_v, v, "v", layout, nb::none());
  inputs.check_rank(layout);
  tilefold_options options;
  parse_options(arguments, inputs.q.tensor()->shape[2], inputs.k.tensor()->shape[2], &options);

  const Placeholder o(inputs.q.tensor(), inputs.v.tensor(), layout);
  const DLTensor* lse_tensor = return_lse ? o.lse() : nullptr;
  std::string text;
  size_t needed = 0;
  tilefold_status status = tilefold_explain(inputs.q.tensor(), inputs.k.tensor(), inputs.v.tensor(),
                                            o.o(), lse_tensor, &options, nullptr, 0, &needed);
  if (status == TILEFOLD_OK) {
    text.resize(needed);
    status = tilefold_explain(inputs.q.tensor(), inputs.k.tensor(), inputs.v.tensor(), o.o(),
                              lse_tensor, &options, text.data(), text.size(), nullptr);
  }
  if (status != TILEFOLD_OK) {
    if (inputs.q.is_hollow()) adapter.reread("q", q, nb::none());
    if (inputs.k.is_hollow()) adapter_k.reread("k", k, nb::none());
    if (inputs.v.is_hollow()) adapter_v.reread("v", v, nb::none());
    raise_status(status, inputs.has_dtype_fault(*o.o(), nullptr));
  }
  return nb::str(text.c_str());
}

void validate(nb::handle q_shape, nb::handle k_shape, nb::handle v_shape, nb::handle dtype,
              const Arguments& arguments) {
  const Layout layout = parse_layout(arguments.layout);
  const DLDataType type = dtype_named(dtype);
  const Shaped q(q_shape, kAxesOfQ, type, layout);
  const Shaped k(k_shape, kAxesOfK, type, layout);
  const Shaped v(v_shape, kAxesOfV, type, layout);
  tilefold_options options;
  parse_options(arguments, q.shape[2], k.shape[2], &options);
  const Placeholder o(&q.tensor, &v.tensor, layout);
  const tilefold_status status = tilefold_explain(&q.tensor, &k.tensor, &v.tensor, o.o(), nullptr,
                                                  &options, nullptr, 0, nullptr);
  if (status != TILEFOLD_OK) raise_status(status);
}

double c_call_seconds(nb::handle q, nb::handle k, nb::handle v, nb::handle o, int repeats) {
  const Adapter& adapter = adapter_of(q, "q");
  View views[4];
  const nb::handle arrays[] = {q, k, v, o};
  const char* const names[] = {"q", "k", "v", "o"};
  for (int i = 0; i < 4; ++i) {
    views[i].read(adapter, arrays[i], names[i], Layout::kHeadsFirst, nb::none());
  }
  void* stream =
      views[0].is_cuda() ? cuda_stream(adapter, q, views[0].tensor()->device, nb::none()) : nullptr;
  tilefold_status status = TILEFOLD_OK;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats && status == TILEFOLD_OK; ++i) {
    status = tilefold_forward(views[0].tensor(), views[1].tensor(), views[2].tensor(),
                              views[3].tensor(), nullptr, nullptr, nullptr, 0, stream);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (status != TILEFOLD_OK) raise_status(status);
  return elapsed.count() / repeats;
}

}  // namespace tilefold::python
