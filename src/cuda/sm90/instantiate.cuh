// Turns a TILEFOLD_SM90_ROW line of kernels.def into its kernel; included by the translation unit
// that CMake writes for the line.
#pragma once

#include "cuda/sm90/forward_kernel.cuh"

// The kernel carries the row's name in profilers; <name>_kernel() is what sm90_kernels.cc launches.
#define TILEFOLD_SM90_ROW(name, ...)                                           \
  namespace tilefold::sm90 {                                                   \
  __global__ void __launch_bounds__(ForwardConfig{__VA_ARGS__}.threads(), 1)   \
      name(const __grid_constant__ ForwardParams params) {                     \
    forward<ForwardConfig{__VA_ARGS__}>(params);                               \
  }                                                                            \
  const void* name##_kernel();                                                 \
  const void* name##_kernel() { return reinterpret_cast<const void*>(&name); } \
  }
