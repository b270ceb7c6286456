// The float32 FMA rate that this machine's cores reach at once.
#pragma once

namespace tilefold::bench {

// GFLOP/s of `num_threads` threads that do nothing but fused multiply-adds in registers, with the
// widest vectors that the CPU back end uses here.
double measure_fma_peak(int num_threads, double seconds);

}  // namespace tilefold::bench
