// Statuses and the sentence that goes with a failure, kept per thread.
#pragma once

#include "tilefold/tilefold.h"

namespace tilefold {

// Records the printf-formatted sentence as this thread's last error and returns `status`.
[[gnu::format(printf, 2, 3)]] tilefold_status fail(tilefold_status status, const char* format, ...);

const char* last_error();

// A reason written into a fixed buffer: "why this kernel cannot serve that problem". Never
// allocates.
struct Reason {
  char text[240] = "";
  bool wanted =
      true;  // false: set() does nothing, so that dispatch does not format what nobody reads
  [[gnu::format(printf, 2, 3)]] void set(const char* format, ...);
};

}  // namespace tilefold
