// Masking and the online softmax over the score fragments of one warp.
#pragma once

#include <cfloat>
#include <cstdint>
#include <limits>

#include "cuda/ptx/math.cuh"
#include "cuda/ptx/warp.cuh"
#include "cuda/sm80/params.h"
#include "layout/block_range.h"
#include "layout/fragments.h"

namespace tilefold::sm80 {

// The running maximum may lag behind the true one by this much (log2): P stays below 2^8, far from
// float16's 65504. PERF: most tiles then rescale nothing; docs/devlog.md, "What the prototype
// showed", has what that is worth.
constexpr float kRescaleThreshold = 8.0f;

// From this size of a scaled maximum on, the rounding of maximum * c would show in the common
// factor of P; the scores are then multiplied up front instead.
constexpr float kLargeScore = 1048576.0f;  // 2^20

constexpr float kMaskedScore = -std::numeric_limits<float>::infinity();

// Scores of keys that a row does not see become -inf. `row` and `key` are those of this lane's
// first element; blocks of 16 keys lie kKeyStride keys apart.
template <int kM16, int kN16, int kKeyStride>
__device__ __forceinline__ void mask_scores(float (&rS)[kM16][2 * kN16][4],
                                            const layout::Mask& mask, int row, int key) {
#pragma unroll
  for (int m = 0; m < kM16; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int begin = mask.key_begin(row + 16 * m + 8 * r) - key;
      const int end = mask.key_end(row + 16 * m + 8 * r) - key;
#pragma unroll
      for (int n = 0; n < 2 * kN16; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int column = n / 2 * kKeyStride + n % 2 * 8 + c;
          if (column < begin || column >= end) rS[m][n][2 * r + c] = kMaskedScore;
        }
      }
    }
  }
}

// Online softmax of kM16 blocks of 16 rows (FA2 section 3.1, Algorithm 1, lines 9 and 10).
//
// row_max is kept multiplied by the exponent's factor c = softmax_scale * log2(e), so that
// P = exp2(S c - row_max) is one fma and one ex2. It begins at -FLT_MAX, which no finite scaled
// score undercuts, and masked scores are -inf: S c - row_max is then never NaN on account of the
// mask, and a masked P is 0. row_sum is this lane's share of its rows' sums until finish().
template <int kM16>
struct OnlineSoftmax {
  float row_max[kM16][2];
  float row_sum[kM16][2];
  float exponent_scale;  // c, or 1 once the scores are multiplied up front
  bool prescale;         // uniform over the warp (pair: over both warps)

  __device__ __forceinline__ void init(float softmax_scale_log2, bool prescale_all) {
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        row_max[m][r] = -FLT_MAX;
        row_sum[m][r] = 0.0f;
      }
    }
    prescale = prescale_all;
    exponent_scale = prescale_all ? 1.0f : softmax_scale_log2;
  }

  // Multiplies scores by c up front. From the first tile on where c <= 0 (the maximum of S would
  // not be that of S c), or where c is no normal number; in a warp that has met scores beyond
  // kLargeScore, from that tile on: S c - row_max is then exactly 0 at the maximum.
  template <int kN8>
  __device__ __forceinline__ static void prescale_scores(float (&rS)[kM16][kN8][4],
                                                         float softmax_scale) {
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int n = 0; n < kN8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) rS[m][n][i] = prescaled(rS[m][n][i], softmax_scale);
      }
    }
  }
  __device__ __forceinline__ static float prescaled(float score, float softmax_scale) {
    return score * softmax_scale * kLog2E;
  }

  // This lane's maxima over its own elements of each row. -inf where all are masked.
  template <int kN8>
  __device__ __forceinline__ static void lane_max(float (&tile_max)[kM16][2],
                                                  const float (&rS)[kM16][kN8][4]) {
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float max = ptx::max_f32(rS[m][0][2 * r], rS[m][0][2 * r + 1]);
#pragma unroll
        for (int n = 1; n < kN8; ++n) {
          max = ptx::max_f32(max, rS[m][n][2 * r]);
          max = ptx::max_f32(max, rS[m][n][2 * r + 1]);
        }
        tile_max[m][r] = max;
      }
    }
  }

  // Whether this lane has an element further above the running maximum than the threshold.
  __device__ __forceinline__ bool exceeds(const float (&tile_max)[kM16][2]) const {
    float excess = -FLT_MAX;
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        excess = ptx::max_f32(excess, ptx::fma_rn(tile_max[m][r], exponent_scale, -row_max[m][r]));
      }
    }
    return excess > kRescaleThreshold;
  }

  // tile_max becomes the maxima of whole rows (of this warp's keys).
  __device__ __forceinline__ static void quad_max(float (&tile_max)[kM16][2]) {
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        tile_max[m][r] = ptx::max_f32(tile_max[m][r], ptx::shfl_xor(tile_max[m][r], 1));
        tile_max[m][r] = ptx::max_f32(tile_max[m][r], ptx::shfl_xor(tile_max[m][r], 2));
      }
    }
  }

  // Whether a row's maximum is so large that the scores must be multiplied up front.
  __device__ __forceinline__ bool large(const float (&tile_max)[kM16][2]) const {
    bool any = false;
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float scaled = tile_max[m][r] * exponent_scale;
        any = any || scaled > kLargeScore || (scaled < -kLargeScore && scaled >= -FLT_MAX);
      }
    }
    return any;
  }

  // row_max takes in tile_max (whole rows); row_sum and rO shrink by exp2(old - new).
  template <int kD8>
  __device__ __forceinline__ void rescale(const float (&tile_max)[kM16][2],
                                          float (&rO)[kM16][kD8][4]) {
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float new_max = ptx::max_f32(row_max[m][r], tile_max[m][r] * exponent_scale);
        const float scores_scale = ptx::ex2_approx_ftz(row_max[m][r] - new_max);
        row_max[m][r] = new_max;
        row_sum[m][r] *= scores_scale;
#pragma unroll
        for (int d = 0; d < kD8; ++d) {
          rO[m][d][2 * r] *= scores_scale;
          rO[m][d][2 * r + 1] *= scores_scale;
        }
      }
    }
  }

  // rS = exp2(rS c - row_max), row_sum += its rows' sums. The sum takes P before it is rounded to
  // 16 bits.
  template <int kN8>
  __device__ __forceinline__ void exponentiate(float (&rS)[kM16][kN8][4]) {
#pragma unroll
    for (int n = 0; n < kN8; ++n) {
#pragma unroll
      for (int m = 0; m < kM16; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          rS[m][n][i] =
              ptx::ex2_approx_ftz(ptx::fma_rn(rS[m][n][i], exponent_scale, -row_max[m][i / 2]));
          row_sum[m][i / 2] += rS[m][n][i];
        }
      }
    }
  }

  // row_sum becomes the sums of whole rows (of this warp's keys).
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int m = 0; m < kM16; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        row_sum[m][r] += ptx::shfl_xor(row_sum[m][r], 1);
        row_sum[m][r] += ptx::shfl_xor(row_sum[m][r], 2);
      }
    }
  }
};

}  // namespace tilefold::sm80
