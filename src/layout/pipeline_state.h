// The stage and phase of a ring of shared-memory buffers.
#pragma once

#include <cstdint>

#include "layout/host_device.h"

namespace tilefold::layout {

// Position n of a ring of kStages buffers: stage n mod kStages, in its (n div kStages)-th use. With
// mbarriers a consumer waits for `full` with parity phase, a producer for `empty` with parity
// phase ^ 1.
template <int kStages>
struct PipelineState {
  static_assert(kStages >= 1);
  int32_t stage = 0;
  uint32_t phase = 0;

  TILEFOLD_HOST_DEVICE constexpr void advance() {
    if constexpr (kStages == 1) {
      phase ^= 1;
    } else {
      ++stage;
      if (stage == kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  }
};

}  // namespace tilefold::layout
