// Tensor maps for the bulk tensor copy engine (TMA): which tensors it can take, and their encoding.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "core/status.h"

namespace tilefold {

// The 128 bytes that the hardware reads, opaque. Passed to kernels by value as a `const
// __grid_constant__` parameter and used by address only.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

enum class FetchBytes { k128, k256 };

// A [batch, head, row, column] operand as TMA is to see it: dimensions {column, row, head, batch},
// boxes of `box_rows` rows by `box_columns` columns of one head, written to shared memory with the
// 128-byte swizzle (layout/hopper.h: swizzle128), or the 64-byte one where a box is no wider. Boxes
// may reach past the end of a row or a head: loads fill with zeros there, stores leave it out.
// With `group` > 0 the heads are groups of that many, dimensions {column, row, head of the group,
// group, batch}; a box has the rows of `box_heads` heads, one after another, and ends with the
// group as it does with a head.
struct TensorMapOperand {
  const char* name = "";  // in reasons: "q", "k", ...
  DType dtype = DType::kFloat16;
  const void* data = nullptr;
  Strides strides;  // elements
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int32_t box_rows = 0;      // at most 256
  int32_t box_columns = 64;  // at most 128 bytes
  int64_t group = 0;         // divides `heads`; 0: heads are not grouped
  int32_t box_heads = 1;
  // How much of device memory L2 fetches where a box misses it.
  FetchBytes fetch = FetchBytes::k256;
};

// Whether TMA can address the operand (one without elements: yes); if not, a reason that names the
// field. No device call.
bool tensor_map_takes(const TensorMapOperand& operand, Reason* reason);

// Encodes the operand's map. Needs tensor_map_takes(); no launch, no allocation, no
// synchronisation.
bool encode_tensor_map(const TensorMapOperand& operand, TensorMap* map, Reason* reason);

}  // namespace tilefold
