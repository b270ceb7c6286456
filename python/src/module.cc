// The extension module tilefold._core: what the Python package is built on.
#include <nanobind/nanobind.h>
#include <tilefold/tilefold.h>

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

bool is_true(nb::handle value) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

// forward(q, k, v, causal, window, scale, return_lse, empty_row_lse, out, stream, layout, kernel,
// window_align, num_threads), all by position; forward_of_operator() likewise.
//
// PERF: called by CPython itself; nanobind would look for names and overloads at each call.
template <Entry entry>
PyObject* forward_vectorcall(PyObject*, PyObject* const* values, Py_ssize_t count) {
  if (count != 14) {
    PyErr_Format(PyExc_TypeError, "forward() takes 14 arguments, %zd are given", count);
    return nullptr;
  }
  try {
    const Arguments arguments = {values[3],  values[4],  values[5],  values[7],
                                 values[10], values[11], values[12], values[13]};
    return forward(values[0], values[1], values[2], arguments, is_true(values[6]), values[8],
                   values[9], entry)
        .release()
        .ptr();
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
  m.def(
      "explain",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle causal, nb::handle window,
         nb::handle scale, nb::handle return_lse, nb::handle empty_row_lse, nb::handle layout,
         nb::handle kernel, nb::handle window_align, nb::handle num_threads) {
        const Arguments arguments = {causal, window, scale,        empty_row_lse,
                                     layout, kernel, window_align, num_threads};
        return explain(q, k, v, arguments, is_true(return_lse));
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
