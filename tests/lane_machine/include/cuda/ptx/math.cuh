// Host meaning of src/cuda/ptx/math.cuh.
#pragma once

#include <cmath>

#include "core/problem.h"
#include "lane_machine/device.h"
#include "lane_machine/numbers.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline float ex2_approx_ftz(float x) {
  device::count_op(lane_machine::Op::kSpecialFunction);
  return lane_machine::exp2_ftz(x);
}

inline float lg2_approx_ftz(float x) {
  device::count_op(lane_machine::Op::kSpecialFunction);
  return lane_machine::log2_ftz(x);
}

inline float rcp_approx_ftz(float x) {
  device::count_op(lane_machine::Op::kSpecialFunction);
  return lane_machine::flush_subnormal(1.0f / lane_machine::flush_subnormal(x));
}

inline float fma_rn(float a, float b, float c) { return std::fma(a, b, c); }

inline float max_f32(float a, float b) { return std::fmax(a, b); }

template <DType kDType>
uint32_t fma_rn_x2(uint32_t a, uint32_t b, uint32_t c) {
  constexpr bool kBfloat = kDType == DType::kBFloat16;
  const auto half = [&](int shift) -> uint32_t {
    const auto widen = [&](uint32_t x) {
      return lane_machine::narrow_to_float<kBfloat>(static_cast<uint16_t>(x >> shift));
    };
    const float sum = std::fma(widen(a), widen(b), widen(c));
    return kBfloat ? lane_machine::float_to_bfloat16(sum) : lane_machine::float_to_half(sum);
  };
  return half(0) | half(16) << 16;
}

}  // namespace tilefold::ptx
