// The library's index maps for tilefold.draw: pictures of the functions that the kernels call.
#pragma once

#include <nanobind/nanobind.h>

namespace tilefold::python {

void add_layouts(nanobind::module_& module);

}  // namespace tilefold::python
