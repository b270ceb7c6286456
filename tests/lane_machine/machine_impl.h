// The lane machine's inside: lanes, warps, the scheduler, vector clocks and the shadow of shared
// memory.
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lane_machine/machine.h"

namespace tilefold::lane_machine {

constexpr int kNumBarriers = 16;
constexpr uint32_t kCellBytes = 2;  // granularity of the shadow: the narrowest access
constexpr uint32_t kReadInFlight = 0xffffffffu;

// A vector clock: entry l is the newest time of lane l whose accesses are known to lie in the past.
// One entry more than there are lanes: the last is the copy engine's. Time is counted per warp: it
// moves on whenever a lane of the warp releases something.
using Clock = std::vector<uint32_t>;
void join(Clock& into, const Clock& from);

using SiteId = uint16_t;

struct CpAsync {
  uint32_t shared = 0;
  const void* global = nullptr;
  int bytes = 0;
  int source_bytes = 0;
  SiteId site = 0;
};

// A TMA store that shared memory has not yet been read for.
struct PendingStore {
  const void* map = nullptr;
  uint32_t source = 0;
  BoxPlace at = {};
  SiteId site = 0;
};

// Up to 16 bytes on their way to global memory, out of shared memory already.
struct PendingWrite {
  std::byte* global = nullptr;
  std::array<std::byte, 16> bytes = {};
  int count = 0;
};

// Accumulators of a warp while wgmmas on them are in flight: the values move here, poison takes
// their place in the lanes' registers.
struct Accumulator {
  std::array<float*, kWarpSize> registers = {};
  std::vector<std::array<float, kWarpSize>> values;
  int users = 0;  // products in flight
};

// One warp's share of a wgmma that has been issued and not yet waited for.
struct PendingProduct {
  std::shared_ptr<Accumulator> accumulator;
  int n = 0;
  bool bfloat = false;
  bool a_in_registers = false;
  std::array<std::array<uint32_t, 4>, kWarpSize> a_registers = {};
  uint64_t a_descriptor = 0;
  uint64_t b_descriptor = 0;
  bool b_transposed = false;
  bool accumulate = false;
  SiteId site = 0;
};

struct Lane {
  int index = 0;  // in the CTA; also its entry of every clock
  int in_warp = 0;
  int warp = 0;
  Dim3 thread_idx;
  boost::context::fiber fiber;
  bool done = false;
  // What it waits for, while it is parked.
  Op wait_op = Op::kCount;
  SiteId wait_site = 0;
  std::string wait_detail;
  bool result = false;  // of the barrier that woke it
  Clock clock;
  std::vector<uint32_t> proxy_fences;  // times of its fence.proxy.async, ascending
  std::vector<CpAsync> open_copies;    // issued since the last commit
  std::deque<std::vector<CpAsync>> copy_groups;
  std::vector<PendingStore> open_stores;  // TMA stores since the last commit
  std::deque<std::vector<PendingStore>> store_groups;
  std::vector<PendingWrite> store_writes;  // of TMA stores that have read, as far as anybody knows
};

// Accesses of one source line by the lanes of a warp, gathered into what the hardware sees as one
// request. A lane joins the first group of its line that it is not yet part of.
struct AccessGroup {
  SiteId site = 0;
  Op op = Op::kCount;
  bool global = false;
  int bytes = 0;
  uint32_t mask = 0;
  uint64_t address[kWarpSize] = {};
};

struct Warp {
  int index = 0;
  uint32_t ready = 0;  // lanes that can run
  uint32_t now = 1;    // its time
  struct Meeting {     // lanes that have come to one warp-wide instruction
    Op op;
    SiteId site;
    uint32_t arrived = 0;
    void* args[kWarpSize] = {};
  };
  std::vector<Meeting> meetings;
  std::vector<AccessGroup> accesses;
  std::map<SiteId, uint64_t> occurrences;  // for FragmentEvent
  bool wgmma_fenced = false;
  uint64_t num_wgmma = 0;
  std::vector<PendingProduct> open_products;
  std::deque<std::vector<PendingProduct>> product_groups;
};

enum class CellState : uint8_t { kUnwritten, kWritten, kInFlight, kMbarrier };

// What is known of a cell of shared memory: the last write, and the last read by each warp
// since.
struct Cell {
  uint32_t time = 0;
  uint16_t lane = 0;
  SiteId site = 0;
  CellState state = CellState::kUnwritten;
  bool async_proxy = false;  // written by the copy engine
  uint16_t readers = 0;      // bit per warp
};
struct Reader {
  uint32_t time = 0;
  SiteId site = 0;
  uint8_t in_warp = 0;
  bool whole_warp = false;  // a warp-wide read: lies in the past of any lane's later release
};

struct Barrier {
  int expected = 0;
  int arrived = 0;
  bool any = false;
  Clock clock;
  std::vector<Lane*> waiting;
  std::map<int, SiteId> warp_site;  // from where each warp came in this phase
};

struct Mbarrier {
  uint32_t count = 0;
  uint32_t pending = 0;  // arrivals that the phase still lacks
  int64_t pending_bytes = 0;
  uint64_t phase = 0;
  Clock gathering;  // released into the current phase
  Clock completed;  // released into the phases before
  int init_lane = 0;
  uint32_t init_time = 0;
  SiteId init_site = 0;
  std::vector<Lane*> waiting;
};

class Machine {
 public:
  Machine(const Launch& launch, GlobalMemory& memory, const std::function<void()>& kernel);
  void run();
  void close_report();

  // --- scheduling
  Lane& lane() { return *current_; }
  Warp& warp() { return warps_[current_->warp]; }
  Warp& warp_of(const Lane& lane) { return warps_[lane.warp]; }
  int num_lanes() const { return static_cast<int>(lanes_.size()); }
  Lane& lane_at(int index) { return lanes_[index]; }
  Lane& lane_of(const Warp& warp, int in_warp) { return lanes_[warp.index * kWarpSize + in_warp]; }
  // Parks the current lane until somebody wakes it.
  void park(Op op, SiteId site, std::string detail);
  void wake(Lane& lane) { warps_[lane.warp].ready |= 1u << lane.in_warp; }
  // Comes to a warp-wide instruction; the last lane to come executes it for all.
  void meet(Op op, const Site& site, void* args,
            void (*execute)(Machine&, Warp&, void* const*, SiteId));
  [[noreturn]] void stop();  // gives the CTA up

  // --- what happened
  SiteId intern(const Site& site);
  const Site& site(SiteId id) const { return sites_[id]; }
  void hazard(HazardKind kind, const Lane& lane, SiteId site, const std::string& what,
              SiteId other = 0);
  std::string where(SiteId id) const;
  std::string lane_name(int index) const;
  void count(Op op, uint64_t n = 1) { report.instructions[static_cast<int>(op)] += n; }
  void record_access(Lane& lane, Op op, SiteId site, bool global, int bytes, uint64_t address);
  void count_wavefronts(SiteId site, Op op, const uint32_t* address, int num, int bytes);
  void flush_accesses(Warp& warp);

  // --- order
  void release(Lane& lane, Clock& into);
  void acquire(Lane& lane, const Clock& from);
  bool ordered(const Lane& observer, int writer, uint32_t time) const {
    return writer == observer.index || observer.clock[writer] >= time;
  }
  size_t clock_size() const { return lanes_.size() + 1; }
  int engine() const { return num_lanes(); }

  // --- shared memory
  std::byte* shared(uint32_t address) { return shared_ + (address - kSharedBase); }
  bool check_shared(const Lane& lane, SiteId site, uint32_t address, int bytes, int alignment,
                    const char* what);
  // The checks and bookkeeping of a read or write of [address, address + bytes), which is in
  // bounds. `writer` is an entry of the clocks: a lane's, or the engine's.
  void note_read(uint32_t address, int bytes, Lane& lane, bool whole_warp, SiteId site,
                 bool async_proxy = false, bool in_flight = false);
  void note_write(uint32_t address, int bytes, Lane& lane, SiteId site, CellState state,
                  bool async_proxy = false);
  void note_landing(uint32_t address, int bytes, int writer, uint32_t time);
  void end_reads(uint32_t address, int bytes, Lane& lane);
  // Whether the lane that wrote at `time` has made it visible to the async proxy, to observer's
  // knowledge.
  bool proxy_fenced(const Lane& observer, int writer, uint32_t time) const;
  Cell& cell(uint32_t address) { return cells_[(address - kSharedBase) / kCellBytes]; }
  void land(Lane& lane, const CpAsync& copy);

  // --- global memory
  bool check_global(const Lane& lane, SiteId site, const void* address, int bytes, int alignment,
                    bool write);

  // --- Hopper (hopper.cc)
  Mbarrier* find_mbarrier(const Lane& lane, uint32_t address, SiteId site, bool async_proxy);
  void maybe_complete(Mbarrier& barrier);
  void land_load(int issuer, uint32_t destination, const void* map, uint32_t barrier,
                 const BoxPlace& at, SiteId site);
  void read_store(Lane& lane, const PendingStore& store);
  void write_stores(Lane& lane);
  void land_product(Warp& warp, PendingProduct& product);
  void check_hopper_leftovers();

  Launch launch;
  GlobalMemory& memory;
  RunReport report;
  std::array<Barrier, kNumBarriers> barriers;
  std::map<uint32_t, Mbarrier> mbarriers;
  std::vector<std::function<void()>> engine_queue;  // TMA loads that have not landed
  uint32_t engine_now = 1;
  std::map<int, std::vector<uint64_t>> wgmma_log;  // per warpgroup: B descriptors in order
  std::map<float*, std::weak_ptr<Accumulator>> accumulators;  // in flight
  std::map<int, int> registers_of_warp;                       // as setmaxnreg left them

 private:
  void start_cta();
  void finish_cta();
  Lane* pick();
  uint64_t random();
  void report_deadlock();

  const std::function<void()>& kernel_;
  std::vector<Lane> lanes_;
  std::vector<Warp> warps_;
  std::vector<int> warp_order_;  // of priority, for seeds that want one
  size_t last_warp_ = 0;
  Lane* current_ = nullptr;
  boost::context::fiber scheduler_;
  uint64_t random_state_ = 0;
  int num_alive_ = 0;
  bool stopped_ = false;
  std::vector<std::byte> arena_;
  std::byte* shared_ = nullptr;  // 1024-byte aligned, in arena_
  std::vector<Cell> cells_;
  std::vector<Reader> readers_;  // [cell][warp]
  std::vector<Site> sites_;
  std::map<std::tuple<const char*, uint32_t, uint32_t>, SiteId> site_ids_;
  std::vector<SiteCounters> site_counters_;
  std::set<std::tuple<HazardKind, SiteId, SiteId>> seen_;
};

// The machine whose kernel runs now.
extern Machine* g_machine;

}  // namespace tilefold::lane_machine
