// The two matrix products of a key block on mma.m16n8k16: S = Q K^T and O += P V.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm80/config.h"
#include "cuda/sm80/lane_addresses.h"
#include "layout/fragments.h"

namespace tilefold::sm80 {

// Q fragments of all of D, for kernels that keep them.
template <ForwardConfig kConfig>
__device__ __forceinline__ void load_q_fragments(
    uint32_t (&rQ)[kConfig.m16()][kConfig.head_dim / 16][4], const LaneAddresses<kConfig>& lane) {
#pragma unroll
  for (int k = 0; k < kConfig.head_dim / 16; ++k) {
#pragma unroll
    for (int m = 0; m < kConfig.m16(); ++m) {
      ptx::ldmatrix_x4(rQ[m][k], lane.q_block(m, k));
    }
  }
}

// rS = Q K^T for this warp's rows and its blocks of 16 keys. The block's stage lies stage_bytes
// past stage 0.
template <ForwardConfig kConfig, int kQBlocks>
__device__ __forceinline__ void compute_scores(float (&rS)[kConfig.m16()][2 * kConfig.n16()][4],
                                               const uint32_t (&rQ)[kConfig.m16()][kQBlocks][4],
                                               const LaneAddresses<kConfig>& lane,
                                               uint32_t stage_bytes) {
  constexpr int kM16 = kConfig.m16();
  constexpr int kN16 = kConfig.n16();
  const uint32_t k = lane.k + stage_bytes;
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
        ptx::ldmatrix_x4(a[m], lane.q_block(m, step));
      }
    }
#pragma unroll
    for (int n = 0; n < kN16; ++n) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, lane.k_block(k, n, step));
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
    const float (&rP)[kConfig.m16()][2 * kConfig.n16()][4], const LaneAddresses<kConfig>& lane) {
#pragma unroll
  for (int m = 0; m < kConfig.m16(); ++m) {
#pragma unroll
    for (int n = 0; n < kConfig.n16(); ++n) {
      uint32_t a[4];
      pack_probabilities<kConfig.dtype>(a, rP[m], n);
      const uint32_t block = lane.p_store_block(m, n);
      if constexpr (kConfig.load == LoadPath::kTma) {
        ptx::stmatrix_x4(block, a);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) ptx::st_shared_u32(lane.p_store_register(block, i), a[i]);
      }
    }
  }
}

// rO += P V. Flat: P is this warp's rS. Pair: P comes from shared memory, and rO is this warp's
// blocks of 16 columns.
template <ForwardConfig kConfig>
__device__ __forceinline__ void accumulate_values(
    float (&rO)[kConfig.m16()][2 * kConfig.d16()][4],
    const float (&rP)[kConfig.m16()][2 * kConfig.n16()][4], const LaneAddresses<kConfig>& lane,
    uint32_t stage_bytes) {
  constexpr int kM16 = kConfig.m16();
  const uint32_t v = lane.v + stage_bytes;
#pragma unroll
  for (int step = 0; step < kConfig.block_n / 16; ++step) {
    uint32_t a[kM16][4];
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
      if constexpr (kConfig.pair) {
        ptx::ldmatrix_x4(a[m], lane.p_block(m, step));
      } else {
        pack_probabilities<kConfig.dtype>(a[m], rP[m], step);
      }
    }
#pragma unroll
    for (int d = 0; d < kConfig.d16(); ++d) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, lane.v_block(v, step, d));
#pragma unroll
      for (int m = 0; m < kM16; ++m) {
        ptx::mma_m16n8k16<kConfig.dtype>(rO[m][2 * d], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<kConfig.dtype>(rO[m][2 * d + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace tilefold::sm80
