// Every row of the sm80 table: its plan of shared memory, and the banks of every access that its
// warps make.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cuda/sm80/config.h"
#include "cuda/sm80/lane_addresses.h"
#include "cuda/sm80/tile_choice.h"
#include "layout/fragments.h"
#include "wavefronts.h"

namespace tilefold::sm80 {
namespace {

using layout::bank_passes;

struct Access {
  std::vector<uint32_t> addresses;
  int bytes;
};

// What one row of the table does to shared memory, its template unfolded.
struct Row {
  std::string name;
  ForwardConfig config;
  // Every ldmatrix, stmatrix and store of every warp, in the order of the kernel's loops.
  std::function<void(const std::function<void(const char* what, const Access&)>&)> visit;
};

template <ForwardConfig kConfig>
void visit_accesses(const std::function<void(const char*, const Access&)>& visit) {
  using Lanes = LaneAddresses<kConfig>;
  for (int warp = 0; warp < kConfig.num_warps; ++warp) {
    const int group = warp / kConfig.warps_per_row_group();
    const int half = warp % kConfig.warps_per_row_group();
    const auto each = [&](const char* what, int bytes, const auto& address) {
      Access access{{}, bytes};
      for (int lane = 0; lane < 32; ++lane) {
        access.addresses.push_back(address(Lanes(0, group, half, lane), lane));
      }
      visit(what, access);
    };
    for (int step = 0; step < kConfig.head_dim / 16; ++step) {
      for (int m = 0; m < kConfig.m16(); ++m) {
        each("Q", 16, [&](const Lanes& l, int) { return l.q_block(m, step); });
      }
      for (int n = 0; n < kConfig.n16(); ++n) {
        each("K", 16, [&](const Lanes& l, int) { return Lanes::k_block(l.k, n, step); });
      }
    }
    for (int step = 0; step < kConfig.block_n / 16; ++step) {
      for (int d = 0; d < kConfig.d16(); ++d) {
        each("V", 16, [&](const Lanes& l, int) { return Lanes::v_block(l.v, step, d); });
      }
      if (kConfig.pair) {
        for (int m = 0; m < kConfig.m16(); ++m) {
          each("P", 16, [&](const Lanes& l, int) { return l.p_block(m, step); });
        }
      }
    }
    if (kConfig.pair) {
      for (int m = 0; m < kConfig.m16(); ++m) {
        for (int n = 0; n < kConfig.n16(); ++n) {
          if (kConfig.load == LoadPath::kTma) {
            each("store of P", 16, [&](const Lanes& l, int) { return l.p_store_block(m, n); });
          } else {
            for (int i = 0; i < 4; ++i) {
              each("store of P", 4, [&](const Lanes& l, int) {
                return Lanes::p_store_register(l.p_store_block(m, n), i);
              });
            }
          }
        }
      }
    }
    for (int m = 0; m < kConfig.m16(); ++m) {
      for (int d = 0; d < 2 * kConfig.d16(); ++d) {
        for (int r = 0; r < 2; ++r) {
          each("store of O", 4, [&](const Lanes&, int lane) {
            return output_store_address<kConfig>(output_lane_address<kConfig>(0, group, half, lane),
                                                 m, d, r);
          });
        }
      }
    }
    constexpr layout::Tile kTile = kConfig.q_tile();
    constexpr int kRows = kConfig.rows_per_warp() / kConfig.warps_per_row_group();
    for (int i = 0; i < kRows / output_row_step<kConfig>(); ++i) {
      for (int page = 0; page < kTile.num_pages(); ++page) {
        each("load of O", 16, [&](const Lanes&, int lane) {
          const layout::Coord first = output_first_chunk<kConfig>(half, lane);
          return static_cast<uint32_t>(kTile.offset_bytes(
              group * kConfig.rows_per_warp() + first.row + i * output_row_step<kConfig>(),
              page * kTile.chunks_per_page() + first.column));
        });
      }
    }
  }
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
#define TILEFOLD_SM80_ROW(name, ...)                                     \
  Row{#name, ForwardConfig{__VA_ARGS__},                                 \
      [](const std::function<void(const char*, const Access&)>& visit) { \
        visit_accesses<ForwardConfig{__VA_ARGS__}>(visit);               \
      }},
#define TILEFOLD_SM90_ROW(name, ...)
#include "cuda/kernels.def"
#undef TILEFOLD_SM80_ROW
#undef TILEFOLD_SM90_ROW
  };
  return all;
}

TEST(RowTest, NamesAreUniqueAndSayWhatTheRowIs) {
  std::set<std::string> names;
  for (const Row& row : rows()) {
    const ForwardConfig& c = row.config;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    const std::string expected = std::string("sm80_") +
                                 (c.dtype == DType::kFloat16 ? "fp16" : "bf16") + "_d" +
                                 std::to_string(c.head_dim) + "_m" + std::to_string(c.block_m) +
                                 "n" + std::to_string(c.block_n) + "_s" + std::to_string(c.stages) +
                                 (c.pair ? "_pair" : "") + (c.load == LoadPath::kTma ? "_tma" : "");
    EXPECT_EQ(row.name, expected);
    EXPECT_TRUE(c.valid()) << row.name;
  }
  EXPECT_FALSE(rows().empty());
}

// Every head dim has a row for the smallest class of shared memory, in both dtypes.
TEST(RowTest, EveryHeadDimRunsOnEveryGpu) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (int head_dim = 32; head_dim <= 256; head_dim += 32) {
      bool found = false;
      for (const Row& row : rows()) {
        found = found || (row.config.dtype == dtype && row.config.head_dim == head_dim &&
                          row.config.shared_kib == 99 && row.config.load == LoadPath::kCpAsync);
      }
      EXPECT_TRUE(found) << head_dim;
    }
  }
}

TEST(RowTest, SharedMemoryFitsItsClassAndTilesAreAligned) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const SharedPlan plan = row.config.shared_plan();
    EXPECT_LE(plan.bytes, row.config.shared_kib * 1024);
    // A page of 64 columns begins at a multiple of 1024 bytes, one of 32 columns of 512.
    const auto aligned = [](int offset, const layout::Tile& tile) {
      return offset % (8 * tile.row_bytes()) == 0 &&
             tile.page_bytes() % (8 * tile.row_bytes()) == 0;
    };
    EXPECT_TRUE(aligned(plan.q, row.config.q_tile()));
    EXPECT_TRUE(aligned(plan.k, row.config.kv_tile()));
    EXPECT_TRUE(aligned(plan.v, row.config.kv_tile()));
    EXPECT_TRUE(!row.config.pair || aligned(plan.p, row.config.p_tile()));
    EXPECT_EQ(plan.barriers % 8, 0);
    EXPECT_TRUE(plan.q < plan.k && plan.k < plan.v && plan.v < plan.p + 1 &&
                plan.p <= plan.exchange && plan.exchange <= plan.barriers &&
                plan.barriers <= plan.bytes);
  }
}

TEST(RowTest, EveryAccessOfAWarpTakesOnePassOfTheBanks) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    int conflicts = 0;
    int misaligned = 0;
    int outside = 0;
    row.visit([&](const char*, const Access& access) {
      conflicts += bank_passes(access.addresses, access.bytes) != 1;
      for (const uint32_t address : access.addresses) {
        misaligned += address % static_cast<uint32_t>(access.bytes) != 0;
        outside += address >= static_cast<uint32_t>(row.config.smem_bytes());
      }
    });
    EXPECT_EQ(conflicts, 0);
    EXPECT_EQ(misaligned, 0);
    EXPECT_EQ(outside, 0);
  }
}

// The warps of a CTA together read every chunk of their operands, store every element of P and O
// once, and load every chunk of O once.
TEST(RowTest, WarpsCoverTheirTiles) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    std::set<std::pair<std::string, uint32_t>> touched;
    size_t stores = 0;
    row.visit([&](const char* what, const Access& access) {
      for (const uint32_t address : access.addresses) {
        stores += std::string(what) == "store of O" || std::string(what) == "load of O";
        touched.insert({what, address});
      }
    });
    const auto count = [&](const char* what) {
      size_t n = 0;
      for (const auto& [name, address] : touched) n += name == what;
      return n;
    };
    const ForwardConfig& c = row.config;
    const auto chunks = [](const layout::Tile& tile) {
      return static_cast<size_t>(tile.bytes() / layout::kChunkBytes);
    };
    EXPECT_EQ(count("Q"), chunks(c.q_tile()));
    EXPECT_EQ(count("K"), chunks(c.kv_tile()));
    EXPECT_EQ(count("V"), chunks(c.kv_tile()));
    const size_t p = c.pair ? c.num_warps / 2 * chunks(c.p_tile()) : 0;
    EXPECT_EQ(count("P"), p);
    EXPECT_EQ(count("store of P"), c.load == LoadPath::kTma ? p : 4 * p);
    EXPECT_EQ(count("store of O"), 4 * chunks(c.q_tile()));
    EXPECT_EQ(count("load of O"), chunks(c.q_tile()));
    EXPECT_EQ(stores, 5 * chunks(c.q_tile()));
  }
}

TEST(TileChoiceTest, SmallTilesSuitShortMaskedRows) {
  constexpr int kAll = 1 << 28;  // an edge out of reach
  const auto suit = [](int seqlen_q, int seqlen_k, int left, int right) {
    return small_tiles_suit({seqlen_k, left, right}, seqlen_q);
  };
  // Causal: a row sees half of the keys on average.
  EXPECT_TRUE(suit(512, 512, -kAll, 0));
  EXPECT_TRUE(suit(1024, 1024, -kAll, 0));
  EXPECT_FALSE(suit(2048, 2048, -kAll, 0));
  EXPECT_FALSE(suit(16384, 16384, -kAll, 0));
  // No mask.
  EXPECT_FALSE(suit(512, 512, -kAll, kAll));
  EXPECT_FALSE(suit(64, 64, -kAll, kAll));
  // Windows.
  EXPECT_TRUE(suit(16384, 16384, -256, 256));
  EXPECT_FALSE(suit(16384, 16384, -4096, 4096));
  // The last rows of a long sequence.
  EXPECT_FALSE(suit(128, 8192, -kAll, 8192 - 128));
  // Rows that see nothing, and none at all.
  EXPECT_FALSE(suit(512, 512, 600, 700));
  EXPECT_FALSE(suit(0, 0, 0, 0));
}

}  // namespace
}  // namespace tilefold::sm80
