// Elements of tensors as float, over the reference's number formats.
#pragma once

#include <tilefold/tilefold.hpp>

#include "number_formats.h"

namespace tilefold::cli {

/// The reference's name of a type.
constexpr reference::DType reference_type(DataType type) {
  switch (type) {
    case DataType::kFloat16: return reference::DType::kFloat16;
    case DataType::kBFloat16: return reference::DType::kBFloat16;
    case DataType::kFloat32: break;
  }
  return reference::DType::kFloat32;
}

/// The element at `address`, exactly.
inline float load_number(DataType type, const void* address) {
  return reference::load_element(reference_type(type), address);
}

/// Stores `value` rounded to the type.
inline void store_number(DataType type, void* address, float value) {
  reference::store_element(reference_type(type), address, value);
}

}  // namespace tilefold::cli
