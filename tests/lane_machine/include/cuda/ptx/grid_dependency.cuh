// Host meaning of src/cuda/ptx/grid_dependency.cuh: the machine runs one grid at a time.
#pragma once

namespace tilefold::ptx {

inline void launch_dependent_grids() {}
inline void wait_for_prior_grids() {}

}  // namespace tilefold::ptx
