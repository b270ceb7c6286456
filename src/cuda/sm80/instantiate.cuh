// Turns a line of kernels.def into a compiled kernel: included by the translation unit that the
// build generates for it.
#pragma once

#include "cuda/sm80/compiled_row.h"
#include "cuda/sm80/forward_kernel.cuh"

#define TILEFOLD_SM80_ROW(name, ...)                                                     \
  namespace tilefold::sm80 {                                                             \
  struct name##_row {                                                                    \
    static constexpr ForwardConfig kConfig = {__VA_ARGS__};                              \
  };                                                                                     \
  extern const CompiledRow name;                                                         \
  const CompiledRow name = {#name, name##_row::kConfig,                                  \
                            reinterpret_cast<const void*>(&forward_kernel<name##_row>)}; \
  }
