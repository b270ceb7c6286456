// How long a Hopper kernel is expected to take for a problem: what the choice among rows goes by.
#pragma once

#include "core/kernel.h"
#include "cuda/sm90/forward_config.h"

namespace tilefold::sm90 {

// What part of the GPU's tensor peak the row is expected to reach for the problem, 0 to 1: useful
// products over those that its tiles compute, times the speed measured for the row on long
// sequences, times the share of the multiprocessors that have work. Cheap: looks at a few tiles.
double expected_efficiency(const ForwardConfig& config, const ForwardProblem& problem,
                           const DeviceProperties& device);

// Whether the problem has so few query tiles, and so many keys to each, that kernels which split
// the keys among CTAs (sm80's) use the GPU better than one tile per CTA can.
bool wants_split_keys(const ForwardConfig& config, const ForwardProblem& problem,
                      const DeviceProperties& device);

}  // namespace tilefold::sm90
