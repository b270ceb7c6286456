// Rung "swizzle": the kernel is that of "flash2" letter by letter, except that the chunks of a tile
// are permuted in shared memory, so that ldmatrix reads eight rows at once where it read them one
// by one.
#include "ladder.h"
#include "swizzle.cuh"
#include "tile.cuh"

namespace tilefold::ladder {
namespace {

template <int kHeadDim>
constexpr int kSmemBytes = (kBlockM + 2 * kBlockN) * kHeadDim * 2;

template <int kHeadDim>
__global__ __launch_bounds__(kThreads) void swizzle_kernel(
    const __grid_constant__ Problem problem) {
  using Layout = SwizzledLayout<kHeadDim>;
  const uint32_t sQ = ptx::shared_address(ptx::dynamic_shared_memory());
  const uint32_t sK = sQ + kBlockM * kHeadDim * 2;
  const uint32_t sV = sK + kBlockN * kHeadDim * 2;
  const int warp_row = threadIdx.x / 32 * kRowsPerWarp;
  const int64_t head_rows = int64_t{blockIdx.y} * problem.seqlen;
  const int64_t m_start = int64_t{blockIdx.x} * kBlockM;

  copy_tile<kBlockM, kHeadDim, Layout>(sQ, problem.q + (head_rows + m_start) * kHeadDim, kHeadDim);
  RowState<kHeadDim> state;
  state.reset();
  for (int64_t n_start = 0; n_start < problem.seqlen; n_start += kBlockN) {
    ptx::barrier_sync_cta();  // the readers of the last tiles are done
    copy_tile<kBlockN, kHeadDim, Layout>(sK, problem.k + (head_rows + n_start) * kHeadDim,
                                         kHeadDim);
    copy_tile<kBlockN, kHeadDim, Layout>(sV, problem.v + (head_rows + n_start) * kHeadDim,
                                         kHeadDim);
    ptx::barrier_sync_cta();  // the tiles are written
    float rS[kMTiles][kBlockN / 8][4];
    compute_scores<kHeadDim, kBlockN / 8, Layout, Layout>(rS, sQ, warp_row, sK, 0);
    state.online_softmax(rS, problem.scale * kLog2e);
    accumulate_output<kHeadDim, kBlockN / 8, Layout>(state.rO, rS, sV, 0);
  }
  const int64_t row = head_rows + m_start + warp_row;
  state.write(problem.o + row * kHeadDim, problem.lse + row, problem.scale);
}

template <int kHeadDim>
cudaError_t run(const Problem& problem, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(problem.seqlen / kBlockM),
                  static_cast<unsigned>(problem.num_heads));
  return launch(&swizzle_kernel<kHeadDim>, grid, kSmemBytes<kHeadDim>, stream, problem);
}

}  // namespace

cudaError_t run_swizzle(const Problem& problem, cudaStream_t stream) {
  return problem.head_dim == 64 ? run<64>(problem, stream) : run<128>(problem, stream);
}

}  // namespace tilefold::ladder
