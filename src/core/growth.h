// Structs that grow from release to release: each begins with the size that its caller knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "tilefold/tilefold.h"

namespace tilefold {

// The sizes in release 0.1.0, of which every caller has at least that much. They never change.
inline constexpr size_t kFirstOptionsBytes = 56;
inline constexpr size_t kFirstDeviceInfoBytes = 432;
inline constexpr size_t kFirstKernelInfoBytes = 184;
static_assert(sizeof(tilefold_options) >= kFirstOptionsBytes);
static_assert(sizeof(tilefold_device_info) >= kFirstDeviceInfoBytes);
static_assert(sizeof(tilefold_kernel_info) >= kFirstKernelInfoBytes);

// A size beyond this is none of a struct of options: it was never initialised.
inline constexpr size_t kLargestOptionsBytes = 4096;

// Writes `value` to a caller's struct of `given` bytes (at least its first member), as far as the
// caller knows it. What the caller has beyond it stays.
template <typename Struct>
void write_known(const Struct& value, size_t given, void* to) {
  static_assert(offsetof(Struct, struct_bytes) == 0);
  std::memcpy(to, &value, std::min(given, sizeof(value)));
  std::memcpy(to, &given, sizeof(given));
}

// The other direction: what a caller's struct of `given` bytes says, over the defaults in `value`
// of the members that the caller does not know.
template <typename Struct>
void read_known(const void* from, size_t given, Struct* value) {
  static_assert(offsetof(Struct, struct_bytes) == 0);
  std::memcpy(value, from, std::min(given, sizeof(*value)));
  value->struct_bytes = sizeof(*value);
}

}  // namespace tilefold
