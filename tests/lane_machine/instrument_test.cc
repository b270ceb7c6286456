// Tests of the instrument itself: small kernels that are right must pass and compute what they
// should; the same kernels with a planted bug must be reported, with the right kind and line.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "cuda/ptx/atomic.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/warp.cuh"
#include "lane_machine/machine.h"
#include "lane_machine/numbers.h"

namespace tilefold::lane_machine {
namespace {

constexpr uint64_t kSeeds[] = {0, 1, 2, 3, 4, 5, 6};

Launch one_cta(unsigned threads, uint32_t shared_bytes, uint64_t seed = 0) {
  Launch launch;
  launch.kernel = "planted";
  launch.block = {threads, 1, 1};
  launch.shared_bytes = shared_bytes;
  launch.seed = seed;
  return launch;
}

void expect_only(const RunReport& report, HazardKind kind, const char* text) {
  ASSERT_FALSE(report.hazards.empty()) << "not reported: " << hazard_name(kind);
  for (const Hazard& hazard : report.hazards) EXPECT_EQ(hazard.kind, kind) << hazard.text;
  EXPECT_NE(report.summary().find(text), std::string::npos) << report.summary();
}

// ---------------------------------------------------------------- numbers

TEST(LaneMachineNumbersTest, HalfRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = half_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_EQ(float_to_half(value), 0x7fff);
      continue;
    }
    ASSERT_EQ(float_to_half(value), bits);
    if ((bits & 0x7fff) >= 0x7bff) continue;
    // Halfway to the next value goes to the even one, anything beyond goes up.
    const float next = half_to_float(static_cast<uint16_t>(bits + 1));
    const float half_way = (value + next) / 2;
    ASSERT_EQ(float_to_half(half_way), bits & 1 ? bits + 1 : bits) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(half_way, next)), bits + 1);
    ASSERT_EQ(float_to_half(std::nextafter(half_way, value)), bits);
  }
  EXPECT_EQ(float_to_half(65519.99f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
}

TEST(LaneMachineNumbersTest, Bfloat16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bfloat16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_bfloat16(value), bits);
    if ((bits & 0x7fff) >= 0x7f7f) continue;
    const float half_way = std::bit_cast<float>(bits << 16 | 0x8000u);
    ASSERT_EQ(float_to_bfloat16(half_way), bits & 1 ? bits + 1 : bits);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits << 16 | 0x8001u)), bits + 1);
  }
}

TEST(LaneMachineNumbersTest, SpecialFunctionsAtTheirEdges) {
  EXPECT_EQ(exp2_ftz(-INFINITY), 0.0f);
  EXPECT_EQ(exp2_ftz(INFINITY), INFINITY);
  EXPECT_EQ(exp2_ftz(-126.0f), 0x1p-126f);
  EXPECT_EQ(exp2_ftz(-127.0f), 0.0f);  // a subnormal result
  EXPECT_TRUE(std::isnan(exp2_ftz(NAN)));
  EXPECT_EQ(log2_ftz(0.0f), -INFINITY);
  EXPECT_EQ(log2_ftz(8.0f), 3.0f);
  EXPECT_TRUE(std::isnan(log2_ftz(-1.0f)));
}

// ---------------------------------------------------------------- a GEMM of one warp

// C[16, 8] = A[16, 16] B[16, 8], both operands row by row in shared memory.
struct GemmData {
  alignas(16) uint16_t a[16 * 16];
  alignas(16) uint16_t b[16 * 8];
  alignas(16) float c[16 * 8];
};

template <DType kDType, bool kTranspose>
void gemm_kernel(GemmData* data) {
  const int lane = static_cast<int>(threadIdx.x);
  const uint32_t sA = ptx::shared_address(ptx::dynamic_shared_memory());
  const uint32_t sB = sA + sizeof data->a;
  uint32_t piece[4];
  ptx::ld_global_v4(piece, data->a + lane * 8);
  ptx::st_shared_v4(sA + static_cast<uint32_t>(lane) * 16, piece);
  if (lane < 16) {
    ptx::ld_global_v4(piece, data->b + lane * 8);
    ptx::st_shared_v4(sB + static_cast<uint32_t>(lane) * 16, piece);
  }
  ptx::sync_warp();
  uint32_t a[4];
  uint32_t b[2];
  ptx::ldmatrix_x4(a, sA + static_cast<uint32_t>(lane % 16 * 32 + lane / 16 * 16));
  if constexpr (kTranspose) {
    ptx::ldmatrix_x2_trans(b, sB + static_cast<uint32_t>(lane % 16 * 16));
  } else {
    ptx::ldmatrix_x2(b, sB + static_cast<uint32_t>(lane % 16 * 16));
  }
  float c[4] = {};
  ptx::mma_m16n8k16<kDType>(c, a, b[0], b[1]);
  for (int half = 0; half < 2; ++half)
    ptx::st_global_f32_v2(data->c + (lane / 4 + 8 * half) * 8 + lane % 4 * 2, c[2 * half],
                          c[2 * half + 1]);
}

template <DType kDType>
void test_gemm() {
  GemmData data;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  const auto narrow = [](float x) {
    return kDType == DType::kFloat16 ? float_to_half(x) : float_to_bfloat16(x);
  };
  const auto widen = [](uint16_t x) {
    return kDType == DType::kFloat16 ? half_to_float(x) : bfloat16_to_float(x);
  };
  for (uint16_t& x : data.a) x = narrow(normal(generator));
  for (uint16_t& x : data.b) x = narrow(normal(generator));
  const auto error = [&] {
    double worst = 0;
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        double sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += static_cast<double>(widen(data.a[m * 16 + k])) * widen(data.b[k * 8 + n]);
        worst = std::max(worst, std::fabs(sum - data.c[m * 8 + n]));
      }
    }
    return worst;
  };
  GlobalMemory memory;
  memory.add("A", data.a, sizeof data.a, false);
  memory.add("B", data.b, sizeof data.b, false);
  memory.add("C", data.c, sizeof data.c, true);
  for (const uint64_t seed : kSeeds) {
    std::fill(std::begin(data.c), std::end(data.c), NAN);
    const RunReport report =
        run(one_cta(32, 1024, seed), memory, [&] { gemm_kernel<kDType, true>(&data); });
    EXPECT_TRUE(report.hazards.empty()) << report.summary();
    EXPECT_LT(error(), 1e-5);
    EXPECT_EQ(report.count(Op::kMma), 1u);
    EXPECT_EQ(report.count(Op::kLdmatrix), 2u);
    EXPECT_EQ(report.count(Op::kLoadGlobal), 2u);
  }
  run(one_cta(32, 1024), memory, [&] { gemm_kernel<kDType, false>(&data); });
  EXPECT_GT(error(), 0.1);  // .trans dropped
}

TEST(LaneMachineTest, OneWarpMultipliesHalfMatrices) { test_gemm<DType::kFloat16>(); }
TEST(LaneMachineTest, OneWarpMultipliesBfloat16Matrices) { test_gemm<DType::kBFloat16>(); }

TEST(LaneMachineTest, StmatrixIsTheInverseOfLdmatrix) {
  GlobalMemory memory;
  const RunReport report = run(one_cta(32, 2048), memory, [] {
    const uint32_t lane = threadIdx.x;
    const uint32_t base = ptx::shared_address(ptx::dynamic_shared_memory());
    const uint32_t in[4] = {lane, lane + 100, lane + 200, lane + 300};
    ptx::stmatrix_x4(base + lane * 16, in);
    ptx::sync_warp();
    uint32_t out[4];
    ptx::ldmatrix_x4(out, base + lane * 16);
    EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
  });
  EXPECT_TRUE(report.hazards.empty()) << report.summary();
  EXPECT_EQ(report.bank_conflicts, 0u);
}

TEST(LaneMachineTest, ShufflesAndVotes) {
  GlobalMemory memory;
  const RunReport report = run(one_cta(64, 64, 1), memory, [] {
    const int lane = static_cast<int>(threadIdx.x % 32);
    EXPECT_EQ(ptx::shfl_xor(static_cast<float>(lane), 5), static_cast<float>(lane ^ 5));
    EXPECT_EQ(ptx::shfl_idx(lane + 1, 7), 8);
    EXPECT_TRUE(ptx::vote_any(lane == 3));
    EXPECT_FALSE(ptx::vote_all(lane != 3));
    EXPECT_EQ(ptx::barrier_red_or(1, 64, threadIdx.x == 40), true);
    EXPECT_EQ(ptx::barrier_red_or(1, 64, false), false);
  });
  EXPECT_TRUE(report.hazards.empty()) << report.summary();
}

// ---------------------------------------------------------------- a pipeline of cp.async

constexpr int kNumTiles = 6;
constexpr int kTileFloats = 128 * 4;  // 16 bytes for each of 128 threads

struct PipelineBugs {
  int wait = 1;         // groups left under way
  bool publish = true;  // the barrier between landing and reading
  bool protect = true;  // the barrier between reading and the next overwrite
  bool drain = true;    // the last wait
};

// Sums tiles that two stages of shared memory hold in turn.
void pipeline_kernel(const float* tiles, float* sums, const PipelineBugs& bugs) {
  const uint32_t thread = threadIdx.x;
  const uint32_t base = ptx::shared_address(ptx::dynamic_shared_memory());
  const auto load = [&](int tile) {
    if (tile < kNumTiles)
      ptx::cp_async_16(base + static_cast<uint32_t>(tile % 2) * kTileFloats * 4 + thread * 16,
                       tiles + tile * kTileFloats + thread * 4);
    ptx::cp_async_commit_group();
  };
  float sum = 0;
  load(0);
  for (int tile = 0; tile < kNumTiles; ++tile) {
    if (bugs.protect) ptx::barrier_sync_cta();
    load(tile + 1);
    if (bugs.wait == 0) ptx::cp_async_wait_group<0>();
    if (bugs.wait == 1) ptx::cp_async_wait_group<1>();
    if (bugs.wait == 2) ptx::cp_async_wait_group<2>();
    if (bugs.publish) ptx::barrier_sync_cta();
    // Each thread reads what its neighbour in the next warp has copied.
    const uint32_t other = (thread + 32) % 128;
    sum +=
        ptx::ld_shared_f32(base + static_cast<uint32_t>(tile % 2) * kTileFloats * 4 + other * 16);
  }
  if (bugs.drain) ptx::cp_async_wait_group<0>();
  ptx::st_global_f32(sums + thread, sum);
}

RunReport run_pipeline(const PipelineBugs& bugs, uint64_t seed, bool* right = nullptr) {
  std::vector<float> tiles(kNumTiles * kTileFloats);
  std::vector<float> sums(128, NAN);
  for (size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<float>(i % 977);
  GlobalMemory memory;
  memory.add("tiles", tiles.data(), tiles.size() * 4, false);
  memory.add("sums", sums.data(), sums.size() * 4, true);
  const RunReport report = run(one_cta(128, 2 * kTileFloats * 4, seed), memory,
                               [&] { pipeline_kernel(tiles.data(), sums.data(), bugs); });
  if (right != nullptr) {
    *right = true;
    for (size_t thread = 0; thread < 128; ++thread) {
      float sum = 0;
      for (size_t tile = 0; tile < kNumTiles; ++tile)
        sum += tiles[tile * kTileFloats + (thread + 32) % 128 * 4];
      *right = *right && sums[thread] == sum;
    }
  }
  return report;
}

TEST(LaneMachineTest, PipelineOfAsynchronousCopies) {
  for (const uint64_t seed : kSeeds) {
    for (const int wait : {0, 1}) {
      PipelineBugs bugs;
      bugs.wait = wait;
      bool right = false;
      const RunReport report = run_pipeline(bugs, seed, &right);
      EXPECT_TRUE(report.hazards.empty()) << report.summary();
      EXPECT_TRUE(right);
    }
  }
}

TEST(LaneMachineHazardTest, WaitGroupOffByOne) {
  for (const uint64_t seed : kSeeds) {
    PipelineBugs bugs;
    bugs.wait = 2;
    const RunReport report = run_pipeline(bugs, seed);
    EXPECT_TRUE(report.has(HazardKind::kCopyInFlight)) << seed << report.summary();
  }
}

TEST(LaneMachineHazardTest, NoBarrierBetweenLandingAndReading) {
  for (const uint64_t seed : kSeeds) {
    PipelineBugs bugs;
    bugs.publish = false;
    const RunReport report = run_pipeline(bugs, seed);
    EXPECT_TRUE(report.has(HazardKind::kRace) || report.has(HazardKind::kCopyInFlight) ||
                report.has(HazardKind::kUnwrittenShared))
        << seed << report.summary();
  }
}

TEST(LaneMachineHazardTest, NoBarrierBeforeTheOverwrite) {
  for (const uint64_t seed : kSeeds) {
    PipelineBugs bugs;
    bugs.protect = false;
    const RunReport report = run_pipeline(bugs, seed);
    EXPECT_TRUE(report.has(HazardKind::kRace) || report.has(HazardKind::kCopyInFlight))
        << seed << report.summary();
  }
}

TEST(LaneMachineHazardTest, CopiesLeftOverAtTheEnd) {
  GlobalMemory memory;
  alignas(16) float source[4] = {};
  memory.add("source", source, sizeof source, false);
  for (const bool committed : {false, true}) {
    expect_only(run(one_cta(32, 512), memory,
                    [&] {
                      if (threadIdx.x == 5)
                        ptx::cp_async_16(ptx::shared_address(ptx::dynamic_shared_memory()), source);
                      if (committed) ptx::cp_async_commit_group();
                    }),
                HazardKind::kLeftover, "thread 5");
  }
}

// ---------------------------------------------------------------- each hazard, planted

// Runs `kernel` on 64 threads with 1 KiB of shared memory under every schedule; each must report
// exactly `kind`.
template <class Kernel>
void plant(HazardKind kind, const char* text, const Kernel& kernel) {
  alignas(16) static float memory_of_all[512];
  float* const input = memory_of_all + 64;
  float* const output = memory_of_all + 256;
  GlobalMemory memory;
  memory.add("input", input, 128, false);
  memory.add("output", output, 128, true);
  for (const uint64_t seed : kSeeds) {
    expect_only(run(one_cta(64, 1024, seed), memory,
                    [&] {
                      kernel(ptx::shared_address(ptx::dynamic_shared_memory()), threadIdx.x,
                             static_cast<const float*>(input), output);
                    }),
                kind, text);
  }
}

using Address = uint32_t;

TEST(LaneMachineHazardTest, ReadOfUnwrittenSharedMemory) {
  plant(HazardKind::kUnwrittenShared, "instrument_test.cc",
        [](Address base, uint32_t thread, const float*, float*) {
          if (thread == 3) ptx::ld_shared_f32(base + 64);
        });
}

TEST(LaneMachineHazardTest, WriteThenReadWithoutBarrier) {
  plant(HazardKind::kRace, "nothing orders",
        [](Address base, uint32_t thread, const float*, float*) {
          ptx::st_shared_u32(base + thread * 4, thread);
          ptx::barrier_sync_cta();
          ptx::ld_shared_u32(base + (thread ^ 32) * 4);
          if (thread < 32) ptx::st_shared_u32(base + thread * 4, 7);
        });
}

TEST(LaneMachineHazardTest, SharedMemoryExchangeInsideAWarpWithoutSyncWarp) {
  plant(HazardKind::kRace, "nothing orders",
        [](Address base, uint32_t thread, const float*, float*) {
          ptx::st_shared_u32(base + thread * 4, thread);
          ptx::vote_any(true);  // meets, but orders no memory
          ptx::ld_shared_u32(base + (thread ^ 1) * 4);
        });
}

TEST(LaneMachineHazardTest, TwoWritesToOneAddress) {
  plant(HazardKind::kRace, "writes at", [](Address base, uint32_t thread, const float*, float*) {
    ptx::st_shared_u32(base + thread % 63 * 4, thread);
  });
}

TEST(LaneMachineHazardTest, SharedMemoryOutOfBounds) {
  plant(HazardKind::kBounds, "1024 bytes", [](Address base, uint32_t thread, const float*, float*) {
    ptx::st_shared_u32(base + 1024 - 63 * 4 + thread * 4, thread);
  });
}

TEST(LaneMachineHazardTest, GlobalMemoryOutOfBounds) {
  plant(HazardKind::kBounds, "input + 128 of 128 bytes",
        [](Address, uint32_t thread, const float* input, float*) {
          if (thread < 33) ptx::ld_global_f32(input + thread);
        });
}

TEST(LaneMachineHazardTest, CopyFromOutOfBounds) {
  plant(HazardKind::kBounds, "input + -16 of 128 bytes",
        [](Address base, uint32_t thread, const float* input, float*) {
          if (thread == 0) ptx::cp_async_16(base, input - 4);
          if (thread == 1) ptx::cp_async_16_zero_fill(base + 16, input - 400, 0);  // reads nothing
          ptx::cp_async_commit_group();
          ptx::cp_async_wait_group<0>();
        });
}

TEST(LaneMachineHazardTest, MisalignedVectorAccess) {
  plant(HazardKind::kMisaligned, "not aligned to 16 bytes",
        [](Address base, uint32_t thread, const float*, float*) {
          const uint32_t value[4] = {};
          if (thread == 9) ptx::st_shared_v4(base + 8, value);
        });
  plant(HazardKind::kMisaligned, "not aligned to 16 bytes",
        [](Address, uint32_t thread, const float* input, float*) {
          uint32_t value[4];
          if (thread == 9) ptx::ld_global_v4(value, input + 1);
        });
}

TEST(LaneMachineHazardTest, BarrierThatNotAllReach) {
  plant(HazardKind::kDeadlock, "warp 0 lanes 0-31 wait in bar (barrier 0 of 64 threads)",
        [](Address, uint32_t thread, const float*, float*) {
          if (thread < 32) ptx::barrier_sync_cta();
        });
}

TEST(LaneMachineHazardTest, ShuffleThatNotAllReach) {
  plant(HazardKind::kDeadlock, "warp 1 lanes 0-7,9-31 wait in shfl",
        [](Address, uint32_t thread, const float*, float*) {
          if (thread != 40) ptx::shfl_xor(1.0f, 1);
        });
}

TEST(LaneMachineHazardTest, NamedBarrierWithCountsThatDisagree) {
  plant(HazardKind::kBarrierMisuse, "others came to it for",
        [](Address, uint32_t thread, const float*, float*) {
          if (thread < 32) {
            ptx::barrier_arrive(2, 64);
          }
          ptx::barrier_sync_cta();
          if (thread >= 32) ptx::barrier_sync(2, 32);
        });
}

TEST(LaneMachineHazardTest, DivergentBarrier) {
  plant(HazardKind::kBarrierMisuse, "divergent",
        [](Address, uint32_t thread, const float*, float*) {
          if (thread % 2 == 0) {
            ptx::barrier_sync_cta();
          } else {
            ptx::barrier_sync_cta();
          }
        });
}

TEST(LaneMachineHazardTest, MmaReadsARegisterThatNothingHasWritten) {
  plant(HazardKind::kUninitialisedRegister, "a[2]",
        [](Address, uint32_t thread, const float*, float*) {
          uint32_t a[4];
          a[0] = a[1] = a[3] = thread;
          float d[4] = {};
          ptx::mma_m16n8k16<DType::kFloat16>(d, a, 0, 0);
        });
  plant(HazardKind::kUninitialisedRegister, "d[1]",
        [](Address, uint32_t thread, const float*, float*) {
          const uint32_t a[4] = {thread, 0, 0, 0};
          float d[4];
          d[0] = d[2] = d[3] = 0;
          ptx::mma_m16n8k16<DType::kFloat16>(d, a, 0, 0);
        });
}

TEST(LaneMachineHazardTest, TwoLanesWriteOneGlobalAddress) {
  plant(HazardKind::kWrongGlobalWrite, "second lane",
        [](Address, uint32_t thread, const float*, float* output) {
          ptx::st_global_f32(output + thread % 32, 0.0f);
        });
}

TEST(LaneMachineHazardTest, WaitForAValueThatNobodyWrites) {
  plant(HazardKind::kDeadlock, "nobody will write",
        [](Address, uint32_t, const float*, float* output) {
          const auto* word = reinterpret_cast<const uint64_t*>(output);
          ptx::atomic_wait_acquire(word, ptx::atomic_load_acquire(word) + 1);
        });
}

TEST(LaneMachineTest, LanesAndCtasMayStoreAtomicallyToOneAddress) {
  alignas(16) uint64_t words[2] = {};
  GlobalMemory memory;
  memory.add("words", words, sizeof words, true);
  Launch launch = one_cta(64, 1024);
  launch.grid.x = 3;
  const RunReport report = run(launch, memory, [&] {
    ptx::atomic_store_relaxed(&words[0], threadIdx.x % 2);
    ptx::atomic_store_release(&words[1], 7);
    ptx::atomic_compare_and_swap_relaxed(&words[1], 7, 8);
  });
  EXPECT_TRUE(report.hazards.empty()) << report.summary();
  EXPECT_LE(words[0], 1u);
  EXPECT_EQ(words[1], 8u);
}

TEST(LaneMachineHazardTest, WriteToAnInput) {
  plant(HazardKind::kWrongGlobalWrite, "input",
        [](Address, uint32_t thread, const float* input, float*) {
          if (thread == 0) ptx::st_global_f32(const_cast<float*>(input), 0.0f);
        });
}

TEST(LaneMachineHazardTest, ReadOfAGapBetweenRows) {
  alignas(16) float rows[32] = {};
  GlobalMemory memory;
  std::vector<uint8_t> used(sizeof rows, 1);
  std::fill_n(used.begin() + 48, 16, uint8_t{0});
  memory.add("rows", rows, sizeof rows, false, used);
  expect_only(run(one_cta(32, 64), memory,
                  [&] {
                    if (threadIdx.x < 16) ptx::ld_global_f32(rows + threadIdx.x);
                  }),
              HazardKind::kBounds, "no tensor element");
}

// ---------------------------------------------------------------- counters

TEST(LaneMachineTest, CountsBankConflictsAndSectors) {
  alignas(128) static float input[32 * 32] = {};
  const auto count = [&](uint32_t shared_stride, uint32_t global_stride) {
    GlobalMemory memory;
    memory.add("input", input, sizeof input, false);
    return run(one_cta(32, 4096), memory, [&] {
      const uint32_t base = ptx::shared_address(ptx::dynamic_shared_memory());
      ptx::st_shared_f32(base + threadIdx.x * shared_stride,
                         ptx::ld_global_f32(input + threadIdx.x * global_stride));
    });
  };
  EXPECT_EQ(count(4, 1).bank_conflicts, 0u);
  EXPECT_EQ(count(8, 1).bank_conflicts, 1u);
  EXPECT_EQ(count(128, 1).bank_conflicts, 31u);
  const auto sectors = [&](uint32_t stride) {
    uint64_t total = 0;
    for (const SiteCounters& site : count(4, stride).sites) total += site.sectors;
    return total;
  };
  EXPECT_EQ(sectors(1), 4u);
  EXPECT_EQ(sectors(2), 8u);
  EXPECT_EQ(sectors(32), 32u);
}

}  // namespace
}  // namespace tilefold::lane_machine
