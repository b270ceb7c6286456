// The Python arguments of a forward call -> tilefold_options.
#pragma once

#include <nanobind/nanobind.h>
#include <tilefold/tilefold.h>

#include "arrays.h"

namespace tilefold::python {

// Everything but the arrays, as tilefold.attention() takes it.
struct Arguments {
  nb::handle causal;
  nb::handle window;
  nb::handle scale;
  nb::handle empty_row_lse;
  nb::handle layout;
  nb::handle kernel;
  nb::handle window_align;
  nb::handle num_threads;
};

// True or False, NumPy's too.
bool parse_flag(nb::handle value, const char* name);
Layout parse_layout(nb::handle value);

// `options->kernel` points into `arguments.kernel`. Lengths are those of q and k.
void parse_options(const Arguments& arguments, int64_t seqlen_q, int64_t seqlen_k,
                   tilefold_options* options);

// Raises the Python exception for a failed call, with the library's sentence. `dtype_fault`: an
// invalid argument that is invalid by its dtype.
[[noreturn]] void raise_status(tilefold_status status, bool dtype_fault = false);

}  // namespace tilefold::python
