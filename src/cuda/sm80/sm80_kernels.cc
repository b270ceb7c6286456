// The sm80 rows of the kernel table: which problems each takes, which it is the best for, and its
// launch.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <vector>

#include "core/kernel.h"
#include "cuda/sm80/combine.h"
#include "cuda/sm80/compiled_row.h"
#include "cuda/sm80/make_params.h"
#include "cuda/sm80/tile_choice.h"
#include "cuda/tensor_map.h"
#include "layout/block_range.h"
#include "layout/schedule.h"

// The rows that this build compiles; the build writes the list from kernels.def.
#define TILEFOLD_SM80_ROW(name, ...) \
  namespace tilefold::sm80 {         \
  extern const CompiledRow name;     \
  }
#include "sm80_rows.inc"
#undef TILEFOLD_SM80_ROW

namespace tilefold {
namespace sm80 {
namespace {

constexpr int32_t kTmaComputeCapability = 90;
constexpr int64_t kLongest = int64_t{1} << 29;  // rows or keys: sums of two fit int32_t
constexpr int64_t kMostCtas = (int64_t{1} << 31) - 1;
constexpr int64_t kAlignmentBytes = 16;  // cp.async and the vector stores of the epilogue
constexpr int kDevicesRemembered = 64;

// A compiled row, and on which devices its kernel has been given its shared memory.
struct Row {
  const CompiledRow* compiled = nullptr;
  mutable std::atomic<uint64_t> prepared{0};
};

const Row& row_of(const KernelRow& row) { return *static_cast<const Row*>(row.backend_data); }

// ---- eligibility

bool layout_is_taken(const char* name, const void* data, const Strides& strides, Reason* reason) {
  if (reinterpret_cast<uintptr_t>(data) % kAlignmentBytes != 0) {
    reason->set("%s: its address is %p; takes a multiple of 16 bytes", name, data);
    return false;
  }
  if (strides.column != 1) {
    reason->set("%s: its last stride is %" PRId64 "; takes 1", name, strides.column);
    return false;
  }
  const struct {
    const char* axis;
    int64_t stride;
  } axes[] = {{"batch", strides.batch}, {"head", strides.head}, {"row", strides.row}};
  for (const auto& a : axes) {
    if (a.stride % 8 != 0) {
      reason->set("%s: its %s stride is %" PRId64 " elements; takes multiples of 8", name, a.axis,
                  a.stride);
      return false;
    }
  }
  return true;
}

struct Operands {
  TensorMapOperand q, k, v;
};

Operands operands_of(const ForwardConfig& config, const ForwardProblem& p) {
  const layout::Tile q = config.q_tile();
  const layout::Tile kv = config.kv_tile();
  Operands all;
  all.q = {"q",         p.dtype,    p.q,        p.q_strides, p.batch,
           p.num_heads, p.seqlen_q, p.head_dim, q.rows,      q.page_columns()};
  all.k = {"k",        p.dtype,    p.k,     p.k_strides,      p.batch, p.num_heads_kv,
           p.seqlen_k, p.head_dim, kv.rows, kv.page_columns()};
  all.v = {"v",        p.dtype,      p.v,     p.v_strides,      p.batch, p.num_heads_kv,
           p.seqlen_k, p.head_dim_v, kv.rows, kv.page_columns()};
  return all;
}

bool takes(const ForwardConfig& config, const ForwardProblem& problem,
           const DeviceProperties& device, Reason* reason) {
  if (problem.dtype != config.dtype) {
    reason->set("the dtype is %s; takes %s", dtype_name(problem.dtype), dtype_name(config.dtype));
    return false;
  }
  if (problem.head_dim > config.head_dim || problem.head_dim % layout::kChunkElems != 0) {
    reason->set("D is %" PRId64 "; takes multiples of 8 up to %d", problem.head_dim,
                config.head_dim);
    return false;
  }
  if (problem.head_dim_v > config.head_dim || problem.head_dim_v % layout::kChunkElems != 0) {
    reason->set("Dv is %" PRId64 "; takes multiples of 8 up to %d", problem.head_dim_v,
                config.head_dim);
    return false;
  }
  if (config.load == LoadPath::kTma && device.compute_capability < kTmaComputeCapability) {
    reason->set("the device's compute capability is %d.%d; takes 9.0 and later",
                device.compute_capability / 10, device.compute_capability % 10);
    return false;
  }
  if (device.shared_memory_bytes < config.shared_kib * 1024) {
    reason->set("the device gives a CTA %" PRId64 " KiB of shared memory; takes %d KiB and more",
                device.shared_memory_bytes / 1024, config.shared_kib);
    return false;
  }
  if (problem.seqlen_q > kLongest || problem.seqlen_k > kLongest) {
    reason->set("Nq is %" PRId64 " and Nk is %" PRId64 "; takes up to 2^29", problem.seqlen_q,
                problem.seqlen_k);
    return false;
  }
  if (problem.batch > kMostCtas || problem.num_heads > kMostCtas ||
      problem.batch * problem.num_heads >
          kMostCtas / std::max<int64_t>(num_m_blocks(config, problem), 1)) {
    reason->set("there are more than 2^31 - 1 tiles (batch %" PRId64 ", heads %" PRId64
                ", Nq %" PRId64 "); takes fewer",
                problem.batch, problem.num_heads, problem.seqlen_q);
    return false;
  }
  if (problem.writes_nothing()) return true;  // tensors without elements have no strides to look at
  if (!layout_is_taken("q", problem.q, problem.q_strides, reason) ||
      !layout_is_taken("o", problem.o, problem.o_strides, reason)) {
    return false;
  }
  if (problem.seqlen_k == 0) return true;
  if (!layout_is_taken("k", problem.k, problem.k_strides, reason) ||
      !layout_is_taken("v", problem.v, problem.v_strides, reason)) {
    return false;
  }
  if (config.load != LoadPath::kTma) return true;
  const Operands operands = operands_of(config, problem);
  return tensor_map_takes(operands.q, reason) && tensor_map_takes(operands.k, reason) &&
         tensor_map_takes(operands.v, reason);
}

// ---- choice

// Above the generic rows, below the sm90 rows. The tightest head dim first; among tiles of one head
// dim, TMA before cp.async, then the one that needs the larger shared memory: these are the faster
// ones where they run. Then, among TMA tiles, the one whose size suits the mask.
constexpr int kBase = 20;
constexpr int kFitPoints = 16;  // per 32 columns of head dim
constexpr int kTmaPoints = 8;
constexpr int kTileSizePoints = 1;
constexpr int kMaxHeadDim = 256;

layout::Mask mask_of(const ForwardProblem& problem) {
  return {static_cast<int32_t>(problem.seqlen_k), static_cast<int32_t>(problem.diagonal_left),
          static_cast<int32_t>(problem.diagonal_right)};
}

int tile_size_points(const ForwardConfig& config, const ForwardProblem& problem) {
  if (config.load != LoadPath::kTma) return 0;
  const bool small = config.block_m <= 64;
  return small == small_tiles_suit(mask_of(problem), problem.seqlen_q) ? kTileSizePoints : 0;
}

int shared_class_points(int32_t shared_kib) {
  return shared_kib == 227 ? 4 : shared_kib == 163 ? 2 : 0;
}

int preference(const KernelRow& row, const ForwardProblem& problem, const DeviceProperties& device,
               Reason* reason) {
  const ForwardConfig& config = row_of(row).compiled->config;
  if (!takes(config, problem, device, reason)) return 0;
  return kBase + (kMaxHeadDim - config.head_dim) / 32 * kFitPoints +
         (config.load == LoadPath::kTma ? kTmaPoints : 0) + shared_class_points(config.shared_kib) +
         tile_size_points(config, problem);
}

// ---- schedule

int64_t concurrent_tiles(const ForwardConfig& config, const DeviceProperties& device) {
  return static_cast<int64_t>(device.num_multiprocessors) * config.min_ctas;
}

// PERF: sections help pair kernels, whose K and V have one buffer each. Under a mask flat kernels,
// which load further ahead, lose 1 to 8 % by the uneven end of each section; without one, tiles
// being equally long, a few heads at a time are best, since their tiles follow one another and find
// K and V in L2: 1 to 3 % at D = 64 and 128 on an H200, each query head with its own K and V.
// docs/devlog.md, "Short causal sequences at D = 256" and "Few heads at a time", has the figures.
int32_t section_heads(const ForwardConfig& config, const ForwardProblem& problem,
                      const DeviceProperties& device) {
  constexpr int32_t kHeadsWithoutMask = 8;
  const auto batch_heads = static_cast<int32_t>(problem.batch * problem.num_heads);
  if (!config.pair) {
    const bool masked = problem.masks_left() || problem.masks_right();
    return masked ? batch_heads : std::min(kHeadsWithoutMask, batch_heads);
  }
  const int64_t kv_bytes =
      problem.seqlen_k * (problem.head_dim + problem.head_dim_v) * dtype_bytes(problem.dtype);
  return layout::section_heads(batch_heads,
                               static_cast<int32_t>(problem.batch * problem.num_heads_kv), kv_bytes,
                               concurrent_tiles(config, device));
}

constexpr int64_t kFewestBlocksPerSplit = 4;
constexpr int64_t kMostSplits = 64;

// How many CTAs share one tile's keys: 1 where the tiles fill half of the GPU, else as many as fill
// it, each with a few key blocks at least. A function of the problem and the device alone, so that
// the same call gives the same bits.
int32_t num_splits(const ForwardConfig& config, const ForwardProblem& problem,
                   const DeviceProperties& device) {
  const int64_t m_blocks = num_m_blocks(config, problem);
  const int64_t tiles = problem.batch * problem.num_heads * m_blocks;
  const int64_t slots = concurrent_tiles(config, device);
  if (tiles == 0 || 2 * tiles > slots) return 1;
  const layout::Mask mask = mask_of(problem);
  int64_t longest = 0;
  for (const int64_t m_block : {int64_t{0}, m_blocks / 2, m_blocks - 1}) {
    const int64_t begin = m_block * config.block_m;
    const int64_t end = std::min<int64_t>(begin + config.block_m, problem.seqlen_q);
    const layout::BlockRange range = layout::block_range(mask, static_cast<int32_t>(begin),
                                                         static_cast<int32_t>(end), config.block_n);
    longest = std::max<int64_t>(longest, range.end - range.begin);
  }
  const int64_t wanted = std::min({slots / tiles, longest / kFewestBlocksPerSplit, kMostSplits});
  return static_cast<int32_t>(std::max<int64_t>(wanted, 1));
}

int64_t partial_rows(const ForwardProblem& problem, int32_t splits) {
  return splits * problem.batch * problem.num_heads * problem.seqlen_q;
}

size_t workspace_bytes(const KernelRow& row, const ForwardProblem& problem,
                       const DeviceProperties& device) {
  const int32_t splits = num_splits(row_of(row).compiled->config, problem, device);
  if (splits == 1) return 0;
  return static_cast<size_t>(partial_rows(problem, splits) * (problem.head_dim_v + 2)) *
         sizeof(float);
}

// ---- launch

// Once per row and device; may be repeated.
cudaError_t prepare(const Row& row, int32_t device) {
  const uint64_t bit = device < kDevicesRemembered ? uint64_t{1} << device : 0;
  if ((row.prepared.load(std::memory_order_acquire) & bit) != 0) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(row.compiled->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           row.compiled->config.smem_bytes());
  if (error == cudaSuccess) row.prepared.fetch_or(bit, std::memory_order_release);
  return error;
}

tilefold_status fail_cuda(const KernelRow& row, cudaError_t error) {
  cudaGetLastError();  // ours, and reported here
  return fail(TILEFOLD_ERROR_CUDA, "kernel '%s' could not be launched: %s", row.name,
              cudaGetErrorString(error));
}

tilefold_status launch(const KernelRow& kernel_row, const ForwardProblem& problem,
                       const DeviceProperties& device, void* workspace, void* stream) {
  const Row& row = row_of(kernel_row);
  const ForwardConfig& config = row.compiled->config;
  const int32_t splits = num_splits(config, problem, device);
  ForwardParams params =
      make_params(config, problem, splits, section_heads(config, problem, device));
  if (splits > 1) {
    params.partial_o = static_cast<float*>(workspace);
    params.partial_ml = params.partial_o + partial_rows(problem, splits) * problem.head_dim_v;
  }
  if (config.load == LoadPath::kTma && problem.seqlen_k > 0) {
    const Operands operands = operands_of(config, problem);
    Reason reason;
    if (!encode_tensor_map(operands.q, &params.q_map, &reason) ||
        !encode_tensor_map(operands.k, &params.k_map, &reason) ||
        !encode_tensor_map(operands.v, &params.v_map, &reason)) {
      return fail(TILEFOLD_ERROR_CUDA, "kernel '%s' could not be launched: %s", kernel_row.name,
                  reason.text);
    }
  }
  if (const cudaError_t error = prepare(row, device.id)) return fail_cuda(kernel_row, error);
  const int64_t ctas =
      static_cast<int64_t>(params.grid.num_batch_heads) * params.grid.num_m_blocks * splits;
  void* arguments[] = {&params};
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  cudaError_t error = cudaLaunchKernel(row.compiled->kernel, dim3(static_cast<unsigned>(ctas)),
                                       dim3(static_cast<unsigned>(config.threads())), arguments,
                                       config.smem_bytes(), cuda_stream);
  if (error == cudaSuccess && splits > 1) {
    error = launch_combine(config.dtype, params, cuda_stream);
  }
  return error == cudaSuccess ? TILEFOLD_OK : fail_cuda(kernel_row, error);
}

KernelRow make_row(const Row& row) {
  const ForwardConfig& config = row.compiled->config;
  KernelRow r;
  std::snprintf(r.name, sizeof(r.name), "%s", row.compiled->name);
  r.backend = "sm80";
  r.dtypes = dtype_name(config.dtype);
  r.head_dim = config.head_dim;
  r.head_dim_v = config.head_dim;
  r.block_m = config.block_m;
  r.block_n = config.block_n;
  r.num_stages = config.stages;
  r.num_threads = config.threads();
  r.shared_memory_bytes = config.smem_bytes();
  r.preference = &preference;
  r.workspace_bytes = &workspace_bytes;
  r.launch = &launch;
  r.backend_data = &row;
  return r;
}

}  // namespace
}  // namespace sm80

std::span<const KernelRow> sm80_kernels() {
  static const std::vector<KernelRow> rows = [] {
    static std::deque<sm80::Row> all;  // rows keep pointers into it
#define TILEFOLD_SM80_ROW(name, ...) all.emplace_back().compiled = &sm80::name;
#include "sm80_rows.inc"
#undef TILEFOLD_SM80_ROW
    std::vector<KernelRow> table;
    for (const sm80::Row& row : all) table.push_back(sm80::make_row(row));
    return table;
  }();
  return rows;
}

}  // namespace tilefold
