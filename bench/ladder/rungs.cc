// The rungs in order.
#include "ladder.h"

namespace tilefold::ladder {

std::span<const Rung> rungs() {
  static constexpr auto kNone = [](const Problem&) -> size_t { return 0; };
  static const Rung all[] = {
      {"naive", "three kernels; S and P through global memory", &naive_workspace_bytes, &run_naive},
      {"flash1", "tiles and online softmax; K/V outside, Q inside, split-K",
       &flash1_workspace_bytes, &run_flash1},
      {"flash2", "loops swapped, split-Q; O stays in registers", kNone, &run_flash2},
      {"swizzle", "shared memory without bank conflicts", kNone, &run_swizzle},
      {"pipeline", "two stages of K and V by cp.async", kNone, &run_pipeline},
  };
  return all;
}

}  // namespace tilefold::ladder
