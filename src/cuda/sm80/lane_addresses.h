// Where each lane of an sm80 kernel begins in shared memory, and its steps from there.
#pragma once

#include <cstdint>

#include "cuda/sm80/config.h"
#include "layout/fragments.h"
#include "layout/host_device.h"
#include "layout/tile.h"

namespace tilefold::sm80 {

// The address of a lane's row of the first 16 x 16 block that its warp reads by ldmatrix. Every
// other block is an XOR and an addition of constants away (layout::Tile). `half` is 0 in flat
// kernels.
template <ForwardConfig kConfig>
struct LaneAddresses {
  static constexpr int kGroup = kConfig.warps_per_row_group();

  uint32_t q;        // rows of this warp (pair: of both)
  uint32_t k;        // stage 0; pair: this warp's first block of 16 keys
  uint32_t v;        // stage 0; pair: this warp's first block of 16 columns
  uint32_t p;        // pair only: P of both warps
  uint32_t p_store;  // pair only: this warp's first block of 16 keys

  TILEFOLD_HOST_DEVICE constexpr LaneAddresses(uint32_t shared, int row_group, int half, int lane)
      : q(0), k(0), v(0), p(0), p_store(0) {
    constexpr SharedPlan kPlan = kConfig.shared_plan();
    constexpr layout::Tile kQ = kConfig.q_tile();
    constexpr layout::Tile kKV = kConfig.kv_tile();
    constexpr layout::Tile kP = kConfig.p_tile();
    const layout::Coord a = layout::ldmatrix_x4_a(lane);
    const layout::Coord b = layout::ldmatrix_x4_b(lane);
    const layout::Coord b_trans = layout::ldmatrix_x4_b_trans(lane);
    q = shared + kPlan.q + kQ.offset_bytes(row_group * kConfig.rows_per_warp() + a.row, a.column);
    k = shared + kPlan.k + kKV.offset_bytes(b.row, b.column) + half * kKV.rows16_bytes();
    v = (shared + kPlan.v + kKV.offset_bytes(b_trans.row, b_trans.column)) ^
        (half * 2 * layout::kChunkBytes);
    if constexpr (kConfig.pair) {
      p = shared + kPlan.p + row_group * kP.bytes() + kP.offset_bytes(a.row, a.column);
      if constexpr (kConfig.load == LoadPath::kTma) {
        p_store = p;  // stmatrix takes the same addresses
      } else {
        p_store = shared + kPlan.p + row_group * kP.bytes() + kP.offset_bytes(lane / 4, 0) +
                  lane % 4 * 2 * layout::kElementBytes;
      }
      p_store ^= half * 2 * layout::kChunkBytes;
    }
  }

  // Q: rows 16 m .., columns 16 step ..
  TILEFOLD_HOST_DEVICE constexpr uint32_t q_block(int m, int step) const {
    constexpr layout::Tile kTile = kConfig.q_tile();
    return (q ^ kTile.k16_xor(step)) + kTile.k16_page_bytes(step) + m * kTile.rows16_bytes();
  }
  // K: the warp's n-th block of 16 keys, columns 16 step ..
  TILEFOLD_HOST_DEVICE static constexpr uint32_t k_block(uint32_t k, int n, int step) {
    constexpr layout::Tile kTile = kConfig.kv_tile();
    return (k ^ kTile.k16_xor(step)) + kTile.k16_page_bytes(step) +
           n * kGroup * kTile.rows16_bytes();
  }
  // V: keys 16 step .., the warp's d-th block of 16 columns.
  TILEFOLD_HOST_DEVICE static constexpr uint32_t v_block(uint32_t v, int step, int d) {
    constexpr layout::Tile kTile = kConfig.kv_tile();
    return (v ^ kTile.k16_xor(d * kGroup)) + kTile.k16_page_bytes(d * kGroup) +
           step * kTile.rows16_bytes();
  }
  // P as an A operand: rows 16 m .., keys 16 step ..
  TILEFOLD_HOST_DEVICE constexpr uint32_t p_block(int m, int step) const {
    constexpr layout::Tile kTile = kConfig.p_tile();
    return (p ^ kTile.k16_xor(step)) + kTile.k16_page_bytes(step) + m * kTile.rows16_bytes();
  }
  // Where the warp's P goes: rows 16 m .., its n-th block of 16 keys. Stores of 4 bytes: register i
  // of the A operand goes to p_store_register(that, i).
  TILEFOLD_HOST_DEVICE constexpr uint32_t p_store_block(int m, int n) const {
    constexpr layout::Tile kTile = kConfig.p_tile();
    return (p_store ^ kTile.k16_xor(n * kGroup)) + kTile.k16_page_bytes(n * kGroup) +
           m * kTile.rows16_bytes();
  }
  TILEFOLD_HOST_DEVICE static constexpr uint32_t p_store_register(uint32_t block, int i) {
    constexpr layout::Tile kTile = kConfig.p_tile();
    return (block ^ (i / 2 * layout::kChunkBytes)) + i % 2 * 8 * kTile.row_bytes();
  }
};

// O on its way out, over the row group's own rows of the Q tile. Each lane stores pairs of columns
// as the accumulator holds them ...
template <ForwardConfig kConfig>
TILEFOLD_HOST_DEVICE constexpr uint32_t output_lane_address(uint32_t shared, int row_group,
                                                            int half, int lane) {
  constexpr layout::Tile kTile = kConfig.q_tile();
  return (shared + kConfig.shared_plan().q +
          kTile.offset_bytes(row_group * kConfig.rows_per_warp() + lane / 4, 0) +
          lane % 4 * 2 * layout::kElementBytes) ^
         (half * 2 * layout::kChunkBytes);
}
// ... block m of 16 rows, n8 block d of the warp's columns, rows r = 0: 0..7, r = 1: 8..15.
template <ForwardConfig kConfig>
TILEFOLD_HOST_DEVICE constexpr uint32_t output_store_address(uint32_t lane_address, int m, int d,
                                                             int r) {
  constexpr layout::Tile kTile = kConfig.q_tile();
  const int block = d / 2 * kConfig.warps_per_row_group();
  return (lane_address ^ kTile.k16_xor(block) ^ (d % 2 * layout::kChunkBytes)) +
         kTile.k16_page_bytes(block) + m * kTile.rows16_bytes() + r * 8 * kTile.row_bytes();
}
// Reading it back, a lane takes chunk `lane % chunks` of a page of row `lane / chunks` and of every
// output_row_step() rows from there; pair: each warp half of the rows.
template <ForwardConfig kConfig>
TILEFOLD_HOST_DEVICE constexpr int output_row_step() {
  return 32 / kConfig.q_tile().chunks_per_page();
}
template <ForwardConfig kConfig>
TILEFOLD_HOST_DEVICE constexpr layout::Coord output_first_chunk(int half, int lane) {
  constexpr layout::Tile kTile = kConfig.q_tile();
  return {half * kConfig.rows_per_warp() / kConfig.warps_per_row_group() +
              lane / kTile.chunks_per_page(),
          lane % kTile.chunks_per_page()};
}

}  // namespace tilefold::sm80
