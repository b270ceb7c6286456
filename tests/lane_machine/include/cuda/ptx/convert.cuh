// Host meaning of src/cuda/ptx/convert.cuh.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "lane_machine/device.h"
#include "lane_machine/numbers.h"

namespace tilefold::ptx {

using lane_machine::Site;
namespace device = lane_machine::device;

inline uint32_t cvt_f16x2(float low, float high) {
  device::count_op(lane_machine::Op::kConvert);
  return lane_machine::float_to_half(low) | static_cast<uint32_t>(lane_machine::float_to_half(high))
                                                << 16;
}

inline uint32_t cvt_bf16x2(float low, float high) {
  device::count_op(lane_machine::Op::kConvert);
  return lane_machine::float_to_bfloat16(low) |
         static_cast<uint32_t>(lane_machine::float_to_bfloat16(high)) << 16;
}

template <DType kDType>
uint32_t cvt_pack(float low, float high) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  return kDType == DType::kFloat16 ? cvt_f16x2(low, high) : cvt_bf16x2(low, high);
}

template <DType kDType>
float cvt_f32(uint32_t bits) {
  static_assert(kDType == DType::kFloat16 || kDType == DType::kBFloat16);
  return lane_machine::narrow_to_float<kDType == DType::kBFloat16>(static_cast<uint16_t>(bits));
}

}  // namespace tilefold::ptx
