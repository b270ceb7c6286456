// The sm90 rows of the kernel table: which problems each takes, which it is the best for, and its
// launch.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <limits>
#include <vector>

#include "core/kernel.h"
#include "cuda/sm90/forward_config.h"
#include "cuda/sm90/forward_cost.h"
#include "cuda/sm90/forward_params.h"
#include "cuda/tensor_map.h"
#include "layout/block_range.h"
#include "layout/hopper_schedule.h"

namespace tilefold {
namespace sm90 {
namespace {

constexpr int32_t kComputeCapability = 90;
constexpr int64_t kLongest = int64_t{1} << 29;          // rows or keys: sums of two fit int32_t
constexpr int64_t kMostPackedQueries = kWarpgroupRows;  // a head's rows lie in one box of TMA's
constexpr int kDevicesRemembered = 64;
constexpr float kLog2e = 1.4426950408889634f;

// A row's kernel, and on which devices it has been given its shared memory.
struct Row {
  ForwardConfig config;
  const void* kernel = nullptr;
  mutable std::atomic<uint64_t> prepared{0};
};

const Row& row_of(const KernelRow& row) { return *static_cast<const Row*>(row.backend_data); }

constexpr int kCompiledHeadDims[] = {TILEFOLD_COMPILED_HEAD_DIMS};
constexpr bool compiled(int head_dim) {
  for (const int d : kCompiledHeadDims) {
    if (d == head_dim) return true;
  }
  return false;
}

// ---- eligibility

// Whether scores can be scaled inside the exponent: a positive factor, neither tiny nor huge.
bool scale_is_plain(float scale) {
  const float scale_log2 = scale * kLog2e;
  return scale_log2 >= std::numeric_limits<float>::min() &&
         scale_log2 <= std::numeric_limits<float>::max();
}

// ---- tiles

layout::PackedRows packed_rows(const ForwardProblem& problem) {
  return {static_cast<int32_t>(problem.heads_per_group()), static_cast<int32_t>(problem.seqlen_q)};
}

// Row tiles of a head, or of a group of packed heads.
int64_t num_m_blocks(const ForwardConfig& config, const ForwardProblem& problem) {
  const int64_t rows = config.pack_heads ? packed_rows(problem).rows() : problem.seqlen_q;
  return (rows + config.block_m() - 1) / config.block_m();
}

struct Operands {
  TensorMapOperand q, k, v, o;
};

Operands operands_of(const ForwardConfig& config, const ForwardProblem& p) {
  Operands all;
  all.q = {"q",         p.dtype,    p.q,        p.q_strides,   p.batch,
           p.num_heads, p.seqlen_q, p.head_dim, kWarpgroupRows};
  all.k = {"k",        p.dtype,    p.k,           p.k_strides, p.batch, p.num_heads_kv,
           p.seqlen_k, p.head_dim, config.block_n};
  all.v = {"v",        p.dtype,      p.v,           p.v_strides, p.batch, p.num_heads_kv,
           p.seqlen_k, p.head_dim_v, config.block_n};
  all.o = {"o",         p.dtype,    p.o,          p.o_strides,   p.batch,
           p.num_heads, p.seqlen_q, p.head_dim_v, kWarpgroupRows};
  // PERF: a box is 128 bytes wide. Fetches of 256 cost 1 to 2 % at D = 256, N = 512 on an H200.
  for (TensorMapOperand* operand : {&all.q, &all.k, &all.v, &all.o}) {
    operand->fetch = FetchBytes::k128;
  }
  if (config.pack_heads) {
    const int32_t rows = packed_rows(p).rows_of_head();
    for (TensorMapOperand* operand : {&all.q, &all.o}) {
      operand->group = p.heads_per_group();
      operand->box_rows = rows;
      operand->box_heads = kWarpgroupRows / rows;
    }
  }
  return all;
}

bool takes(const ForwardConfig& config, const ForwardProblem& problem,
           const DeviceProperties& device, Reason* reason) {
  if (device.compute_capability != kComputeCapability) {
    reason->set("the device's compute capability is %d.%d; takes 9.0",
                device.compute_capability / 10, device.compute_capability % 10);
    return false;
  }
  if (problem.dtype != config.dtype) {
    reason->set("the dtype is %s; takes %s", dtype_name(problem.dtype), dtype_name(config.dtype));
    return false;
  }
  if (problem.head_dim > config.head_dim) {
    reason->set("D is %" PRId64 "; takes up to %d", problem.head_dim, config.head_dim);
    return false;
  }
  if (problem.head_dim_v > config.dim_v()) {
    reason->set("Dv is %" PRId64 "; takes up to %d", problem.head_dim_v, config.dim_v());
    return false;
  }
  if (!config.masked && (problem.masks_left() || problem.masks_right())) {
    reason->set("there is a mask; takes none (the masked rows take any)");
    return false;
  }
  if (!config.masked && !scale_is_plain(problem.scale)) {
    reason->set("the scale is %g; takes ordinary positive ones (the masked rows take any)",
                static_cast<double>(problem.scale));
    return false;
  }
  if (config.pack_heads && problem.seqlen_q > kMostPackedQueries) {
    reason->set("Nq is %" PRId64 "; takes up to %" PRId64, problem.seqlen_q, kMostPackedQueries);
    return false;
  }
  if (problem.seqlen_q > kLongest || problem.seqlen_k > kLongest) {
    reason->set("Nq is %" PRId64 " and Nk is %" PRId64 "; takes up to 2^29", problem.seqlen_q,
                problem.seqlen_k);
    return false;
  }
  constexpr int64_t kMostTiles = int64_t{1} << 30;
  if (problem.batch * problem.num_heads > kMostTiles ||
      problem.batch * problem.num_heads * num_m_blocks(config, problem) > kMostTiles) {
    reason->set("there are more than 2^30 tiles (batch %" PRId64 ", heads %" PRId64 ", Nq %" PRId64
                "); takes fewer",
                problem.batch, problem.num_heads, problem.seqlen_q);
    return false;
  }
  const Operands operands = operands_of(config, problem);
  return tensor_map_takes(operands.q, reason) && tensor_map_takes(operands.k, reason) &&
         tensor_map_takes(operands.v, reason) && tensor_map_takes(operands.o, reason);
}

// ---- choice

// Above every sm80 row, by the part of the tensor peak that the row is expected to reach, in
// hundredths of a percent (a few query rows reach no more than some percent); but
// below them (and above the generic rows) where splitting the keys is worth more than wgmma.
constexpr int kBase = 200;
constexpr int kPoints = 10000;
constexpr int kBelowSplitKeys = 2;
constexpr int kPointsBelow = 16;

int preference(const KernelRow& row, const ForwardProblem& problem, const DeviceProperties& device,
               Reason* reason) {
  const ForwardConfig& config = row_of(row).config;
  if (!takes(config, problem, device, reason)) return 0;
  const double efficiency = expected_efficiency(config, problem, device);
  if (wants_split_keys(config, problem, device)) {
    reason->set("few query tiles: kernels that split the keys come first");
    return kBelowSplitKeys + static_cast<int>(std::lround(kPointsBelow * efficiency));
  }
  return kBase + static_cast<int>(std::lround(kPoints * efficiency));
}

// ---- launch

// Whether CTAs have to count tiles: only where there is more than one for some of them.
bool counts_tiles(const ForwardConfig& config, const ForwardProblem& problem,
                  const DeviceProperties& device) {
  return config.counts_tiles() &&
         problem.batch * problem.num_heads * num_m_blocks(config, problem) >
             device.num_multiprocessors;
}

size_t workspace_bytes(const KernelRow& row, const ForwardProblem& problem,
                       const DeviceProperties& device) {
  return counts_tiles(row_of(row).config, problem, device) ? sizeof(TileCounter) : 0;
}

// Once per row and device; may be repeated.
cudaError_t prepare(const Row& row, int32_t device) {
  const uint64_t bit = device < kDevicesRemembered ? uint64_t{1} << device : 0;
  if ((row.prepared.load(std::memory_order_acquire) & bit) != 0) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      row.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, row.config.smem_bytes());
  if (error == cudaSuccess) row.prepared.fetch_or(bit, std::memory_order_release);
  return error;
}

// The next number of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", 2014); it starts where clock and address space happen to be.
uint64_t draw_ticket() {
  static std::atomic<uint64_t> state{
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) ^
      reinterpret_cast<uintptr_t>(&row_of) << 20};
  uint64_t x = state.fetch_add(0x9e3779b97f4a7c15u, std::memory_order_relaxed);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return (x | 2) & ~uint64_t{1};  // even and not kTileCounterClosed
}

// In which order tiles are counted.
layout::LongestFirst order_of(const ForwardConfig& config, const ForwardProblem& problem,
                              const DeviceProperties& device) {
  const auto seqlen_q = static_cast<int32_t>(problem.seqlen_q);
  const layout::Mask mask{static_cast<int32_t>(problem.seqlen_k),
                          static_cast<int32_t>(problem.diagonal_left),
                          static_cast<int32_t>(problem.diagonal_right)};
  const int32_t first_row =
      layout::first_tile_row(seqlen_q, config.block_m(), problem.masks_right());
  const auto blocks_of_tile = [&](int32_t m_block) {
    const int32_t begin = first_row + m_block * config.block_m();
    const layout::BlockRange range = layout::block_range(
        mask, std::max(begin, 0), std::min(begin + config.block_m(), seqlen_q), config.block_n);
    return range.empty() ? 0 : range.end - range.begin;
  };
  const auto batch_heads = static_cast<int32_t>(problem.batch * problem.num_heads);
  const auto m_blocks = static_cast<int32_t>(num_m_blocks(config, problem));
  const int64_t kv_bytes =
      problem.seqlen_k * (problem.head_dim + problem.head_dim_v) * dtype_bytes(problem.dtype);
  const int32_t section_heads = layout::heads_per_section(kv_bytes / problem.heads_per_group());
  const int32_t tail = layout::tail_m_blocks(batch_heads, m_blocks, section_heads,
                                             device.num_multiprocessors, blocks_of_tile);
  return {batch_heads, m_blocks, section_heads, tail};
}

ForwardParams params_of(const ForwardConfig& config, const ForwardProblem& problem,
                        const DeviceProperties& device, TileCounter* tile_counter) {
  ForwardParams p{};
  p.seqlen_q = static_cast<int32_t>(problem.seqlen_q);
  p.seqlen_k = static_cast<int32_t>(problem.seqlen_k);
  const int64_t num_heads = config.pack_heads ? problem.num_heads_kv : problem.num_heads;
  const auto batch_heads = static_cast<int32_t>(problem.batch * num_heads);
  const auto m_blocks = static_cast<int32_t>(num_m_blocks(config, problem));
  p.num_tiles = batch_heads * m_blocks;
  p.first_tile_row = layout::first_tile_row(static_cast<int32_t>(problem.seqlen_q),
                                            config.block_m(), problem.masks_right());
  p.by_m_blocks = layout::Divisor(static_cast<uint32_t>(m_blocks));
  p.heads_per_group = static_cast<int32_t>(problem.heads_per_group());
  p.by_num_heads = layout::Divisor(static_cast<uint32_t>(num_heads));
  p.by_heads_per_group = layout::Divisor(static_cast<uint32_t>(problem.heads_per_group()));
  p.diagonal_left = static_cast<int32_t>(problem.diagonal_left);
  p.diagonal_right = static_cast<int32_t>(problem.diagonal_right);
  p.apply_factor = !scale_is_plain(problem.scale);
  p.score_factor = p.apply_factor ? problem.scale : 1.0f;
  p.scale_log2 = p.apply_factor ? kLog2e : problem.scale * kLog2e;
  p.empty_row_lse = problem.empty_row_lse;
  p.lse = problem.lse;
  p.lse_strides = problem.lse_strides;
  p.tile_counter = tile_counter;
  if (tile_counter != nullptr) p.ticket = draw_ticket();
  if (config.counts_tiles()) p.order = order_of(config, problem, device);
  p.q = problem.q;
  p.k = problem.k;
  p.v = problem.v;
  p.o = problem.o;
  p.q_strides = problem.q_strides;
  p.k_strides = problem.k_strides;
  p.v_strides = problem.v_strides;
  p.o_strides = problem.o_strides;
  p.head_dim = static_cast<int32_t>(problem.head_dim);
  p.head_dim_v = static_cast<int32_t>(problem.head_dim_v);
  if (config.pack_heads) p.packed = packed_rows(problem);
  return p;
}

tilefold_status fail_cuda(const KernelRow& row, cudaError_t error) {
  cudaGetLastError();  // ours, and reported here
  return fail(TILEFOLD_ERROR_CUDA, "kernel '%s' could not be launched: %s", row.name,
              cudaGetErrorString(error));
}

tilefold_status launch(const KernelRow& kernel_row, const ForwardProblem& problem,
                       const DeviceProperties& device, void* workspace, void* stream) {
  const Row& row = row_of(kernel_row);
  const ForwardConfig& config = row.config;
  if (const cudaError_t error = prepare(row, device.id)) return fail_cuda(kernel_row, error);

  const bool counts = counts_tiles(config, problem, device);
  ForwardParams params =
      params_of(config, problem, device, counts ? static_cast<TileCounter*>(workspace) : nullptr);
  const Operands operands = operands_of(config, problem);
  Reason reason;
  bool encoded = encode_tensor_map(operands.q, &params.map_q, &reason) &&
                 encode_tensor_map(operands.o, &params.map_o, &reason);
  if (problem.seqlen_k > 0) {
    encoded = encoded && encode_tensor_map(operands.k, &params.map_k, &reason) &&
              encode_tensor_map(operands.v, &params.map_v, &reason);
  } else {
    params.map_k = params.map_v = params.map_q;  // prefetched, not used
  }
  if (!encoded) {
    return fail(TILEFOLD_ERROR_CUDA, "kernel '%s' could not be launched: %s", kernel_row.name,
                reason.text);
  }

  const dim3 grid(static_cast<unsigned>(std::min(params.num_tiles, device.num_multiprocessors)));
  const dim3 block(static_cast<unsigned>(config.threads()));
  void* arguments[] = {&params};
  if (const cudaError_t error = cudaLaunchKernel(row.kernel, grid, block, arguments,
                                                 static_cast<size_t>(config.smem_bytes()),
                                                 static_cast<cudaStream_t>(stream))) {
    return fail_cuda(kernel_row, error);
  }
  return TILEFOLD_OK;
}

// ---- table

struct Table {
  std::deque<Row> rows;  // stay where they are
  std::vector<KernelRow> kernels;

  void add(const char* name, const ForwardConfig& config, const void* kernel) {
    Row& row = rows.emplace_back();
    row.config = config;
    row.kernel = kernel;
    KernelRow& entry = kernels.emplace_back();
    std::snprintf(entry.name, sizeof(entry.name), "%s", name);
    entry.backend = "sm90";
    entry.dtypes = dtype_name(config.dtype);
    entry.head_dim = config.head_dim;
    entry.head_dim_v = config.dim_v();
    entry.block_m = config.block_m();
    entry.block_n = config.block_n;
    entry.num_stages = config.stages;
    entry.num_threads = config.threads();
    entry.shared_memory_bytes = config.smem_bytes();
    entry.preference = &preference;
    entry.workspace_bytes = &workspace_bytes;
    entry.launch = &launch;
    entry.backend_data = &row;
  }
};

}  // namespace

#define TILEFOLD_SM80_ROW(name, ...)
#define TILEFOLD_SM90_ROW(name, ...) const void* name##_kernel();
#include "cuda/kernels.def"
#undef TILEFOLD_SM90_ROW

namespace {

const Table& table() {
  static const Table all = [] {
    Table result;
#define TILEFOLD_SM90_ROW(name, ...)                                \
  if constexpr (compiled(ForwardConfig{__VA_ARGS__}.head_dim)) {    \
    static_assert(ForwardConfig{__VA_ARGS__}.valid());              \
    result.add(#name, ForwardConfig{__VA_ARGS__}, name##_kernel()); \
  }
#include "cuda/kernels.def"
#undef TILEFOLD_SM90_ROW
    return result;
  }();
  return all;
}

}  // namespace
#undef TILEFOLD_SM80_ROW
}  // namespace sm90

std::span<const KernelRow> sm90_kernels() { return sm90::table().kernels; }

}  // namespace tilefold
