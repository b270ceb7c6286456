// Programmatic dependent launch (PTX ISA 9.7.13.13, griddepcontrol): a grid that starts while the
// one before it on the stream still runs. Compute capability 9.0.
#pragma once

namespace tilefold::ptx {

// Lets the next grid of the stream start, if it was launched to do so.
__device__ __forceinline__ void launch_dependent_grids() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the grids before have ended and their writes are visible.
__device__ __forceinline__ void wait_for_prior_grids() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace tilefold::ptx
