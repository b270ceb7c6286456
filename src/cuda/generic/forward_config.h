// The tile of the plain CUDA kernel.
#pragma once

#include "core/problem.h"
#include "layout/host_device.h"

namespace tilefold::generic {

struct ForwardConfig {
  DType dtype = DType::kFloat32;
  int rows_per_thread = 4;  // 4 serves long queries; 1 wastes less of a tile on a handful of rows
  int slab = 128;           // columns of O that a CTA owns

  // Threads form a 16 x 16 square: threadIdx.x / 16 picks the rows, threadIdx.x % 16 the columns.
  static constexpr int kThreadRows = 16;
  static constexpr int kThreadColumns = 16;
  static constexpr int kThreads = kThreadRows * kThreadColumns;
  static constexpr int kMinCtas = 2;  // of a multiprocessor: caps a thread at 128 registers
  static constexpr int kBlockN = 64;  // keys of a tile (the papers' Bc)
  static constexpr int kChunk = 32;   // head-dim columns (QK) or keys (PV) in shared memory at once
  static constexpr int kVector = 4;   // floats of a 16-byte shared-memory access

  TILEFOLD_HOST_DEVICE constexpr int block_m() const { return kThreadRows * rows_per_thread; }
  // Pitches keep rows 16-byte aligned and shift the bank by 4 from one row to the next.
  TILEFOLD_HOST_DEVICE constexpr int q_pitch() const { return block_m() + kVector; }
  static constexpr int kKPitch = kBlockN + kVector;

  TILEFOLD_HOST_DEVICE constexpr int outputs_per_thread() const { return slab / kThreadColumns; }

  TILEFOLD_HOST_DEVICE constexpr int operand_floats() const {
    const int qk = kChunk * (q_pitch() + kKPitch);
    const int v = kChunk * slab;
    return qk > v ? qk : v;
  }
  TILEFOLD_HOST_DEVICE constexpr int probability_floats() const { return kBlockN * q_pitch(); }
  TILEFOLD_HOST_DEVICE constexpr int smem_bytes() const {
    return 4 * (operand_floats() + probability_floats());
  }
  // 48 KiB are had without opting in, on every GPU.
  TILEFOLD_HOST_DEVICE constexpr bool valid() const {
    return (rows_per_thread == 1 || rows_per_thread == kVector) &&
           slab % (kVector * kThreadColumns) == 0 && smem_bytes() <= 48 * 1024;
  }
};

}  // namespace tilefold::generic
