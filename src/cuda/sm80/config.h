// The compile-time configuration of an sm80 forward kernel, and the plan of its shared memory.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "layout/host_device.h"
#include "layout/tile.h"

namespace tilefold::sm80 {

// How K, V and Q reach shared memory.
enum class LoadPath : int32_t {
  kCpAsync,  // every thread copies 16-byte pieces; CTA barriers. Compute capability 8.0.
  kTma,      // one thread issues tensor copies; mbarriers. Compute capability 9.0.
};

constexpr int kMostRegisters = 255;  // of a lane

// Byte offsets from the start of dynamic shared memory.
struct SharedPlan {
  int32_t q;         // [block_m, head_dim]; O in the epilogue
  int32_t k;         // [stages][block_n, head_dim]
  int32_t v;         // [stages][block_n, head_dim]
  int32_t p;         // pair only: [pairs][32, block_n]
  int32_t exchange;  // pair only: [warps][32] float, row maxima and sums between the two warps
  int32_t barriers;  // TMA only: mbarriers, 8 bytes each
  int32_t bytes;
};

// A tile is kBlockM = `block_m` query rows (the papers' Br) by kBlockN = `block_n` keys (Bc).
//
// Flat: a warp owns block_m / num_warps whole rows, 32 where registers allow it: every K and V
// fragment that ldmatrix brings then feeds two mma.
// Pair: 32 rows of O do not fit into one warp beyond head dim 128, so two warps share 32 rows. Warp
// h of a pair (h = 0, 1) computes S for the key blocks of 16 numbered 2 i + h, takes the
// exponentials of those, puts them as P into shared memory, and accumulates O for the blocks of 16
// columns numbered 2 i + h from all of P.
struct ForwardConfig {
  DType dtype;
  int32_t head_dim;  // the tile's D and Dv; columns that a problem lacks are filled with zeros
  int32_t block_m;
  int32_t block_n;
  int32_t num_warps;
  int32_t stages;      // K/V tiles in flight
  int32_t shared_kib;  // it is for devices whose CTAs have this much: 99, 163 or 227 KiB
  LoadPath load = LoadPath::kCpAsync;
  bool pair = false;
  bool q_in_registers = false;
  int32_t min_ctas = 1;  // CTAs of one SM that registers must leave room for

  TILEFOLD_HOST_DEVICE constexpr int threads() const { return 32 * num_warps; }
  TILEFOLD_HOST_DEVICE constexpr int warps_per_row_group() const { return pair ? 2 : 1; }
  TILEFOLD_HOST_DEVICE constexpr int rows_per_warp() const {
    return block_m / num_warps * warps_per_row_group();
  }
  // Blocks of 16 rows, of 16 keys and of 16 columns of O that one warp accumulates.
  TILEFOLD_HOST_DEVICE constexpr int m16() const { return rows_per_warp() / 16; }
  TILEFOLD_HOST_DEVICE constexpr int n16() const { return block_n / 16 / warps_per_row_group(); }
  TILEFOLD_HOST_DEVICE constexpr int d16() const { return head_dim / 16 / warps_per_row_group(); }

  TILEFOLD_HOST_DEVICE constexpr layout::Tile q_tile() const { return {block_m, head_dim}; }
  TILEFOLD_HOST_DEVICE constexpr layout::Tile kv_tile() const { return {block_n, head_dim}; }
  TILEFOLD_HOST_DEVICE constexpr layout::Tile p_tile() const { return {rows_per_warp(), block_n}; }

  TILEFOLD_HOST_DEVICE constexpr int num_mbarriers() const {
    return load == LoadPath::kTma ? 4 * stages : 0;
  }
  TILEFOLD_HOST_DEVICE constexpr SharedPlan shared_plan() const {
    SharedPlan plan{};
    plan.q = 0;
    plan.k = plan.q + q_tile().bytes();
    plan.v = plan.k + stages * kv_tile().bytes();
    plan.p = plan.v + stages * kv_tile().bytes();
    plan.exchange = plan.p + (pair ? num_warps / 2 * p_tile().bytes() : 0);
    plan.barriers = plan.exchange + (pair ? num_warps * 32 * 4 : 0);
    plan.bytes = plan.barriers + num_mbarriers() * 8;
    return plan;
  }
  TILEFOLD_HOST_DEVICE constexpr int smem_bytes() const { return shared_plan().bytes; }

  // Accumulators and fragments that live across the loop, 32-bit registers a lane: an account, not
  // the compiler's count, which adds addresses and fragments in flight.
  TILEFOLD_HOST_DEVICE constexpr int registers() const {
    const int output = m16() * d16() * 8;
    const int scores = m16() * n16() * 8;
    const int query = q_in_registers ? m16() * head_dim / 16 * 4 : 0;
    return output + scores + query + 4 * m16();
  }

  TILEFOLD_HOST_DEVICE constexpr bool valid() const {
    const bool dtype_ok = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    const bool rows_ok =
        num_warps >= 1 && block_m % (16 * num_warps / warps_per_row_group()) == 0 &&
        (m16() == 1 || m16() == 2) && (!pair || (num_warps % 2 == 0 && m16() == 2));
    const bool tile_ok = q_tile().valid() && kv_tile().valid() && block_n % 32 == 0 && n16() >= 1 &&
                         d16() >= 1 && head_dim <= 256;
    const bool class_ok = shared_kib == 99 || shared_kib == 163 || shared_kib == 227;
    const bool registers_ok = registers() <= kMostRegisters;
    // The pair's K and V go through one buffer each; Q in registers is for flat kernels.
    const bool structure_ok =
        stages >= 1 && stages <= 4 && (!pair || stages == 1) && !(pair && q_in_registers);
    // Each pass of a cp.async copy covers whole groups of 8 rows.
    const bool copy_ok =
        load == LoadPath::kTma || (threads() / kv_tile().chunks_per_page() % 8 == 0 &&
                                   block_n % (threads() / kv_tile().chunks_per_page()) == 0 &&
                                   block_m % (threads() / q_tile().chunks_per_page()) == 0);
    return dtype_ok && rows_ok && tile_ok && class_ok && registers_ok && structure_ok && copy_ok &&
           smem_bytes() <= shared_kib * 1024 && block_m <= 256 && block_n <= 256;
  }
};

}  // namespace tilefold::sm80
