// The Python arguments of a forward call -> tilefold_options.
#include "options.h"

#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

namespace tilefold::python {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw nb::value_error(sentence.c_str()); }

// The text of a str that UTF-8 has, a view of null for anything else.
std::string_view text_of(nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) return {};
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
  if (text == nullptr) {
    PyErr_Clear();
    return {};
  }
  return {text, static_cast<size_t>(length)};
}

// The pending exception, but for what is none of an argument's making: KeyboardInterrupt,
// SystemExit.
void forget_exception() {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();
  PyErr_Clear();
}

// Its repr(), for an error; where it has none, its type.
std::string shown(nb::handle value) {
  const nb::object text = nb::steal(PyObject_Repr(value.ptr()));
  if (text.is_valid() && text_of(text).data() != nullptr) return std::string(text_of(text));
  forget_exception();
  return std::string("a ") + nb::inst_name(value).c_str();
}

// numpy.bool_ is no bool, yet it is what comparing an array's elements gives.
bool is_numpy_bool(nb::handle value) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()));
  const nb::object module = nb::steal(PyObject_GetAttrString(type, "__module__"));
  const nb::object name =
      nb::steal(module.is_valid() ? PyObject_GetAttrString(type, "__name__") : nullptr);
  if (!name.is_valid()) {
    forget_exception();
    return false;
  }
  return text_of(module) == "numpy" && (text_of(name) == "bool" || text_of(name) == "bool_");
}

int32_t parse_causal(nb::handle value, int64_t seqlen_q, int64_t seqlen_k) {
  if (value.ptr() == Py_False || value.is_none()) return TILEFOLD_CAUSAL_NONE;
  if (value.ptr() == Py_True) {
    // The two alignments differ exactly when the lengths do, and libraries disagree on which one a
    // bare True means.
    if (seqlen_q != seqlen_k) {
      refuse("causal is True, but Nq = " + std::to_string(seqlen_q) + " and Nk = " +
             std::to_string(seqlen_k) + " differ; accepted then: 'top_left', 'bottom_right'");
    }
    return TILEFOLD_CAUSAL_TOP_LEFT;
  }
  const std::string_view text = text_of(value);
  if (text == "top_left") return TILEFOLD_CAUSAL_TOP_LEFT;
  if (text == "bottom_right") return TILEFOLD_CAUSAL_BOTTOM_RIGHT;
  if (is_numpy_bool(value)) {
    return parse_causal(PyObject_IsTrue(value.ptr()) == 1 ? Py_True : Py_False, seqlen_q, seqlen_k);
  }
  refuse("causal is " + shown(value) +
         "; accepted: False, True (where Nq = Nk), 'top_left', 'bottom_right'");
}

int64_t parse_integer(nb::handle value, const char* name) {
  const bool is_bool =
      !PyLong_CheckExact(value.ptr()) && (PyBool_Check(value.ptr()) || is_numpy_bool(value));
  const nb::object index = nb::steal(is_bool ? nullptr : PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    forget_exception();
    throw nb::type_error(
        (std::string(name) + " is " + shown(value) + "; accepted: an int").c_str());
  }
  const long long number = PyLong_AsLongLong(index.ptr());
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    refuse(std::string(name) + " is " + shown(value) + ", which does not fit 64 bits");
  }
  return number;
}

int64_t parse_distance(nb::handle value, const char* name) {
  return value.is_none() ? -1 : parse_integer(value, name);
}

void parse_window(nb::handle value, tilefold_options* options) {
  if (value.is_none()) return;
  nb::object left;
  nb::object right;
  if (PySequence_Check(value.ptr()) && !PyUnicode_Check(value.ptr()) &&
      PySequence_Size(value.ptr()) == 2) {
    left = nb::steal(PySequence_GetItem(value.ptr(), 0));
    if (left.is_valid()) right = nb::steal(PySequence_GetItem(value.ptr(), 1));
  }
  if (!right.is_valid()) {
    forget_exception();
    refuse("window is " + shown(value) +
           "; accepted: None, or (left, right), each None (unbounded) or 0 and more");
  }
  options->window_left = parse_distance(left, "window[0] (left)");
  options->window_right = parse_distance(right, "window[1] (right)");
}

}  // namespace

bool parse_flag(nb::handle value, const char* name) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  if (is_numpy_bool(value)) return is_true(value);
  throw nb::type_error(
      (std::string(name) + " is " + shown(value) + "; accepted: False, True").c_str());
}

Layout parse_layout(nb::handle value) {
  const std::string_view text = text_of(value);
  if (text == "BHND") return Layout::kHeadsFirst;
  if (text == "BNHD") return Layout::kRowsFirst;
  refuse("layout is " + shown(value) + "; accepted: 'BHND', 'BNHD'");
}

void parse_options(const Arguments& arguments, int64_t seqlen_q, int64_t seqlen_k,
                   tilefold_options* options) {
  tilefold_options_init(options, sizeof(*options));
  options->causal = parse_causal(arguments.causal, seqlen_q, seqlen_k);
  parse_window(arguments.window, options);
  if (!arguments.scale.is_none()) {
    const bool is_bool = PyBool_Check(arguments.scale.ptr());
    const double scale = is_bool ? -1.0 : PyFloat_AsDouble(arguments.scale.ptr());
    if (is_bool || (scale == -1.0 && PyErr_Occurred())) {
      PyErr_Clear();
      throw nb::type_error(
          ("scale is " + shown(arguments.scale) + "; accepted: None (1/sqrt(D)), or a number")
              .c_str());
    }
    options->has_scale = 1;
    options->scale = static_cast<float>(scale);
    if (std::isinf(options->scale) && std::isfinite(scale)) {
      refuse("scale is " + shown(arguments.scale) + "; accepted: any number that float32 holds");
    }
  }
  const std::string_view lse = text_of(arguments.empty_row_lse);
  if (lse == "-inf") {
    options->empty_row_lse = TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY;
  } else if (lse != "+inf") {
    refuse("empty_row_lse is " + shown(arguments.empty_row_lse) + "; accepted: '+inf', '-inf'");
  }
  if (!arguments.kernel.is_none()) {
    const auto sentence = [&] {
      return "kernel is " + shown(arguments.kernel) +
             "; accepted: None, or a name from tilefold.kernels()";
    };
    if (!PyUnicode_Check(arguments.kernel.ptr())) throw nb::type_error(sentence().c_str());
    const std::string_view kernel = text_of(arguments.kernel);
    if (kernel.data() == nullptr || kernel.find('\0') != std::string_view::npos) {
      refuse(sentence());
    }
    options->kernel = kernel.data();  // NUL-terminated by CPython
  }
  const std::string_view align = text_of(arguments.window_align);
  if (align == "top_left") {
    options->window_align = TILEFOLD_WINDOW_ALIGN_TOP_LEFT;
  } else if (align == "bottom_right") {
    options->window_align = TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT;
  } else if (align != "auto") {
    refuse("window_align is " + shown(arguments.window_align) +
           "; accepted: 'auto', 'top_left', 'bottom_right'");
  }
  const int64_t threads = parse_integer(arguments.num_threads, "num_threads");
  if (threads < INT32_MIN || threads > INT32_MAX) {
    refuse("num_threads is " + std::to_string(threads) + ", which does not fit 32 bits");
  }
  options->num_threads = static_cast<int32_t>(threads);
}

void raise_status(tilefold_status status, bool dtype_fault) {
  const char* text = tilefold_last_error();
  if (text[0] == '\0') text = tilefold_status_string(status);
  // The library cuts long sentences, at any byte.
  const nb::object sentence =
      nb::steal(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace"));
  if (!sentence.is_valid()) throw nb::python_error();
  const nb::module_ names = nb::module_::import_("tilefold._names");
  const nb::object spelled = names.attr("spelled")(sentence, names.attr("OF_THE_C_LIBRARY"));
  PyObject* kind = PyExc_RuntimeError;
  switch (status) {
    case TILEFOLD_ERROR_INVALID_ARGUMENT:
      kind = dtype_fault ? PyExc_TypeError : PyExc_ValueError;
      break;
    case TILEFOLD_ERROR_UNSUPPORTED: kind = PyExc_NotImplementedError; break;
    case TILEFOLD_ERROR_OUT_OF_MEMORY: kind = PyExc_MemoryError; break;
    default: break;
  }
  PyErr_SetObject(kind, spelled.ptr());
  throw nb::python_error();
}

}  // namespace tilefold::python
