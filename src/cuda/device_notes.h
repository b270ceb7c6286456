// Why a CUDA device cannot be used, or none can: sentences, apart from the runtime that finds out.
#pragma once

#include <cstdio>

#include "core/kernel.h"

namespace tilefold {

constexpr int kNoteBytes = 200;

// Sets `usable` and `note` by the compute capability.
inline void note_usability(DeviceProperties* device) {
  constexpr int32_t kOldestComputeCapability = 80;
  device->usable = device->compute_capability >= kOldestComputeCapability;
  device->note[0] = '\0';
  if (device->usable) return;
  std::snprintf(device->note, sizeof(device->note),
                "its compute capability is %d.%d; the CUDA back ends need 8.0 (Ampere) or later",
                device->compute_capability / 10, device->compute_capability % 10);
}

// Why the runtime shows no device. Versions as CUDA numbers them, 1000 * major + 10 * minor; a
// driver version of 0 means that there is no driver. `too_old` and `error` are what the runtime
// said. Every driver of the runtime's major version serves it.
inline void note_no_device(char (&note)[kNoteBytes], int driver_version, int runtime_version,
                           bool too_old, const char* error) {
  if (driver_version == 0) {
    std::snprintf(note, kNoteBytes, "no NVIDIA driver is installed");
  } else if (too_old) {
    std::snprintf(note, kNoteBytes,
                  "the NVIDIA driver serves CUDA %d.%d; this build needs a driver for CUDA %d.0 or "
                  "later",
                  driver_version / 1000, driver_version % 1000 / 10, runtime_version / 1000);
  } else {
    std::snprintf(note, kNoteBytes, "%s (the NVIDIA driver serves CUDA %d.%d)", error,
                  driver_version / 1000, driver_version % 1000 / 10);
  }
}

}  // namespace tilefold
