// The extension module tilefold._core: what the Python package is built on.
#include <nanobind/nanobind.h>
#include <tilefold/tilefold.h>

#include <algorithm>
#include <iterator>

#include "forward.h"
#include "jax_ffi.h"
#include "layouts.h"

namespace nb = nanobind;
using namespace tilefold::python;

namespace {

nb::list devices() {
  nb::list all;
  const int32_t count = tilefold_device_count();
  for (int32_t index = 0; index < count; ++index) {
    tilefold_device_info info = {};
    info.struct_bytes = sizeof(info);
    if (const tilefold_status status = tilefold_get_device_info(index, &info)) raise_status(status);
    nb::dict device;
    device["type"] = info.device.device_type == kDLCPU ? "cpu" : "cuda";
    device["index"] = info.device.device_id;
    device["name"] = info.name;
    device["compute_capability"] =
        nb::make_tuple(info.compute_capability / 10, info.compute_capability % 10);
    device["num_multiprocessors"] = info.num_multiprocessors;
    device["shared_memory_bytes"] = info.shared_memory_bytes;
    device["l2_bytes"] = info.l2_bytes;
    device["usable"] = info.usable != 0;
    device["note"] = info.note;
    all.append(device);
  }
  return all;
}

nb::list kernels() {
  nb::list all;
  const int32_t count = tilefold_kernel_count();
  for (int32_t index = 0; index < count; ++index) {
    tilefold_kernel_info info = {};
    info.struct_bytes = sizeof(info);
    if (const tilefold_status status = tilefold_get_kernel_info(index, &info)) raise_status(status);
    nb::dict kernel;
    kernel["name"] = info.name;
    kernel["backend"] = info.backend;
    kernel["dtypes"] = info.dtypes;
    kernel["head_dim"] = info.head_dim;
    kernel["head_dim_v"] = info.head_dim_v;
    kernel["block_m"] = info.block_m;
    kernel["block_n"] = info.block_n;
    kernel["num_stages"] = info.num_stages;
    kernel["num_threads"] = info.num_threads;
    kernel["shared_memory_bytes"] = info.shared_memory_bytes;
    all.append(kernel);
  }
  return all;
}

// The arguments of a forward call beside q, k and v, by the names that tilefold.attention() gives
// them and in the order of forward()'s.
constexpr int kNumArrays = 3;
constexpr const char* kOptions[] = {"causal",        "window",       "scale",      "return_lse",
                                    "empty_row_lse", "out",          "stream",     "layout",
                                    "kernel",        "window_align", "num_threads"};
constexpr int kNumOptions = std::size(kOptions);
constexpr int kNumArguments = kNumArrays + kNumOptions;

template <typename Call>
PyObject* guarded(const Call& call) {
  try {
    return call();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(error.type() == nb::exception_type::type_error    ? PyExc_TypeError
                    : error.type() == nb::exception_type::value_error ? PyExc_ValueError
                                                                      : PyExc_RuntimeError,
                    error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* run(PyObject* const* values, Entry entry) {
  return guarded([&] {
    const Arguments arguments = {values[3],  values[4],  values[5],  values[7],
                                 values[10], values[11], values[12], values[13]};
    return forward(values[0], values[1], values[2], arguments, parse_flag(values[6], "return_lse"),
                   values[8], values[9], entry)
        .release()
        .ptr();
  });
}

bool have_count(const char* name, Py_ssize_t wanted, Py_ssize_t count) {
  if (count == wanted) return true;
  PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, %zd are given", name, wanted, count);
  return false;
}

// forward(q, k, v, causal, window, scale, return_lse, empty_row_lse, out, stream, layout, kernel,
// window_align, num_threads), all by position; forward_of_operator() likewise.
//
// PERF: called by CPython itself; nanobind would look for names and overloads at each call.
template <Entry entry>
PyObject* forward_vectorcall(PyObject*, PyObject* const* values, Py_ssize_t count) {
  if (!have_count("forward", kNumArguments, count)) return nullptr;
  return run(values, entry);
}

// What forward_with_defaults() was told: the options' names, interned, and their defaults.
struct Defaults {
  nb::object names[kNumOptions];
  nb::object values[kNumOptions];
};
Defaults& defaults() {
  static auto& kept = *new Defaults;  // outlives the interpreter
  return kept;
}

int index_of(const Defaults& known, PyObject* name) {
  for (int i = 0; i < kNumOptions; ++i) {  // keywords in a program's text are interned
    if (known.names[i].ptr() == name) return i;
  }
  for (int i = 0; i < kNumOptions; ++i) {
    if (PyUnicode_Compare(known.names[i].ptr(), name) == 0) return i;
  }
  return -1;
}

// forward() with q, k and v by position and the rest in a dict of those that differ from their
// defaults.
PyObject* forward_by_name_vectorcall(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (!have_count("forward_by_name", kNumArrays + 1, count)) return nullptr;
  const Defaults& known = defaults();
  PyObject* values[kNumArguments];
  std::copy(given, given + kNumArrays, values);
  for (int i = 0; i < kNumOptions; ++i) values[kNumArrays + i] = known.values[i].ptr();
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t place = 0; PyDict_Next(given[kNumArrays], &place, &name, &value);) {
    const int index = index_of(known, name);
    if (index < 0) {
      return PyErr_Format(PyExc_TypeError, "attention() got an unexpected keyword argument '%U'",
                          name);
    }
    values[kNumArrays + index] = value;
  }
  return run(values, Entry::kUser);
}

nb::object forward_with_defaults(nb::dict values) {
  Defaults& kept = defaults();
  for (int i = 0; i < kNumOptions; ++i) {
    kept.names[i] = nb::steal(PyUnicode_InternFromString(kOptions[i]));
    kept.values[i] = values[kept.names[i]];
  }
  static PyMethodDef definition = {
      "forward_by_name",
      reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&forward_by_name_vectorcall)),
      METH_FASTCALL, "Runs the call: q, k, v, and a dict of the options that are given."};
  return nb::steal(PyCFunction_NewEx(&definition, nullptr, nullptr));
}

template <Entry entry>
void add_forward(nb::module_& m, const char* name) {
  static PyMethodDef definition = {
      name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&forward_vectorcall<entry>)),
      METH_FASTCALL, "Runs the call; see the stub for the arguments."};
  m.attr(name) = nb::steal(PyCFunction_NewEx(&definition, nullptr, nullptr));
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "tilefold's C interface for its Python package; not a public interface.";
  m.def("version", [] { return tilefold_version(); });
  m.def("devices", &devices);
  m.def("kernels", &kernels);
  add_forward<Entry::kUser>(m, "forward");
  add_forward<Entry::kOperator>(m, "forward_of_operator");
  m.def("forward_with_defaults", &forward_with_defaults, nb::arg("values"));
  m.def(
      "explain",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle causal, nb::handle window,
         nb::handle scale, nb::handle return_lse, nb::handle empty_row_lse, nb::handle layout,
         nb::handle kernel, nb::handle window_align, nb::handle num_threads) {
        const Arguments arguments = {causal, window, scale,        empty_row_lse,
                                     layout, kernel, window_align, num_threads};
        return explain(q, k, v, arguments, parse_flag(return_lse, "return_lse"));
      },
      nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("causal").none(),
      nb::arg("window").none(), nb::arg("scale").none(), nb::arg("return_lse").none(),
      nb::arg("empty_row_lse").none(), nb::arg("layout").none(), nb::arg("kernel").none(),
      nb::arg("window_align").none(), nb::arg("num_threads").none());
  m.def(
      "validate",
      [](nb::handle q_shape, nb::handle k_shape, nb::handle v_shape, nb::handle dtype,
         nb::handle causal, nb::handle window, nb::handle scale, nb::handle empty_row_lse,
         nb::handle layout, nb::handle kernel, nb::handle window_align, nb::handle num_threads) {
        const Arguments arguments = {causal, window, scale,        empty_row_lse,
                                     layout, kernel, window_align, num_threads};
        validate(q_shape, k_shape, v_shape, dtype, arguments);
      },
      nb::arg("q_shape").none(), nb::arg("k_shape").none(), nb::arg("v_shape").none(),
      nb::arg("dtype").none(), nb::arg("causal").none(), nb::arg("window").none(),
      nb::arg("scale").none(), nb::arg("empty_row_lse").none(), nb::arg("layout").none(),
      nb::arg("kernel").none(), nb::arg("window_align").none(), nb::arg("num_threads").none());
  m.def("c_call_seconds", &c_call_seconds, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("o").none(), nb::arg("repeats"));
  m.def("xla_handlers", [] {
    nb::dict handlers;
    handlers["cpu"] = nb::capsule(reinterpret_cast<void*>(&attention_handler_cpu));
    handlers["CUDA"] = nb::capsule(reinterpret_cast<void*>(&attention_handler_cuda));
    return handlers;
  });
  add_layouts(m);
  m.attr("has_cuda") = bool(TILEFOLD_PYTHON_WITH_CUDA);
}
