// tilefold.attention() and tilefold.explain() below their Python signatures.
#pragma once

#include <nanobind/nanobind.h>

#include "options.h"

namespace tilefold::python {

// Who calls: a user, whose call PyTorch's tracers and modes must see, or the operator that they
// saw.
enum class Entry { kUser, kOperator };

// Runs the call; returns o, or (o, lse).
nb::object forward(nb::handle q, nb::handle k, nb::handle v, const Arguments& arguments,
                   bool return_lse, nb::handle out, nb::handle stream, Entry entry);

// tilefold_explain()'s text.
nb::str explain(nb::handle q, nb::handle k, nb::handle v, const Arguments& arguments,
                bool return_lse);

// Raises what a call on arrays of these shapes (in `layout`'s order) and this dtype would raise
// whatever the device; looks at no array and runs nothing.
void validate(nb::handle q_shape, nb::handle k_shape, nb::handle v_shape, nb::handle dtype,
              const Arguments& arguments);

// Seconds that one tilefold_forward() takes the calling thread, the mean of `repeats` calls on the
// same tensors: what a call through Python is compared with.
double c_call_seconds(nb::handle q, nb::handle k, nb::handle v, nb::handle o, int repeats);

}  // namespace tilefold::python
