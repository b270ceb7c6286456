// Tests of the instrument's Hopper half: TMA, mbarriers, proxy fences and wgmma, right and with a
// planted bug.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/scalar.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "forward_run.h"
#include "lane_machine/numbers.h"
#include "layout/hopper.h"

namespace tilefold::lane_machine {
namespace {

constexpr uint64_t kSeeds[] = {0, 1, 2, 3};
constexpr int kRows = 6;
constexpr int kColumns = 40;
constexpr int kBoxBytes = 8 * 64 * 2;

// A [1, 1, 6, 40] tensor of 16-bit numbers and its map with boxes of 8 x 64: one that reaches past
// both ends.
struct Fixture {
  alignas(16) uint16_t data[kRows * kColumns];
  GlobalMemory memory;
  alignas(64) TensorMap map;

  Fixture() {
    for (int i = 0; i < kRows * kColumns; ++i) data[i] = static_cast<uint16_t>(i + 1);
    memory.add("tensor", data, sizeof data, true);
    TensorMapOperand operand;
    operand.data = data;
    operand.strides = {0, 0, kColumns, 1};
    operand.batch = operand.heads = 1;
    operand.rows = kRows;
    operand.columns = kColumns;
    operand.box_rows = 8;
    map = host_tensor_map(operand);
  }
};

Launch launch_of(unsigned threads, uint64_t seed) {
  Launch launch;
  launch.block.x = threads;
  launch.shared_bytes = 32 * 1024;
  launch.seed = seed;
  return launch;
}

// Every schedule reports `kind`, and with kCount nothing at all.
template <class Kernel>
void expect(HazardKind kind, unsigned threads, const Kernel& kernel) {
  for (const uint64_t seed : kSeeds) {
    Fixture fixture;
    const RunReport report = run(launch_of(threads, seed), fixture.memory, [&] {
      kernel(fixture, ptx::shared_address(ptx::dynamic_shared_memory()));
    });
    if (kind == HazardKind::kCount) {
      EXPECT_TRUE(report.hazards.empty()) << report.summary();
    } else {
      EXPECT_TRUE(report.has(kind))
          << "schedule " << seed << ", wanted " << hazard_name(kind) << "\n"
          << report.summary();
    }
  }
}

struct LoadBugs {
  bool fence = true;
  bool publish = true;
  uint32_t bytes = kBoxBytes;
  uint32_t parity = 0;
  int arrivals = 1;
};

// Thread 0 loads the box from row 2 on; all look at it.
void load_kernel(const Fixture& fixture, uint32_t shared, const LoadBugs& bugs) {
  const uint32_t barrier = shared + 2048;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, static_cast<uint32_t>(bugs.arrivals));
    if (bugs.fence) ptx::fence_mbarrier_init();
  }
  if (bugs.publish) ptx::barrier_sync_cta();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(barrier, bugs.bytes);
    ptx::tma_load_4d(shared, &fixture.map, barrier, 0, 2, 0, 0);
  }
  ptx::mbarrier_wait(barrier, bugs.parity);
  for (int row = 0; row < 8; ++row) {
    const int column = static_cast<int>(threadIdx.x % 32) * 2;
    const uint32_t pair =
        ptx::ld_shared_u32(shared + static_cast<uint32_t>(layout::swizzle128(row, column, 8)));
    const bool inside = row + 2 < kRows && column < kColumns;
    const uint32_t first = static_cast<uint32_t>((row + 2) * kColumns + column + 1);
    const uint32_t expected = inside ? first | (first + 1) << 16 : 0u;
    if (bugs.fence && bugs.publish) {
      EXPECT_EQ(pair, expected) << row;
    }
  }
}

void expect_load(HazardKind kind, const LoadBugs& bugs) {
  expect(kind, 64,
         [&](const Fixture& fixture, uint32_t shared) { load_kernel(fixture, shared, bugs); });
}

TEST(LaneMachineHopperTest, TmaSwizzlesAndFillsWithZeros) { expect_load(HazardKind::kCount, {}); }

TEST(LaneMachineHopperTest, BarrierUsedBeforeItsInitialisationIsPublished) {
  LoadBugs bugs;
  bugs.publish = false;
  for (const uint64_t seed : kSeeds) {
    Fixture fixture;
    const RunReport report = run(launch_of(64, seed), fixture.memory, [&] {
      load_kernel(fixture, ptx::shared_address(ptx::dynamic_shared_memory()), bugs);
    });
    EXPECT_TRUE(report.has(HazardKind::kRace) || report.has(HazardKind::kBarrierMisuse))
        << report.summary();
  }
}

TEST(LaneMachineHopperTest, BarrierNotFencedForTma) {
  LoadBugs bugs;
  bugs.fence = false;
  expect_load(HazardKind::kProxy, bugs);
}

TEST(LaneMachineHopperTest, TooFewBytesExpected) {
  LoadBugs bugs;
  bugs.bytes = kBoxBytes - 128;
  expect_load(HazardKind::kDeadlock, bugs);
}

TEST(LaneMachineHopperTest, OneArrivalMissing) {
  LoadBugs bugs;
  bugs.arrivals = 2;
  expect_load(HazardKind::kDeadlock, bugs);
}

TEST(LaneMachineHopperTest, WaitForTheWrongParity) {
  expect(HazardKind::kCopyInFlight, 32, [](const Fixture& fixture, uint32_t shared) {
    if (threadIdx.x != 0) return;
    ptx::mbarrier_init(shared + 2048, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(shared + 2048, kBoxBytes);
    ptx::tma_load_4d(shared, &fixture.map, shared + 2048, 0, 0, 0, 0);
    ptx::mbarrier_wait(shared + 2048, 1);
    ptx::ld_shared_u32(shared);
    ptx::mbarrier_wait(shared + 2048, 0);
  });
}

struct StoreBugs {
  bool fence = true;
  bool publish = true;
  bool wait = true;
  bool overwrite = false;
  int32_t row = 0;
};

void store_kernel(const Fixture& fixture, uint32_t shared, const StoreBugs& bugs) {
  for (int row = 0; row < 8; ++row) {
    const int column = static_cast<int>(threadIdx.x) * 2;
    if (column < 64)
      ptx::st_shared_u32(shared + static_cast<uint32_t>(layout::swizzle128(row, column, 8)),
                         0x00070007);
  }
  if (bugs.fence) ptx::fence_proxy_async();
  if (bugs.publish) ptx::barrier_sync_cta();
  if (threadIdx.x == 0) {
    ptx::tma_store_4d(&fixture.map, shared, 0, bugs.row, 0, 0);
    ptx::tma_store_commit();
    if (bugs.overwrite) ptx::st_shared_u32(shared, 0);
    if (bugs.wait) ptx::tma_store_wait_read();
  }
}

TEST(LaneMachineHopperTest, TmaStoresWhatTheTensorHas) {
  Fixture fixture;
  const RunReport report = run(launch_of(64, 0), fixture.memory, [&] {
    store_kernel(fixture, ptx::shared_address(ptx::dynamic_shared_memory()), {});
  });
  EXPECT_TRUE(report.hazards.empty()) << report.summary();
  for (const uint16_t x : fixture.data) EXPECT_EQ(x, 7);
}

TEST(LaneMachineHopperTest, StoreWithoutProxyFence) {
  expect(HazardKind::kProxy, 64, [](const Fixture& fixture, uint32_t shared) {
    StoreBugs bugs;
    bugs.fence = false;
    store_kernel(fixture, shared, bugs);
  });
}

TEST(LaneMachineHopperTest, StoreThatNobodyWaitsFor) {
  expect(HazardKind::kLeftover, 64, [](const Fixture& fixture, uint32_t shared) {
    StoreBugs bugs;
    bugs.wait = false;
    store_kernel(fixture, shared, bugs);
  });
}

// What waits for the reading alone has no claim on global memory: the store's own bytes come last.
TEST(LaneMachineHopperTest, StoreOverWhatTmaStores) {
  for (const bool complete : {false, true}) {
    Fixture fixture;
    const RunReport report = run(launch_of(64, 0), fixture.memory, [&] {
      store_kernel(fixture, ptx::shared_address(ptx::dynamic_shared_memory()), {});
      if (threadIdx.x != 0) return;
      if (complete) ptx::tma_store_wait();
      ptx::st_global_u16(&fixture.data[0], 9);
    });
    EXPECT_TRUE(report.hazards.empty()) << report.summary();
    EXPECT_EQ(fixture.data[0], complete ? 9 : 7);
    EXPECT_EQ(fixture.data[1], 7);
  }
}

TEST(LaneMachineHopperTest, StoreBeforeTheTensor) {
  expect(HazardKind::kBadOperand, 64, [](const Fixture& fixture, uint32_t shared) {
    StoreBugs bugs;
    bugs.row = -8;
    store_kernel(fixture, shared, bugs);
  });
}

TEST(LaneMachineHopperTest, SourceOfAStoreOverwritten) {
  expect(HazardKind::kRace, 64, [](const Fixture& fixture, uint32_t shared) {
    StoreBugs bugs;
    bugs.overwrite = true;
    store_kernel(fixture, shared, bugs);
  });
}

struct WgmmaBugs {
  bool proxy_fence = true;
  bool fence = true;
  bool touch = false;
  bool overwrite = false;
  bool wait = true;
};

// D[64, 64] = A B^T, both K-major in shared memory, and D += 1 B with ones in registers and B read
// MN-major. Small integers: D is exact.
void wgmma_kernel(uint32_t shared, const WgmmaBugs& bugs) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t sA = shared, sB = shared + 8192;
  const auto a_of = [](int row, int k) { return (row + 3 * k) % 7 - 3; };
  const auto b_of = [](int row, int k) { return (2 * row + k) % 5 - 2; };
  for (int i = thread; i < 64 * 32; i += 128) {
    const int row = i / 32, column = i % 32 * 2;
    const uint32_t offset = static_cast<uint32_t>(layout::swizzle128(row, column, 64));
    const auto pair = [&](auto of) {
      return float_to_half(static_cast<float>(of(row, column))) |
             static_cast<uint32_t>(float_to_half(static_cast<float>(of(row, column + 1)))) << 16;
    };
    ptx::st_shared_u32(sA + offset, pair(a_of));
    ptx::st_shared_u32(sB + offset, pair(b_of));
  }
  if (bugs.proxy_fence) ptx::fence_proxy_async();
  ptx::barrier_sync_cta();
  const auto descriptor = [](uint32_t low) {
    return static_cast<uint64_t>(layout::descriptor_high()) << 32 | low;
  };
  float d[32];
  const uint32_t a = layout::descriptor_low(sA, layout::kLeadingUnused);
  const uint32_t b = layout::descriptor_low(sB, layout::kLeadingUnused);
  if (bugs.fence) ptx::wgmma_fence();
  for (int step = 0; step < 4; ++step)
    ptx::wgmma_ss<64, DType::kFloat16>(d, descriptor(a + layout::k_major_step(step, 64)),
                                       descriptor(b + layout::k_major_step(step, 64)), step != 0);
  const uint32_t ones[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
  for (int step = 0; step < 4; ++step)
    ptx::wgmma_rs<64, DType::kFloat16>(d, ones, descriptor(b + layout::mn_major_step(step)));
  ptx::wgmma_commit();
  if (bugs.touch) d[3] = 1.0f;
  if (bugs.overwrite && thread == 0) ptx::st_shared_u32(sB, 0);
  if (!bugs.wait) return;
  ptx::wgmma_wait<0>();
  if (bugs.touch || bugs.overwrite || !bugs.proxy_fence) return;
  for (int r = 0; r < 32; ++r) {
    const layout::Coord at = layout::wgmma_accumulator(thread, r);
    int sum = 0;
    for (int k = 0; k < 64; ++k) sum += a_of(at.row, k) * b_of(at.column, k) + b_of(k, at.column);
    EXPECT_EQ(d[r], static_cast<float>(sum)) << at.row << " " << at.column;
  }
}

void expect_wgmma(HazardKind kind, const WgmmaBugs& bugs) {
  expect(kind, 128, [&](const Fixture&, uint32_t shared) { wgmma_kernel(shared, bugs); });
}

TEST(LaneMachineHopperTest, WgmmaMultipliesBothMajors) { expect_wgmma(HazardKind::kCount, {}); }

TEST(LaneMachineHopperTest, WgmmaOperandsWithoutProxyFence) {
  WgmmaBugs bugs;
  bugs.proxy_fence = false;
  expect_wgmma(HazardKind::kProxy, bugs);
}

TEST(LaneMachineHopperTest, WgmmaWithoutItsFence) {
  WgmmaBugs bugs;
  bugs.fence = false;
  expect_wgmma(HazardKind::kRegistersInFlight, bugs);
}

TEST(LaneMachineHopperTest, AccumulatorTouchedInFlight) {
  WgmmaBugs bugs;
  bugs.touch = true;
  expect_wgmma(HazardKind::kRegistersInFlight, bugs);
}

TEST(LaneMachineHopperTest, OperandOverwrittenInFlight) {
  WgmmaBugs bugs;
  bugs.overwrite = true;
  expect_wgmma(HazardKind::kRace, bugs);
}

TEST(LaneMachineHopperTest, WgmmaNeverWaitedFor) {
  WgmmaBugs bugs;
  bugs.wait = false;
  expect_wgmma(HazardKind::kLeftover, bugs);
}

}  // namespace
}  // namespace tilefold::lane_machine
