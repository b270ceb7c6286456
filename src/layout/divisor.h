// Division by a number that is known before a launch, as a multiplication.
#pragma once

#include <cstdint>

#include "layout/host_device.h"

namespace tilefold::layout {

// Quotients of numbers below 2^31. With l = ceil(log2 d) and m = ceil(2^(31 + l) / d), which fits
// 32 bits, floor(n / d) = floor(n m / 2^(31 + l)) for n < 2^31 (Granlund and Montgomery, "Division
// by invariant integers using multiplication", 1994, theorem 4.2). Integer division takes a GPU
// some 20 dependent instructions, and every CTA begins with three.
struct Divisor {
  uint32_t divisor = 1;
  uint32_t multiplier = 0;
  uint32_t shift = 0;

  Divisor() = default;
  constexpr explicit Divisor(uint32_t d) : divisor(d) {
    if (d <= 1) {
      divisor = 1;
      return;
    }
    uint32_t log2 = 1;
    while ((uint64_t{1} << log2) < d) ++log2;
    const uint64_t power = uint64_t{1} << (31 + log2);
    multiplier = static_cast<uint32_t>((power + d - 1) / d);
    shift = log2 - 1;
  }

  TILEFOLD_HOST_DEVICE constexpr uint32_t quotient(uint32_t n) const {
    if (divisor == 1) return n;
    return static_cast<uint32_t>(static_cast<uint64_t>(n) * multiplier >> 32) >> shift;
  }
};

}  // namespace tilefold::layout
