// The image of tiles in shared memory.
#include "layout/tile.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "layout/divisor.h"
#include "layout/pipeline_state.h"
#include "wavefronts.h"

namespace tilefold::layout {
namespace {

std::vector<Tile> tiles() {
  std::vector<Tile> all;
  for (int rows : {8, 16, 32, 64, 128}) {
    for (int columns = 32; columns <= 256; columns += 32) all.push_back({rows, columns});
  }
  return all;
}

TEST(TileTest, IsBijectiveAndAlignedForEveryHeadDim) {
  for (const Tile& tile : tiles()) {
    SCOPED_TRACE(testing::Message() << tile.rows << " x " << tile.columns);
    ASSERT_TRUE(tile.valid());
    EXPECT_EQ(tile.bytes(), tile.rows * tile.columns * kElementBytes);
    std::set<int> seen;
    for (int row = 0; row < tile.rows; ++row) {
      for (int chunk = 0; chunk < tile.columns / kChunkElems; ++chunk) {
        const int offset = tile.offset_bytes(row, chunk);
        EXPECT_EQ(offset % kChunkBytes, 0);
        EXPECT_TRUE(offset >= 0 && offset < tile.bytes());
        EXPECT_TRUE(seen.insert(offset).second);
      }
    }
  }
}

// TMA's image: inside a page, address bits 4.. are XORed with bits 7.. (3 bits of the 128-byte
// swizzle, 2 of the 64-byte one).
TEST(TileTest, IsWhatTmaWrites) {
  for (const Tile& tile : tiles()) {
    const int bits = tile.page_columns() == 64 ? 7 : 3;
    for (int row = 0; row < tile.rows; ++row) {
      for (int chunk = 0; chunk < tile.columns / kChunkElems; ++chunk) {
        const int page = chunk / tile.chunks_per_page();
        const int linear = row * tile.row_bytes() + chunk % tile.chunks_per_page() * kChunkBytes;
        const int swizzled = linear ^ ((linear >> 7 & bits) << 4);
        EXPECT_EQ(tile.offset_bytes(row, chunk), page * tile.page_bytes() + swizzled);
      }
    }
  }
}

TEST(TileTest, StepsOfSixteenAreAnXorAndASum) {
  for (const Tile& tile : tiles()) {
    for (int row = 0; row < 16 && row < tile.rows; ++row) {
      for (int chunk : {0, 1}) {
        const auto base = static_cast<uint32_t>(tile.offset_bytes(row, chunk));
        for (int k = 0; k < tile.columns / 16; ++k) {
          for (int i = 0; 16 * i + row < tile.rows; ++i) {
            const uint32_t stepped = (base ^ tile.k16_xor(k)) + tile.k16_page_bytes(k) +
                                     static_cast<uint32_t>(i) * tile.rows16_bytes();
            EXPECT_EQ(stepped,
                      static_cast<uint32_t>(tile.offset_bytes(row + 16 * i, chunk + 2 * k)));
          }
        }
      }
    }
  }
}

// Any eight consecutive rows of one chunk column, which is what one matrix of ldmatrix reads.
TEST(TileTest, EightRowsOfAChunkColumnLieInAllBanks) {
  for (const Tile& tile : tiles()) {
    for (int row = 0; row + 8 <= tile.rows; row += 8) {
      for (int chunk = 0; chunk < tile.columns / kChunkElems; ++chunk) {
        std::vector<uint32_t> addresses;
        for (int i = 0; i < 8; ++i) {
          addresses.push_back(static_cast<uint32_t>(tile.offset_bytes(row + i, chunk)));
        }
        EXPECT_EQ(bank_passes(addresses, kChunkBytes), 1);
      }
    }
  }
}

TEST(WavefrontTest, CountsConflictsAndBroadcasts) {
  EXPECT_EQ(bank_passes({0, 128, 256}, 4), 3);
  EXPECT_EQ(bank_passes({0, 0, 4}, 4), 1);
  EXPECT_EQ(bank_passes({0, 16, 32, 48, 64, 80, 96, 112}, 16), 1);
  EXPECT_EQ(bank_passes({0, 16, 32, 48, 64, 80, 96, 128}, 16), 2);
}

TEST(DivisorTest, IsDivisionBelowTwoToThe31) {
  constexpr uint32_t kMost = 0x7fffffffu;
  std::vector<uint32_t> divisors = {kMost, kMost - 1, 1u << 30, (1u << 30) + 1, 65537};
  for (uint32_t d = 1; d <= 1000; ++d) divisors.push_back(d);
  int64_t wrong = 0;
  for (const uint32_t d : divisors) {
    const Divisor divisor(d);
    for (uint32_t i = 0; i < 500; ++i) {
      // Small numbers, large ones, multiples of d and their neighbours, and numbers in between.
      const uint32_t multiple = kMost / d * d - i / 2 % (kMost / d + 1) * d;
      for (const uint32_t n :
           {i, kMost - i, multiple, multiple == 0 ? 0 : multiple - 1, i * 2654435761u & kMost}) {
        wrong += divisor.quotient(n) != n / d;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

template <int kStages>
void check_pipeline() {
  PipelineState<kStages> state;
  for (int n = 0; n < 5 * kStages; ++n) {
    EXPECT_EQ(state.stage, n % kStages);
    EXPECT_EQ(state.phase, static_cast<uint32_t>(n / kStages % 2));
    state.advance();
  }
}

TEST(PipelineStateTest, CountsStagesAndFlipsThePhaseWhenItWraps) {
  check_pipeline<1>();
  check_pipeline<2>();
  check_pipeline<3>();
  check_pipeline<4>();
}

}  // namespace
}  // namespace tilefold::layout
