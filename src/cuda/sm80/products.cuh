// The two matrix products of a key block on mma.m16n8k16: S = Q K^T and O += P V.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm80/config.h"
#include "layout/fragments.h"
#include "layout/tile.h"

namespace tilefold::sm80 {

// Where each lane's ldmatrix begins: the address of its row of the first 16 x 16 block that its
// warp reads. Every other block is an XOR and an addition of constants away (layout::Tile).
template <ForwardConfig kConfig>
struct LaneAddresses {
  uint32_t q;        // rows of this warp (pair: of both)
  uint32_t k;        // stage 0; pair: this warp's first block of 16 keys
  uint32_t v;        // stage 0; pair: this warp's first block of 16 columns
  uint32_t p;        // pair only: P of both warps
  uint32_t p_store;  // pair only: this warp's first block of 16 keys

  __device__ __forceinline__ LaneAddresses(uint32_t shared, int row_group, int half, int lane) {
    constexpr SharedPlan kPlan = kConfig.shared_plan();
    constexpr layout::Tile kKV = kConfig.kv_tile();
    constexpr layout::Tile kP = kConfig.p_tile();
    const layout::Coord a = layout::ldmatrix_x4_a(lane);
    const layout::Coord b = layout::ldmatrix_x4_b(lane);
    const layout::Coord b_trans = layout::ldmatrix_x4_b_trans(lane);
    q = shared + kPlan.q +
        kConfig.q_tile().offset_bytes(row_group * kConfig.rows_per_warp() + a.row, a.column);
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
};

// Q fragments of all of D, for kernels that keep them.
template <ForwardConfig kConfig>
__device__ __forceinline__ void load_q_fragments(
    uint32_t (&rQ)[kConfig.m16()][kConfig.head_dim / 16][4], uint32_t q) {
  constexpr layout::Tile kTile = kConfig.q_tile();
#pragma unroll
  for (int k = 0; k < kConfig.head_dim / 16; ++k) {
#pragma unroll
    for (int m = 0; m < kConfig.m16(); ++m) {
      ptx::ldmatrix_x4(rQ[m][k],
                       (q ^ kTile.k16_xor(k)) + kTile.k16_page_bytes(k) + m * kTile.rows16_bytes());
    }
  }
}

// rS = Q K^T for this warp's rows and its blocks of 16 keys. `k` is the lane's address in the
// block's stage.
template <ForwardConfig kConfig, int kQBlocks>
__device__ __forceinline__ void compute_scores(float (&rS)[kConfig.m16()][2 * kConfig.n16()][4],
                                               const uint32_t (&rQ)[kConfig.m16()][kQBlocks][4],
                                               uint32_t q, uint32_t k) {
  constexpr int kM16 = kConfig.m16();
  constexpr int kN16 = kConfig.n16();
  constexpr layout::Tile kQTile = kConfig.q_tile();
  constexpr layout::Tile kTile = kConfig.kv_tile();
#pragma unroll
  for (int m = 0; m < kM16; ++m) {
#pragma unroll
    for (int n = 0; n < 2 * kN16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rS[m][n][i] = 0.0f;
    }
  }
#pragma unroll
  for (int step = 0; step < kConfig.head_dim / 16; ++step) {
    uint32_t a[kM16][4];
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
      if constexpr (kConfig.q_in_registers) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = rQ[m][step][i];
      } else {
        ptx::ldmatrix_x4(a[m], (q ^ kQTile.k16_xor(step)) + kQTile.k16_page_bytes(step) +
                                   m * kQTile.rows16_bytes());
      }
    }
#pragma unroll
    for (int n = 0; n < kN16; ++n) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, (k ^ kTile.k16_xor(step)) + kTile.k16_page_bytes(step) +
                              n * kConfig.warps_per_row_group() * kTile.rows16_bytes());
#pragma unroll
      for (int m = 0; m < kM16; ++m) {
        ptx::mma_m16n8k16<kConfig.dtype>(rS[m][2 * n], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<kConfig.dtype>(rS[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// The A operand over the n-th block of 16 keys: two n8 accumulators are one k16 operand
// (layout::mma_m16n8k16_c).
template <DType kDType, int kN8>
__device__ __forceinline__ void pack_probabilities(uint32_t (&a)[4], const float (&rP)[kN8][4],
                                                   int n) {
  a[0] = ptx::cvt_pack<kDType>(rP[2 * n][0], rP[2 * n][1]);
  a[1] = ptx::cvt_pack<kDType>(rP[2 * n][2], rP[2 * n][3]);
  a[2] = ptx::cvt_pack<kDType>(rP[2 * n + 1][0], rP[2 * n + 1][1]);
  a[3] = ptx::cvt_pack<kDType>(rP[2 * n + 1][2], rP[2 * n + 1][3]);
}

// Pair: this warp's P to shared memory, rounded. Free of bank conflicts: the swizzle spreads the
// eight rows that a store touches.
template <ForwardConfig kConfig>
__device__ __forceinline__ void store_probabilities(
    const float (&rP)[kConfig.m16()][2 * kConfig.n16()][4], uint32_t p_store) {
  constexpr layout::Tile kTile = kConfig.p_tile();
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int n = 0; n < kConfig.n16(); ++n) {
      uint32_t a[4];
      pack_probabilities<kConfig.dtype>(a, rP[m], n);
      const uint32_t block =
          (p_store ^ kTile.k16_xor(2 * n)) + kTile.k16_page_bytes(2 * n) + m * kTile.rows16_bytes();
      if constexpr (kConfig.load == LoadPath::kTma) {
        ptx::stmatrix_x4(block, a);
      } else {
        ptx::st_shared_u32(block, a[0]);
        ptx::st_shared_u32(block + 8 * kTile.row_bytes(), a[1]);
        ptx::st_shared_u32(block ^ layout::kChunkBytes, a[2]);
        ptx::st_shared_u32((block ^ layout::kChunkBytes) + 8 * kTile.row_bytes(), a[3]);
      }
    }
  }
}

// rO += P V. Flat: P is this warp's rS. Pair: P comes from shared memory, and rO is this warp's
// blocks of 16 columns. `v` is the lane's address in the block's stage.
template <ForwardConfig kConfig>
__device__ __forceinline__ void accumulate_values(
    float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
    const float (&rP)[kConfig.m16()][2 * kConfig.n16()][4], uint32_t p, uint32_t v) {
  constexpr int kM16 = kConfig.m16();
  constexpr layout::Tile kTile = kConfig.kv_tile();
  constexpr layout::Tile kPTile = kConfig.p_tile();
#pragma unroll
  for (int step = 0; step < kConfig.block_n / 16; ++step) {
    uint32_t a[kM16][4];
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
      if constexpr (kConfig.pair) {
        ptx::ldmatrix_x4(a[m], (p ^ kPTile.k16_xor(step)) + kPTile.k16_page_bytes(step) +
                                   m * kPTile.rows16_bytes());
      } else {
        pack_probabilities<kConfig.dtype>(a[m], rP[m], step);
      }
    }
#pragma unroll
    for (int d = 0; d < kConfig.d16(); ++d) {
      const int block = d * kConfig.warps_per_row_group();
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, (v ^ kTile.k16_xor(block)) + kTile.k16_page_bytes(block) +
                                    step * kTile.rows16_bytes());
#pragma unroll
      for (int m = 0; m < kM16; ++m) {
        ptx::mma_m16n8k16<kConfig.dtype>(rO[m][2 * d], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<kConfig.dtype>(rO[m][2 * d + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace tilefold::sm80
