// Rung "pipeline": K and V have two places each in shared memory, and cp.async fills one of them,
// past the registers, while the tensor cores work from the other. One barrier a tile does for both
// directions: behind it tile j is complete for everyone, and tile j - 1, whose place the next copy
// takes, has been read by everyone.
#include "cuda/ptx/cp_async.cuh"
#include "ladder.h"
#include "swizzle.cuh"
#include "tile.cuh"

namespace tilefold::ladder {
namespace {

constexpr int kStages = 2;

template <int kHeadDim>
constexpr int kTileBytes = kBlockN* kHeadDim * 2;

template <int kHeadDim>
constexpr int kSmemBytes = kBlockM* kHeadDim * 2 + kStages * 2 * kTileBytes<kHeadDim>;

// Starts the copy of a tile; nothing waits.
template <int kRows, int kHeadDim, class Layout>
__device__ __forceinline__ void copy_tile_async(uint32_t to, const uint16_t* from) {
  constexpr int kChunksPerRow = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < kRows * kChunksPerRow / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    ptx::cp_async_16(to + Layout::offset(at / kChunksPerRow, at % kChunksPerRow), from + at * 8);
  }
}

template <int kHeadDim>
__global__ __launch_bounds__(kThreads) void pipeline_kernel(
    const __grid_constant__ Problem problem) {
  using Layout = SwizzledLayout<kHeadDim>;
  const uint32_t sQ = ptx::shared_address(ptx::dynamic_shared_memory());
  const uint32_t stages = sQ + kBlockM * kHeadDim * 2;
  const int warp_row = threadIdx.x / 32 * kRowsPerWarp;
  const int64_t head_rows = int64_t{blockIdx.y} * problem.seqlen;
  const int64_t m_start = int64_t{blockIdx.x} * kBlockM;
  const int num_tiles = problem.seqlen / kBlockN;

  // Tile j of K and V goes to stage j % kStages, as one group of copies.
  const auto load = [&](int tile) {
    const uint32_t sK = stages + tile % kStages * 2 * kTileBytes<kHeadDim>;
    const int64_t row = head_rows + int64_t{tile} * kBlockN;
    copy_tile_async<kBlockN, kHeadDim, Layout>(sK, problem.k + row * kHeadDim);
    copy_tile_async<kBlockN, kHeadDim, Layout>(sK + kTileBytes<kHeadDim>,
                                               problem.v + row * kHeadDim);
    ptx::cp_async_commit_group();
  };

  copy_tile_async<kBlockM, kHeadDim, Layout>(sQ, problem.q + (head_rows + m_start) * kHeadDim);
  load(0);  // Q travels in the first group
  RowState<kHeadDim> state;
  state.reset();
  for (int tile = 0; tile < num_tiles; ++tile) {
    ptx::cp_async_wait_group<0>();  // this thread's part of tile `tile` has landed
    ptx::barrier_sync_cta();        // everyone's has, and everyone is done with tile - 1
    if (tile + 1 < num_tiles) load(tile + 1);
    const uint32_t sK = stages + tile % kStages * 2 * kTileBytes<kHeadDim>;
    float rS[kMTiles][kBlockN / 8][4];
    compute_scores<kHeadDim, kBlockN / 8, Layout, Layout>(rS, sQ, warp_row, sK, 0);
    state.online_softmax(rS, problem.scale * kLog2e);
    accumulate_output<kHeadDim, kBlockN / 8, Layout>(state.rO, rS, sK + kTileBytes<kHeadDim>, 0);
  }
  const int64_t row = head_rows + m_start + warp_row;
  state.write(problem.o + row * kHeadDim, problem.lse + row, problem.scale);
}

template <int kHeadDim>
cudaError_t run(const Problem& problem, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(problem.seqlen / kBlockM),
                  static_cast<unsigned>(problem.num_heads));
  return launch(&pipeline_kernel<kHeadDim>, grid, kSmemBytes<kHeadDim>, stream, problem);
}

}  // namespace

cudaError_t run_pipeline(const Problem& problem, cudaStream_t stream) {
  return problem.head_dim == 64 ? run<64>(problem, stream) : run<128>(problem, stream);
}

}  // namespace tilefold::ladder
