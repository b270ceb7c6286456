// What the lane machine keeps in the 128 opaque bytes of a TensorMap.
#pragma once

#include <cstdint>

namespace tilefold::lane_machine {

struct HostTensorMap {
  static constexpr uint64_t kMagic = 0x70616d726f736e74u;
  uint64_t magic = kMagic;
  std::byte* data = nullptr;
  int64_t dims[5] = {};     // columns, rows, heads, batches; of rank 5: heads of a group, groups
  int64_t strides[5] = {};  // bytes; [0] is the element's size
  int32_t rank = 4;
  int32_t box_rows = 0;
  int32_t box_columns = 0;
  int32_t box_heads = 1;
};
static_assert(sizeof(HostTensorMap) <= 128);

}  // namespace tilefold::lane_machine
