// Number formats, 2^x, and rows of tensors to and from float32, for one SIMD target.
//
// Included once per SIMD target (see forward_targets.cc).
#if defined(TILEFOLD_CPU_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEFOLD_CPU_VECTOR_MATH_INL_H
#undef TILEFOLD_CPU_VECTOR_MATH_INL_H
#else
#define TILEFOLD_CPU_VECTOR_MATH_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "core/problem.h"
#include "cpu/convert.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilefold::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using VectorTag = hn::ScalableTag<float>;
using Vector = hn::Vec<VectorTag>;
using IntTag = hn::RebindToSigned<VectorTag>;
using UintTag = hn::RebindToUnsigned<VectorTag>;

constexpr VectorTag kTag{};
constexpr int64_t kLanes = hn::MaxLanes(VectorTag());

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// 2^x for x <= 0, relative error below 1.2e-7; 0 below -126 (and at -inf), NaN at NaN. For x > 0,
// which only rows that end in NaN have, anything.
HWY_INLINE Vector exp2_nonpositive(Vector x) {
  constexpr UintTag kUint{};
  // The addition leaves round(x) + 127 in the low bits of the mantissa.
  const Vector magic = hn::Set(kTag, 0x1.8p23f + 127.0f);
  const Vector shifted = hn::Add(x, magic);
  const Vector f = hn::Sub(x, hn::Sub(shifted, magic));
  // Minimax on [-0.5, 0.5], exact at 0.
  Vector p = hn::Set(kTag, 1.326472725e-3f);
  p = hn::MulAdd(p, f, hn::Set(kTag, 9.671512786e-3f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 5.550733745e-2f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 2.402224208e-1f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 6.931469776e-1f));
  p = hn::MulAdd(p, f, hn::Set(kTag, 1.0f));
  const Vector power = hn::BitCast(kTag, hn::ShiftLeft<23>(hn::BitCast(kUint, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kTag, -126.0f)), hn::Mul(p, power));
}

HWY_INLINE Vector load_as_float(const float* from) { return hn::LoadU(kTag, from); }

// The types that tensors are made of; float16 and bfloat16 are kept as bits.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

HWY_INLINE Vector load_as_float(const BFloat16* from) {
  constexpr UintTag kUint{};
  constexpr hn::Rebind<uint16_t, VectorTag> kHalf{};
  const auto bits = hn::LoadU(kHalf, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(kTag, hn::ShiftLeft<16>(hn::PromoteTo(kUint, bits)));
}

HWY_INLINE Vector load_as_float(const Float16* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  constexpr hn::Rebind<hwy::float16_t, VectorTag> kHalf{};
  return hn::PromoteTo(kTag, hn::LoadU(kHalf, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  // As float_from_float16().
  constexpr UintTag kUint{};
  constexpr hn::Rebind<uint16_t, VectorTag> kHalf{};
  const auto bits = hn::PromoteTo(kUint, hn::LoadU(kHalf, reinterpret_cast<const uint16_t*>(from)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(kUint, 0x7FFFu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(kUint, 0x8000u)));
  const Vector rebiased = hn::Mul(hn::BitCast(kTag, magnitude), hn::Set(kTag, 0x1p112f));
  const auto special = hn::IfThenElseZero(hn::Ge(rebiased, hn::Set(kTag, 65536.0f)),
                                          hn::BitCast(kTag, hn::Set(kUint, 0x7F800000u)));
  return hn::Or(hn::Or(rebiased, special), hn::BitCast(kTag, sign));
#endif
}

HWY_INLINE float to_float(float value) { return value; }
HWY_INLINE float to_float(Float16 value) { return float_from_float16(value.bits); }
HWY_INLINE float to_float(BFloat16 value) { return float_from_bfloat16(value.bits); }
HWY_INLINE void from_float(float value, float* to) { *to = value; }
HWY_INLINE void from_float(float value, Float16* to) { to->bits = float16_from_float(value); }
HWY_INLINE void from_float(float value, BFloat16* to) { to->bits = bfloat16_from_float(value); }

// Stores as many numbers as there are lanes.
HWY_INLINE void store_from_float(Vector value, float* to) { hn::StoreU(value, kTag, to); }

HWY_INLINE void store_from_float(Vector value, BFloat16* to) {
  constexpr UintTag kUint{};
  constexpr IntTag kInt{};
  constexpr hn::Rebind<uint16_t, VectorTag> kHalf{};
  const auto bits = hn::BitCast(kUint, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kUint, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(kUint, 0x7FFFu)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(kUint, 0x40u));
  const auto is_nan = hn::RebindMask(kUint, hn::IsNaN(value));
  const auto result = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::DemoteTo(kHalf, hn::BitCast(kInt, result)), kHalf,
             reinterpret_cast<uint16_t*>(to));
}

HWY_INLINE void store_from_float(Vector value, Float16* to) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  constexpr hn::Rebind<hwy::float16_t, VectorTag> kHalf{};
  hn::StoreU(hn::DemoteTo(kHalf, value), kHalf, reinterpret_cast<hwy::float16_t*>(to));
#else
  alignas(64) float lanes[kLanes];
  hn::StoreU(value, kTag, lanes);
  for (int64_t i = 0; i < kLanes; ++i) from_float(lanes[i], to + i);
#endif
}

// Converts n numbers, `stride` elements apart, into blocks of `block` floats that lie
// `block_stride` floats apart; the last one is filled up to 16 with zeros. Returns lanes that are
// NaN where a number was not finite, else 0.
template <typename T>
HWY_NOINLINE Vector pack_row(const T* from, int64_t stride, int64_t n, float* to, int64_t block,
                             int64_t block_stride) {
  Vector poison = hn::Zero(kTag);
  for (int64_t at = 0; at < n; at += block, to += block_stride) {
    const int64_t count = std::min(block, n - at);
    int64_t i = 0;
    if (stride == 1) {
      for (; i + kLanes <= count; i += kLanes) {
        const Vector x = load_as_float(from + at + i);
        poison = hn::MulAdd(x, hn::Zero(kTag), poison);
        hn::Store(x, kTag, to + i);
      }
    }
    if (i == count) continue;
    const int64_t unchecked = i;
    for (; i < count; ++i) to[i] = to_float(from[(at + i) * stride]);
    for (; i < round_up(count, 16); ++i) to[i] = 0.0f;
    for (i = unchecked; i < count; i += kLanes) {
      poison = hn::MulAdd(hn::Load(kTag, to + i), hn::Zero(kTag), poison);
    }
  }
  return poison;
}

HWY_INLINE bool any_nan(Vector x) { return !hn::AllFalse(kTag, hn::IsNaN(x)); }

// pack_row() for the tensor's dtype; `at` is the row's offset in elements.
HWY_INLINE Vector pack_row(DType dtype, const void* base, int64_t at, int64_t stride, int64_t n,
                           float* to, int64_t block, int64_t block_stride) {
  switch (dtype) {
    case DType::kFloat32:
      return pack_row(static_cast<const float*>(base) + at, stride, n, to, block, block_stride);
    case DType::kFloat16:
      return pack_row(static_cast<const Float16*>(base) + at, stride, n, to, block, block_stride);
    default:
      return pack_row(static_cast<const BFloat16*>(base) + at, stride, n, to, block, block_stride);
  }
}

// Converts a row of n floats to the tensor's type.
template <typename T>
HWY_NOINLINE void unpack_row(const float* from, int64_t n, T* to, int64_t stride) {
  int64_t d = 0;
  if (stride == 1) {
    for (; d + kLanes <= n; d += kLanes) store_from_float(hn::Load(kTag, from + d), to + d);
  }
  for (; d < n; ++d) from_float(from[d], to + d * stride);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilefold::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
