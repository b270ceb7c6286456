// Expected times of the Hopper kernels, from the tiles they visit and their measured speeds.
#include "cuda/sm90/forward_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "layout/block_range.h"
#include "layout/hopper_schedule.h"
#include "layout/packed_rows.h"

namespace tilefold::sm90 {
namespace {

constexpr double kPeakTflops = 989.0;  // the speeds below are parts of it
constexpr int64_t kAllUpTo = 4;        // tiles of a head that the estimate looks at one by one
constexpr int64_t kSamples = 2;  // and of more: blocks grow linearly with the row, or not at all

// PERF: fitted to TFLOP/s on an H200 under sustained load, float16, N = 512 to 16384: what a tile
// costs beside its blocks, in key columns, and the speed of a row's tiles while all multiprocessors
// have one. Of the 36 float16 points of bench/results/h200-sm90.csv as of commit 3c7783e 24 are
// estimated within 5 %; the furthest off are D = 256 at N = 512 (1.14 and 1.15 of what was
// measured, masked and not) and D = 128 causal at N = 4096 and 16384 (0.92).
constexpr double kTileOverheadColumns = 96.0;
constexpr double kTileOverheadColumnsMasked = 128.0;

struct Speed {
  int head_dim;
  int dim_v;
  int warpgroups;
  int block_n;
  bool masked;
  double tflops;
};
constexpr Speed kSpeeds[] = {
    {64, 64, 4, 64, false, 545},   {64, 64, 3, 128, false, 560},   {64, 64, 4, 64, true, 535},
    {64, 64, 3, 128, true, 558},   {64, 64, 2, 128, true, 440},    {96, 96, 2, 128, false, 523},
    {96, 96, 3, 96, false, 633},   {96, 96, 3, 96, true, 590},     {128, 128, 2, 128, false, 674},
    {128, 128, 3, 80, false, 757}, {128, 128, 2, 128, true, 620},  {128, 128, 3, 80, true, 715},
    {128, 128, 3, 64, true, 680},  {192, 128, 2, 128, false, 730}, {192, 128, 2, 128, true, 590},
    {192, 128, 2, 64, true, 580},  {192, 192, 2, 80, false, 742},  {192, 192, 2, 64, true, 630},
    {256, 256, 2, 64, false, 760}, {256, 256, 2, 64, true, 722},
};
constexpr double kUnmeasuredTflops = 550;

double tile_speed(const ForwardConfig& c) {
  for (const Speed& s : kSpeeds) {
    if (s.head_dim == c.head_dim && s.dim_v == c.dim_v() && s.warpgroups == c.warpgroups &&
        s.block_n == c.block_n && s.masked == c.masked) {
      return s.tflops;
    }
  }
  return kUnmeasuredTflops;
}

// Whether kernels.def has a narrower tile than the row's that takes the problem's head dims. (A
// build that leaves head dims out may lack it: then wide rows tie, and the first of them is
// chosen.)
bool has_tighter_tile(const ForwardConfig& config, const ForwardProblem& problem) {
  return std::any_of(std::begin(kSpeeds), std::end(kSpeeds), [&](const Speed& s) {
    return s.head_dim >= problem.head_dim && s.dim_v >= problem.head_dim_v &&
           s.head_dim + s.dim_v < config.head_dim + config.dim_v();
  });
}

layout::Mask mask_of(const ForwardProblem& problem) {
  return {static_cast<int32_t>(problem.seqlen_k), static_cast<int32_t>(problem.diagonal_left),
          static_cast<int32_t>(problem.diagonal_right)};
}

// Key columns visited by rows [begin, end), and the keys that they see, summed over the rows.
struct Visit {
  double columns = 0;
  double visible = 0;
};

Visit visit(const ForwardConfig& config, const ForwardProblem& problem, int64_t begin,
            int64_t end) {
  const layout::Mask mask = mask_of(problem);
  const layout::BlockRange range = layout::block_range(mask, static_cast<int32_t>(begin),
                                                       static_cast<int32_t>(end), config.block_n);
  const auto keys = [&](int64_t row) {
    return std::max(
        0, mask.key_end(static_cast<int32_t>(row)) - mask.key_begin(static_cast<int32_t>(row)));
  };
  Visit result;
  result.columns = range.empty() ? 0.0 : static_cast<double>(range.end - range.begin);
  result.columns *= config.block_n;
  result.visible = 0.5 * (keys(begin) + keys(end - 1)) * static_cast<double>(end - begin);
  return result;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// PERF: a tile in which one warpgroup works takes so much of the time of one in which both do
// (H200, float16, one query row on 4096 keys, few tiles: D = 64 0.72, D = 128 0.75).
constexpr double kOneWarpgroup = 0.75;

// Packed heads: all tiles visit the same blocks, and are those of K/V heads.
double packed_efficiency(const ForwardConfig& config, const ForwardProblem& problem,
                         const DeviceProperties& device) {
  if (problem.seqlen_q > kWarpgroupRows) return 0.0;
  const layout::PackedRows packed(static_cast<int32_t>(problem.heads_per_group()),
                                  static_cast<int32_t>(problem.seqlen_q));
  const int64_t tiles_of_group = ceil_div(packed.rows(), config.block_m());
  const Visit all = visit(config, problem, 0, problem.seqlen_q);
  const double computed = (all.columns + kTileOverheadColumnsMasked) *
                          static_cast<double>(tiles_of_group * config.block_m()) *
                          (packed.rows() <= kWarpgroupRows ? kOneWarpgroup : 1.0);
  const double useful = all.visible * static_cast<double>(problem.heads_per_group()) / computed;
  const double rounds = static_cast<double>(problem.batch * problem.num_heads_kv * tiles_of_group) /
                        device.num_multiprocessors;
  return useful * rounds / std::ceil(rounds) * tile_speed(config) / kPeakTflops;
}

}  // namespace

double expected_efficiency(const ForwardConfig& config, const ForwardProblem& problem,
                           const DeviceProperties& device) {
  if (problem.writes_nothing() || device.num_multiprocessors == 0) return 0.0;
  // A tile far wider than the problem is not worth a closer look where a tighter one takes it too.
  // Unless heads are packed: then it may compute far fewer rows than the tighter one.
  constexpr double kWide = 0.7;
  const double useful_dims = static_cast<double>(problem.head_dim + problem.head_dim_v) /
                             (config.head_dim + config.dim_v());
  const bool packs = config.pack_heads && problem.heads_per_group() > 1;
  if (!packs && useful_dims < kWide && has_tighter_tile(config, problem)) return 0.0;
  if (config.pack_heads) {
    return std::clamp(useful_dims * packed_efficiency(config, problem, device), 0.0, 1.0);
  }
  const double overhead = config.masked ? kTileOverheadColumnsMasked : kTileOverheadColumns;
  const int64_t block_m = config.block_m();
  const int64_t m_blocks = ceil_div(problem.seqlen_q, block_m);
  const bool masked = problem.masks_left() || problem.masks_right();
  const int64_t first_row = config.masked
                                ? layout::first_tile_row(static_cast<int32_t>(problem.seqlen_q),
                                                         config.block_m(), problem.masks_right())
                                : 0;
  Visit total;
  const auto add_tile = [&](int64_t begin, int64_t end, double times) {
    const Visit tile = visit(config, problem, begin, end);
    double columns = tile.columns;
    if (masked && config.skip_blocks) {
      // A warpgroup that passes over blocks leaves the tensor cores to the others, but the tile
      // lasts as long as its longest: half of what is passed over is gained.
      const int64_t working = ceil_div(end - begin, kWarpgroupRows);
      const int64_t last_begin = begin + (working - 1) * kWarpgroupRows;
      const double first =
          visit(config, problem, begin, std::min(begin + kWarpgroupRows, end)).columns;
      const double last = visit(config, problem, last_begin, end).columns;
      const double of_warpgroups =
          0.5 * (first + last) * static_cast<double>(working) / config.warpgroups;
      columns = 0.5 * (columns + of_warpgroups);
    }
    total.columns += times * (columns + overhead);
    total.visible += times * tile.visible;
  };
  // The tile that is not full, the first or the last; of the others all where they are few, else
  // some, spread evenly.
  const bool short_first = first_row < 0;
  const int64_t full_begin = short_first ? first_row + block_m : 0;
  const int64_t full = short_first ? m_blocks - 1 : problem.seqlen_q / block_m;
  const int64_t full_end = full_begin + full * block_m;
  if (short_first) add_tile(0, full_begin, 1.0);
  if (full_end < problem.seqlen_q) add_tile(full_end, problem.seqlen_q, 1.0);
  const int64_t samples = !masked ? std::min<int64_t>(full, 1) : full <= kAllUpTo ? full : kSamples;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t begin = full_begin + (2 * i + 1) * full / (2 * samples) * block_m;
    add_tile(begin, std::min(begin + block_m, problem.seqlen_q),
             static_cast<double>(full) / static_cast<double>(samples));
  }
  const double useful =
      total.visible / (total.columns * static_cast<double>(block_m)) * useful_dims;
  // Tiles of equal length end in whole rounds; under a mask the last ones are the shortest.
  const double tiles = static_cast<double>(problem.batch * problem.num_heads * m_blocks);
  const double rounds = tiles / device.num_multiprocessors;
  const double balance = rounds / (masked && rounds > 1.0 ? rounds + 0.25 : std::ceil(rounds));
  return std::clamp(useful * balance * tile_speed(config) / kPeakTflops, 0.0, 1.0);
}

bool wants_split_keys(const ForwardConfig& config, const ForwardProblem& problem,
                      const DeviceProperties& device) {
  // Fewer are soon done. PERF: on 1024 keys packed rows still win (H200, D = 128, one query row, 8
  // to 64 heads: 12.4 us against 13.1 to 14.5).
  const double many_columns = config.pack_heads ? 1025 : 1024;
  const int64_t tiles =
      problem.batch * problem.num_heads * ceil_div(problem.seqlen_q, config.block_m());
  if (2 * tiles > device.num_multiprocessors) return false;
  const int64_t last = ceil_div(problem.seqlen_q, config.block_m()) - 1;
  const Visit v = visit(config, problem, last * config.block_m(), problem.seqlen_q);
  return v.columns >= many_columns;
}

}  // namespace tilefold::sm90
