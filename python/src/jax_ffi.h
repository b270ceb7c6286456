// The XLA handler that tilefold.jax.attention compiles to.
#pragma once

#include "xla_ffi.h"

namespace tilefold::python {

// Arguments q, k, v; results o, and lse if there is a second one. All dense and row-major, of rank
// 4 or more (o, q, k, v; leading axes beyond the batch are folded into it) and 3 or more (lse).
// Attributes: see jax_ffi.cc. XLA calls it from its own threads, without the interpreter's lock.
xla::Error* attention_handler_cpu(xla::CallFrame* frame);
xla::Error* attention_handler_cuda(xla::CallFrame* frame);

}  // namespace tilefold::python
