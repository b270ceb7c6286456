// How long a wait in a kernel may last.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// A wait traps after so many units of 2^32 ns (4.3 s), never if 0: builds for tests turn a hang
// into an error that way. In time, since how long one try may take is the hardware's choice.
#if defined(TILEFOLD_BOUNDED_SPINS)
inline constexpr uint32_t kWaitLimit = 3;  // 8.6 to 12.9 s
#else
inline constexpr uint32_t kWaitLimit = 0;  // no limit
#endif

}  // namespace tilefold::ptx
