// What a compiled Hopper kernel is: its tile, its stages, and the choices that measurement made for
// it; and the shared memory and registers that follow.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "layout/hopper.h"

namespace tilefold::sm90 {

using layout::kWarpgroupRows;
using layout::kWarpgroupThreads;

inline constexpr int kMaxHeadDim = 256;
inline constexpr int kSharedMemoryLimit =
    232448;  // bytes a CTA may opt in to, compute capability 9.0
inline constexpr int kBarrierBytes = 8;
inline constexpr int kTileRingSlots = 2;

// A CTA has `warpgroups` consumer warpgroups of 64 query rows each (block_m = Br of the papers),
// then one producer warpgroup. Keys and values pass in blocks of block_n rows (Bc).
struct ForwardConfig {
  DType dtype = DType::kFloat16;
  int head_dim = 0;    // of Q and K: the tile's; smaller ones are filled with zeros
  int head_dim_v = 0;  // of V and O; 0: head_dim
  int warpgroups = 0;  // 2 to 4
  int block_n = 0;
  int stages = 0;              // K tiles and V tiles in flight
  int q_stages = 2;            // 2: the next tile's Q arrives while this tile computes
  int o_stages = 0;            // chunks of 64 columns of O that leave at a time; 0: all, over Q
  bool masked = false;         // serves masks and any scale; false: positive scale, no mask
  bool order_barrier = false;  // warpgroups take turns at the tensor cores
  bool skip_blocks = false;    // masked: a warpgroup passes over blocks that its rows do not see
  bool pack_heads = false;     // rows of all heads of a group, layout::PackedRows; at most 64 each

  TILEFOLD_HOST_DEVICE constexpr int dim_v() const {
    return head_dim_v == 0 ? head_dim : head_dim_v;
  }
  TILEFOLD_HOST_DEVICE constexpr int block_m() const { return warpgroups * kWarpgroupRows; }
  TILEFOLD_HOST_DEVICE constexpr int consumer_threads() const {
    return warpgroups * kWarpgroupThreads;
  }
  TILEFOLD_HOST_DEVICE constexpr int threads() const {
    return consumer_threads() + kWarpgroupThreads;
  }

  // Whether CTAs count tiles: under a mask these differ in length, those of packed rows do not.
  TILEFOLD_HOST_DEVICE constexpr bool counts_tiles() const { return masked && !pack_heads; }

  // Registers a thread after setmaxnreg. The CTA is entered with 168 (384 threads), 128 (512) or 96
  // (640) a thread; what the producer gives back the consumers take.
  TILEFOLD_HOST_DEVICE constexpr int consumer_registers() const {
    return warpgroups == 2 ? 232 : warpgroups == 3 ? 160 : 112;
  }
  TILEFOLD_HOST_DEVICE constexpr int producer_registers() const {
    return warpgroups == 2 ? 40 : 32;
  }

  // Shared memory, in this order, bytes from its start. Tiles are in whole chunks of 64 columns.
  TILEFOLD_HOST_DEVICE constexpr int q_bytes() const {  // one warpgroup's rows
    return kWarpgroupRows * layout::padded_columns(head_dim) * 2;
  }
  TILEFOLD_HOST_DEVICE constexpr int k_bytes() const {
    return block_n * layout::padded_columns(head_dim) * 2;
  }
  TILEFOLD_HOST_DEVICE constexpr int v_bytes() const {
    return block_n * layout::padded_columns(dim_v()) * 2;
  }
  TILEFOLD_HOST_DEVICE constexpr int q_offset(int stage, int warpgroup) const {
    return (stage * warpgroups + warpgroup) * q_bytes();
  }
  TILEFOLD_HOST_DEVICE constexpr int k_offset(int stage) const {
    return q_offset(q_stages, 0) + stage * k_bytes();
  }
  TILEFOLD_HOST_DEVICE constexpr int v_offset(int stage) const {
    return k_offset(stages) + stage * v_bytes();
  }
  // A chunk of a warpgroup's O on its way out: in a ring of the warpgroup's, or where its Q was.
  TILEFOLD_HOST_DEVICE constexpr int o_offset(int q_stage, int warpgroup, int chunk) const {
    constexpr int kChunkBytes = kWarpgroupRows * layout::kSwizzleRowBytes;
    if (o_stages == 0) return q_offset(q_stage, warpgroup) + chunk * kChunkBytes;
    return v_offset(stages) + (warpgroup * o_stages + chunk % o_stages) * kChunkBytes;
  }
  TILEFOLD_HOST_DEVICE constexpr int o_chunks() const {
    return layout::padded_columns(dim_v()) / layout::kChunkColumns;
  }
  // Barriers: full and empty of every K stage, V stage, and warpgroup's Q stage; full and empty of
  // the ring through which the producer hands out tiles.
  TILEFOLD_HOST_DEVICE constexpr int barriers_offset() const {
    return o_stages == 0 ? v_offset(stages) : o_offset(0, warpgroups, 0);
  }
  TILEFOLD_HOST_DEVICE constexpr int full_k(int stage) const {
    return barriers_offset() + stage * kBarrierBytes;
  }
  TILEFOLD_HOST_DEVICE constexpr int empty_k(int stage) const { return full_k(stages + stage); }
  TILEFOLD_HOST_DEVICE constexpr int full_v(int stage) const { return full_k(2 * stages + stage); }
  TILEFOLD_HOST_DEVICE constexpr int empty_v(int stage) const { return full_k(3 * stages + stage); }
  TILEFOLD_HOST_DEVICE constexpr int full_q(int stage, int warpgroup) const {
    return full_k(4 * stages + stage * warpgroups + warpgroup);
  }
  TILEFOLD_HOST_DEVICE constexpr int empty_q(int stage, int warpgroup) const {
    return full_q(q_stages + stage, warpgroup);
  }
  TILEFOLD_HOST_DEVICE constexpr int full_tile(int slot) const {
    return empty_q(q_stages, 0) + slot * kBarrierBytes;
  }
  TILEFOLD_HOST_DEVICE constexpr int empty_tile(int slot) const {
    return full_tile(kTileRingSlots + slot);
  }
  TILEFOLD_HOST_DEVICE constexpr int tile_ring(int slot) const {
    return empty_tile(kTileRingSlots) + slot * 4;
  }
  TILEFOLD_HOST_DEVICE constexpr int smem_bytes() const { return tile_ring(kTileRingSlots); }

  TILEFOLD_HOST_DEVICE constexpr bool valid() const {
    return (dtype == DType::kFloat16 || dtype == DType::kBFloat16) && head_dim % 16 == 0 &&
           dim_v() % 16 == 0 && dim_v() <= head_dim && head_dim <= kMaxHeadDim && warpgroups >= 2 &&
           warpgroups <= 4 && block_n % 16 == 0 && block_n <= 256 && stages >= 2 &&
           (q_stages == 1 || q_stages == 2) &&
           (o_stages == 0 || (q_stages == 1 && !pack_heads && o_chunks() % o_stages == 0 &&
                              dim_v() % layout::kChunkColumns == 0)) &&
           !(skip_blocks && !masked) && !(pack_heads && !(skip_blocks && order_barrier)) &&
           smem_bytes() <= kSharedMemoryLimit;
  }
};

}  // namespace tilefold::sm90
