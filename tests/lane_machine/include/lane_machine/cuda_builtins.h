// The CUDA words that kernel files use without an include; force-included before every kernel file.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tilefold::lane_machine {

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

}  // namespace tilefold::lane_machine

// Those of the lane that runs: the scheduler sets them before it resumes a fiber. Plain globals, so
// that a debugger can say `break forward.cuh:120 if threadIdx.x == 37`.
extern tilefold::lane_machine::Dim3 threadIdx;
extern tilefold::lane_machine::Dim3 blockIdx;
extern tilefold::lane_machine::Dim3 blockDim;
extern tilefold::lane_machine::Dim3 gridDim;

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
