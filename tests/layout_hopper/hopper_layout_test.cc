// The lane maps, swizzle and descriptors of layout/hopper.h against first principles and the PTX
// ISA's tables.
#include "layout/hopper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "cuda/sm90/forward_config.h"
#include "layout/tile.h"

namespace tilefold::layout {
namespace {

// What TMA writes: a box of 64 columns at a time, rows of 128 bytes, 16-byte units XORed with the
// row's number within each group of eight rows (address bits 4 to 6 with bits 7 to 9).
std::vector<std::pair<int, int>> tma_image(int rows, int columns) {
  std::vector<std::pair<int, int>> elements(static_cast<size_t>(rows) * padded_columns(columns));
  for (int box = 0; box < padded_columns(columns) / 64; ++box) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < 64; ++column) {
        const int linear = box * rows * 128 + row * 128 + column * 2;
        const int swizzled = linear ^ (linear >> 7 & 7) << 4;
        elements[swizzled / 2] = {row, 64 * box + column};
      }
    }
  }
  return elements;
}

TEST(HopperSwizzleTest, EqualsWhatTmaWrites) {
  for (const int rows : {16, 64, 80, 96, 112, 128, 192}) {
    for (const int columns : {64, 96, 128, 192, 256}) {
      const auto image = tma_image(rows, columns);
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
          const int offset = swizzle128(row, column, rows);
          ASSERT_EQ(image[offset / 2], std::make_pair(row, column)) << rows << "x" << columns;
        }
      }
    }
  }
}

TEST(HopperSwizzleTest, IsTheImageOfATileWithPagesOf64Columns) {
  for (const int rows : {16, 64, 80, 128}) {
    for (const int columns : {64, 128, 192, 256}) {
      const Tile tile{rows, columns};
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
          ASSERT_EQ(swizzle128(row, column, rows), tile.offset_bytes(row, column / kChunkElems) +
                                                       column % kChunkElems * kElementBytes)
              << rows << "x" << columns << ": " << row << ", " << column;
        }
      }
    }
  }
}

TEST(HopperSwizzleTest, ChunksStartOnWholePatterns) {
  for (const int rows : {64, 80, 96, 112, 128}) {
    EXPECT_EQ(swizzle128(0, 64, rows) % kSwizzleAtomBytes, 0) << rows;
  }
}

// The element that the tensor core reads at (row, k) of a K-major operand whose descriptor is
// (low, high): start + (row / 8) * stride, rows of 128 bytes, the XOR on the absolute address.
int k_major_address(uint32_t low, uint32_t high, int row, int k) {
  const int start = static_cast<int>(low & 0x3FFF) << 4;
  const int stride = static_cast<int>(high & 0x3FFF) << 4;
  const int linear = start + row / 8 * stride + row % 8 * 128 + k * 2;
  return linear ^ (linear >> 7 & 7) << 4;
}

// At (k, column) of an MN-major operand: 64 columns lie together, then comes the leading offset;
// groups of eight k lie a stride apart.
int mn_major_address(uint32_t low, uint32_t high, int k, int column) {
  const int start = static_cast<int>(low & 0x3FFF) << 4;
  const int leading = static_cast<int>(low >> 16 & 0x3FFF) << 4;
  const int stride = static_cast<int>(high & 0x3FFF) << 4;
  const int linear = start + column / 64 * leading + k / 8 * stride + k % 8 * 128 + column % 64 * 2;
  return linear ^ (linear >> 7 & 7) << 4;
}

TEST(HopperDescriptorTest, KMajorStepsReachEveryElement) {
  for (const uint32_t base : {0u, 1024u, 65536u, 196608u}) {
    for (const int rows : {64, 80, 96, 112, 128}) {
      for (const int columns : {64, 96, 128, 192, 256}) {
        for (int step = 0; step < columns / kWgmmaK; ++step) {
          const uint32_t low = descriptor_low(base, kLeadingUnused) + k_major_step(step, rows);
          for (int row = 0; row < rows; ++row) {
            for (int k = 0; k < kWgmmaK; ++k) {
              ASSERT_EQ(k_major_address(low, descriptor_high(), row, k),
                        static_cast<int>(base) + swizzle128(row, step * kWgmmaK + k, rows));
            }
          }
        }
      }
    }
  }
}

TEST(HopperDescriptorTest, MnMajorStepsReachEveryElement) {
  for (const uint32_t base : {0u, 1024u, 65536u, 196608u}) {
    for (const int rows : {64, 80, 96, 112, 128}) {
      for (const int columns : {64, 96, 128, 192, 256}) {
        for (int step = 0; step < rows / kWgmmaK; ++step) {
          const uint32_t low = descriptor_low(base, rows * kSwizzleRowBytes) + mn_major_step(step);
          for (int k = 0; k < kWgmmaK; ++k) {
            for (int column = 0; column < columns; ++column) {
              ASSERT_EQ(mn_major_address(low, descriptor_high(), k, column),
                        static_cast<int>(base) + swizzle128(step * kWgmmaK + k, column, rows));
            }
          }
        }
      }
    }
  }
}

TEST(HopperDescriptorTest, FieldsAreWhereTheIsaPutsThem) {
  const uint64_t descriptor =
      static_cast<uint64_t>(descriptor_high()) << 32 | descriptor_low(0x12340, 22528);
  EXPECT_EQ(descriptor & 0x3FFF, 0x1234u);
  EXPECT_EQ(descriptor >> 16 & 0x3FFF, 22528u >> 4);
  EXPECT_EQ(descriptor >> 32 & 0x3FFF, 1024u >> 4);
  EXPECT_EQ(descriptor >> 49 & 7, 0u);  // base offset
  EXPECT_EQ(descriptor >> 62, 1u);      // 128-byte swizzle
}

TEST(HopperDescriptorTest, AddressDropsTheClusterRank) {
  EXPECT_EQ(descriptor_low(0x01000400u, 16), descriptor_low(0x400u, 16));
}

TEST(HopperAccumulatorTest, EveryElementHasOneOwner) {
  for (const int n : {64, 80, 96, 112, 128, 192, 256}) {
    std::set<std::pair<int, int>> seen;
    for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
      for (int reg = 0; reg < n / 2; ++reg) {
        const Coord at = wgmma_accumulator(thread, reg);
        ASSERT_TRUE(at.row >= 0 && at.row < 64 && at.column >= 0 && at.column < n);
        seen.insert({at.row, at.column});
      }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(64 * n));
  }
}

TEST(HopperAccumulatorTest, ARowLivesInOneQuadAndAThreadHasTwo) {
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int reg = 0; reg < 64; ++reg) {
      const int row = wgmma_accumulator(thread, 0).row + 8 * (reg / 2 % 2);
      EXPECT_EQ(wgmma_accumulator(thread, reg).row, row);
      EXPECT_EQ(wgmma_accumulator(thread ^ 3, reg).row, row);
    }
  }
}

// What the masks lean on: a thread's columns are those of thread 0 plus 2 (lane mod 4).
TEST(HopperAccumulatorTest, ColumnsAreThoseOfThreadZeroShifted) {
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int reg = 0; reg < 128; ++reg) {
      EXPECT_EQ(wgmma_accumulator(thread, reg).column,
                wgmma_accumulator(0, reg).column + 2 * (thread % 4));
    }
  }
}

TEST(HopperOperandTest, AccumulatorIsTheAOperandWithoutAnExchange) {
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int step = 0; step < 8; ++step) {
      for (int reg = 0; reg < 4; ++reg) {
        for (int half = 0; half < 2; ++half) {
          const Coord a = wgmma_a_register(thread, reg, half);
          const Coord c = wgmma_accumulator(thread, accumulator_of_a(step, reg) + half);
          EXPECT_EQ(c, (Coord{a.row, a.column + kWgmmaK * step}));
        }
      }
    }
  }
}

// Matrix m of stmatrix.x4 takes its row addresses from lanes 8m to 8m+7; lane l of it holds row l /
// 4, columns 2 (l % 4) and the next.
TEST(HopperStmatrixTest, StoresTheAccumulatorWhereItBelongs) {
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    const int warp_first = thread / 32 * 32;
    const int lane = thread % 32;
    for (int step = 0; step < 16; ++step) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        const Coord row = stmatrix_address(warp_first + 8 * matrix + lane / 4, step);
        for (int half = 0; half < 2; ++half) {
          EXPECT_EQ((Coord{row.row, row.column + 2 * (lane % 4) + half}),
                    wgmma_accumulator(thread, accumulator_of_a(step, matrix) + half));
        }
      }
    }
  }
}

TEST(HopperStmatrixTest, HasNoBankConflict) {
  for (int warp = 0; warp < 4; ++warp) {
    for (int step = 0; step < 16; ++step) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        std::set<int> units;  // of 16 bytes, modulo the 128 bytes that the banks span
        for (int lane = 8 * matrix; lane < 8 * matrix + 8; ++lane) {
          const Coord at = stmatrix_address(32 * warp + lane, step);
          units.insert(swizzle128(at.row, at.column, kWarpgroupRows) / 16 % 8);
        }
        EXPECT_EQ(units.size(), 8u);
      }
    }
  }
}

// ---- the rows of the table

struct NamedConfig {
  const char* name;
  sm90::ForwardConfig config;
};

std::vector<NamedConfig> compiled_rows() {
  using sm90::ForwardConfig;
  std::vector<NamedConfig> rows;
#define TILEFOLD_SM80_ROW(name, ...)
#define TILEFOLD_SM90_ROW(name, ...) rows.push_back({#name, ForwardConfig{__VA_ARGS__}});
#include "cuda/kernels.def"
#undef TILEFOLD_SM90_ROW
#undef TILEFOLD_SM80_ROW
  return rows;
}

TEST(HopperConfigTest, EveryRowIsValid) {
  for (const auto& [name, config] : compiled_rows()) EXPECT_TRUE(config.valid()) << name;
}

TEST(HopperConfigTest, TilesStartOnWholeSwizzlePatterns) {
  for (const auto& [name, c] : compiled_rows()) {
    for (int stage = 0; stage < c.q_stages; ++stage) {
      for (int w = 0; w < c.warpgroups; ++w) {
        EXPECT_EQ(c.q_offset(stage, w) % 1024, 0) << name;
        for (int chunk = 0; chunk < c.o_chunks(); ++chunk) {
          EXPECT_EQ(c.o_offset(stage, w, chunk) % 1024, 0) << name;
        }
      }
    }
    for (int stage = 0; stage < c.stages; ++stage) {
      EXPECT_EQ(c.k_offset(stage) % 1024, 0) << name;
      EXPECT_EQ(c.v_offset(stage) % 1024, 0) << name;
    }
  }
}

TEST(HopperConfigTest, SharedMemoryDoesNotOverlap) {
  for (const auto& [name, c] : compiled_rows()) {
    std::vector<std::pair<int, int>> parts;  // offset, bytes
    for (int s = 0; s < c.q_stages; ++s) {
      for (int w = 0; w < c.warpgroups; ++w) {
        parts.push_back({c.q_offset(s, w), c.q_bytes()});
        parts.push_back({c.full_q(s, w), 8});
        parts.push_back({c.empty_q(s, w), 8});
      }
    }
    for (int w = 0; w < c.warpgroups; ++w) {
      for (int stage = 0; stage < c.o_stages; ++stage) {
        parts.push_back({c.o_offset(0, w, stage), kWarpgroupRows * kSwizzleRowBytes});
      }
    }
    for (int s = 0; s < c.stages; ++s) {
      parts.push_back({c.k_offset(s), c.k_bytes()});
      parts.push_back({c.v_offset(s), c.v_bytes()});
      for (const int barrier : {c.full_k(s), c.full_v(s), c.empty_k(s), c.empty_v(s)}) {
        parts.push_back({barrier, 8});
      }
    }
    for (int s = 0; s < sm90::kTileRingSlots; ++s) {
      parts.push_back({c.full_tile(s), 8});
      parts.push_back({c.empty_tile(s), 8});
      parts.push_back({c.tile_ring(s), 4});
    }
    std::sort(parts.begin(), parts.end());
    int end = 0;
    for (const auto& [offset, bytes] : parts) {
      EXPECT_GE(offset, end) << name;
      end = offset + bytes;
    }
    EXPECT_LE(end, c.smem_bytes()) << name;
  }
}

// setmaxnreg only moves registers: what the roles hold in the end is no more than the CTA was
// entered with.
TEST(HopperConfigTest, RegistersFitThePool) {
  for (const auto& [name, c] : compiled_rows()) {
    const int entered = 65536 / c.threads() / 8 * 8 * c.threads();
    EXPECT_LE(c.consumer_registers() * c.consumer_threads() + c.producer_registers() * 128, entered)
        << name;
  }
}

}  // namespace
}  // namespace tilefold::layout
