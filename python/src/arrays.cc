// Arrays of any Python library seen as DLTensors, and new arrays of the same library.
#include "arrays.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace tilefold::python {
namespace {

constexpr uint32_t kDlpackMajor = 1;

nb::object attribute(nb::handle object, const char* name) { return nb::getattr(object, name); }

const ExchangeApi* exchange_api(nb::handle type) {
  PyObject* capsule = PyObject_GetAttrString(type.ptr(), "__dlpack_c_exchange_api__");
  if (capsule == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const nb::object holder = nb::steal(capsule);
  if (!PyCapsule_IsValid(capsule, kExchangeCapsule)) return nullptr;
  const auto* header =
      static_cast<const ExchangeApi::Header*>(PyCapsule_GetPointer(capsule, kExchangeCapsule));
  // A library may publish tables of several versions, newest first.
  while (header != nullptr && header->version.major > kDlpackMajor) header = header->previous;
  if (header == nullptr || header->version.major != kDlpackMajor) return nullptr;
  const auto* api = reinterpret_cast<const ExchangeApi*>(header);
  return api->view_object != nullptr && api->current_stream != nullptr ? api : nullptr;
}

template <typename Function>
void read_address(nb::handle address, Function* function) {
  *function = reinterpret_cast<Function>(nb::cast<uintptr_t>(address));
}

Adapter make_adapter(nb::handle type) {
  const nb::object made = nb::module_::import_("tilefold._arrays").attr("adapt")(type);
  Adapter adapter;
  adapter.library = attribute(made, "library");
  adapter.export_dlpack = attribute(made, "export");
  adapter.reread = attribute(made, "reread");
  adapter.empty_like = attribute(made, "empty_like");
  adapter.empty = attribute(made, "empty");
  adapter.empty_float32 = attribute(made, "empty_float32");
  adapter.current_stream = attribute(made, "current_stream");
  adapter.redirect = attribute(made, "redirect");
  adapter.gradients_on = attribute(made, "gradients_on");
  adapter.num_modes = attribute(made, "num_modes");
  adapter.is_tracing = attribute(made, "is_tracing");
  adapter.intercepted = attribute(made, "intercepted");
  adapter.forward_ad = attribute(made, "forward_ad");
  adapter.refuse_tangents = attribute(made, "refuse_tangents");
  adapter.in_inference_mode = attribute(made, "in_inference_mode");
  adapter.wrote = attribute(made, "wrote");
  adapter.empty_strided_cuda = attribute(made, "empty_strided_cuda");
  adapter.current_cuda_device = attribute(made, "current_cuda_device");
  const nb::object dtypes = attribute(made, "dtypes");
  if (!dtypes.is_none()) {
    adapter.float16 = dtypes[0];
    adapter.bfloat16 = dtypes[1];
    adapter.float32 = dtypes[2];
  }
  adapter.watches_gradients = !adapter.gradients_on.is_none();
  const nb::object native = attribute(made, "native");
  if (!native.is_none()) {
    read_address(native[0], &adapter.torch_state.grad_mode);
    read_address(native[1], &adapter.torch_state.num_modes);
    read_address(native[2], &adapter.torch_state.trace);
  }
  adapter.api = nb::cast<bool>(attribute(made, "use_exchange_api")) ? exchange_api(type) : nullptr;
  return adapter;
}

}  // namespace

bool is_true(nb::handle value) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

const Adapter& adapter_of(nb::handle array, const char* name) {
  // The interpreter's lock guards the cache. Nothing in it is ever removed (each key holds a
  // reference to its type), and it outlives the interpreter.
  static auto& cache = *new std::unordered_map<PyTypeObject*, Adapter>;
  static PyTypeObject* last_type = nullptr;
  static const Adapter* last_adapter = nullptr;
  PyTypeObject* type = Py_TYPE(array.ptr());
  if (type == last_type) return *last_adapter;
  auto found = cache.find(type);
  if (found == cache.end()) {
    Adapter adapter;
    try {
      adapter = make_adapter(reinterpret_cast<PyObject*>(type));
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      const std::string sentence = std::string(name) + ": " + nb::str(error.value()).c_str();
      throw nb::type_error(sentence.c_str());
    }
    found = cache.emplace(type, std::move(adapter)).first;
    Py_INCREF(reinterpret_cast<PyObject*>(type));
  }
  last_type = type;
  last_adapter = &found->second;
  return found->second;
}

bool View::is_hollow() const {
  if (tensor_.data != nullptr || tensor_.ndim == 0) return false;
  return std::find(tensor_.shape, tensor_.shape + tensor_.ndim, 0) == tensor_.shape + tensor_.ndim;
}

void View::from_capsule(PyObject* capsule, const char* name) {
  owner_ = nb::steal(capsule);
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const auto* managed = static_cast<const ManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major != kDlpackMajor) {
      throw nb::type_error((std::string(name) + ": it is exported as DLPack " +
                            std::to_string(managed->version.major) + "." +
                            std::to_string(managed->version.minor) + "; accepted: 1.x")
                               .c_str());
    }
    tensor_ = managed->tensor;
    read_only_ = (managed->flags & kDlpackReadOnly) != 0;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    tensor_ = static_cast<const ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
  } else {
    throw nb::type_error((std::string(name) + ": its __dlpack__() gave no DLPack capsule").c_str());
  }
}

void View::take_axes(Layout layout) {
  // Other ranks are the library's to refuse: it is given the tensor as it is.
  if (tensor_.ndim != kMaxRank) return;
  int64_t contiguous = 1;
  for (int axis = kMaxRank - 1; axis >= 0; --axis) {
    shape_[axis] = tensor_.shape[axis];
    strides_[axis] = tensor_.strides != nullptr ? tensor_.strides[axis] : contiguous;
    contiguous *= shape_[axis] > 0 ? shape_[axis] : 1;
  }
  if (layout == Layout::kRowsFirst) {
    std::swap(shape_[1], shape_[2]);
    std::swap(strides_[1], strides_[2]);
  }
  tensor_.shape = shape_;
  tensor_.strides = strides_;
}

// PyTorch may hold a tensor of negated values lazily, as a view with a flag that DLPack does not
// carry, such as the imaginary part of a conjugate.
void View::refuse_negative_view(nb::handle array, const char* name) {
  static PyObject* const method = PyUnicode_InternFromString("is_neg");
  PyObject* const self = array.ptr();
  const nb::object is_negative = nb::steal(PyObject_VectorcallMethod(method, &self, 1, nullptr));
  if (!is_negative.is_valid()) {
    PyErr_Clear();  // another library's array
    return;
  }
  if (is_negative.ptr() != Py_True) return;
  throw nb::type_error(
      (std::string(name) + ": its negative bit is set; pass " + name + ".resolve_neg()").c_str());
}

void View::read(const Adapter& adapter, nb::handle array, const char* name, Layout layout,
                nb::handle stream) {
  if (adapter.api != nullptr) {
    if (adapter.api->view_object(array.ptr(), &tensor_) != 0) {
      nb::python_error reason;
      adapter.reread(name, array, reason.value());
      throw reason;
    }
    take_axes(layout);
    refuse_negative_view(array, name);
    return;
  }
  PyObject* arguments[] = {nullptr, array.ptr(), stream.ptr()};
  PyObject* capsule = PyObject_Vectorcall(adapter.export_dlpack.ptr(), arguments + 1,
                                          2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  bool reread = false;
  if (capsule == nullptr) {
    // A dtype that the library does not export (NumPy's bfloat16 is an extension type): its bits
    // under another name, or the reason why not.
    nb::python_error reason;
    reread_ = adapter.reread(name, array, reason.value());
    arguments[1] = reread_.ptr();
    capsule = PyObject_Vectorcall(adapter.export_dlpack.ptr(), arguments + 1,
                                  2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (capsule == nullptr) throw nb::python_error();
    reread = true;
  }
  from_capsule(capsule, name);
  if (reread && tensor_.dtype.code == kDLUInt && tensor_.dtype.bits == 16) {
    tensor_.dtype = {kDLBfloat, 16, 1};
  }
  take_axes(layout);
}

}  // namespace tilefold::python
