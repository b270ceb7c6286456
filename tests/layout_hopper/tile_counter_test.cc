// The counter of the dynamic schedule, its CTAs played by threads: every tile is handed out once,
// whatever the workspace held, launch after launch.
#include "cuda/sm90/tile_counter.cuh"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

namespace tilefold::sm90 {
namespace {

constexpr uint64_t kTicket = 0x5469636b6574ed32;

// What the producers of `num_ctas` CTAs do. How often each tile was worked on; `late` CTAs start
// when the others have ended, as they may where the GPU is shared.
std::vector<int> hand_out(TileCounter* counter, uint64_t ticket, int num_ctas, int num_tiles,
                          int late = 0) {
  std::vector<std::atomic<int>> times(static_cast<size_t>(num_tiles));
  std::barrier together(num_ctas - late);
  const auto cta = [&](int index, bool waits) {
    if (waits) together.arrive_and_wait();
    for (int use = 0; index < num_tiles; ++use) {
      ++times[static_cast<size_t>(index)];
      if (use == 0) open_tile_counter(counter, ticket);
      index = count_tile(counter, num_ctas, num_tiles);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < num_ctas - late; ++i) threads.emplace_back(cta, i, true);
  for (std::thread& thread : threads) thread.join();
  for (int i = num_ctas - late; i < num_ctas; ++i) cta(i, false);
  return {times.begin(), times.end()};
}

void expect_once_each(const std::vector<int>& times) {
  for (size_t tile = 0; tile < times.size(); ++tile) EXPECT_EQ(times[tile], 1) << "tile " << tile;
}

TEST(TileCounterTest, EveryTileOnceWhateverTheWorkspaceHeld) {
  for (const uint64_t state :
       {uint64_t{0}, ~uint64_t{0}, uint64_t{0xdeadbeef}, kTicket - 2, kTicket + 2, kTicket + 3}) {
    for (const uint32_t count : {0u, 1u, 5u, ~0u}) {
      TileCounter counter{state, count};
      expect_once_each(hand_out(&counter, kTicket, 8, 21));
      EXPECT_EQ(counter.state, kTileCounterClosed);
    }
  }
}

TEST(TileCounterTest, ALaunchReplayedFindsTheCounterClosed) {
  TileCounter counter{0x0123456789abcdef, 77};
  for (int replay = 0; replay < 100; ++replay) {
    expect_once_each(hand_out(&counter, kTicket, 6, 6 + replay % 7));
  }
}

TEST(TileCounterTest, LaunchesTakeTurns) {
  TileCounter counter{0, 0};
  for (uint64_t launch = 0; launch < 100; ++launch) {
    expect_once_each(hand_out(&counter, kTicket + 2 * launch, 6, 13));
  }
}

TEST(TileCounterTest, ALaunchThatNeverEndedDoesNotMatter) {
  TileCounter counter{kTicket - 2, 3};  // claimed, and left so
  expect_once_each(hand_out(&counter, kTicket, 6, 13));
  counter = {kTicket - 1, 3};  // open, and left so
  expect_once_each(hand_out(&counter, kTicket, 6, 13));
}

TEST(TileCounterTest, CtasMayStartLate) {
  for (int late = 1; late < 6; ++late) {
    TileCounter counter{};
    expect_once_each(hand_out(&counter, kTicket, 6, 17, late));
    EXPECT_EQ(counter.state, kTileCounterClosed);
  }
}

}  // namespace
}  // namespace tilefold::sm90
