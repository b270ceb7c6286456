// The scheduler, warp-wide meetings, barriers, vector clocks and reports of the lane machine.
#include "lane_machine/machine.h"

#include <algorithm>
#include <bit>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdio>
#include <cstring>

#include "lane_machine/device.h"
#include "machine_impl.h"

tilefold::lane_machine::Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace tilefold::lane_machine {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

// Stacks are kept for the next CTA: mapping them anew would cost more than running it.
struct StackPool {
  using traits_type = boost::context::protected_fixedsize_stack::traits_type;
  boost::context::stack_context allocate() {
    auto& stacks = free_stacks();
    if (stacks.empty()) return boost::context::protected_fixedsize_stack(kStackBytes).allocate();
    const boost::context::stack_context stack = stacks.back();
    stacks.pop_back();
    return stack;
  }
  void deallocate(boost::context::stack_context& stack) { free_stacks().push_back(stack); }
  static std::vector<boost::context::stack_context>& free_stacks() {
    static std::vector<boost::context::stack_context> stacks;
    return stacks;
  }
};

std::string lane_list(uint32_t mask) {
  std::string text;
  for (int first = 0; first < kWarpSize; ++first) {
    if (!(mask >> first & 1u)) continue;
    int last = first;
    while (last + 1 < kWarpSize && (mask >> (last + 1) & 1u)) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
    first = last;
  }
  return text;
}

}  // namespace

Machine* g_machine = nullptr;

const char* op_name(Op op) {
  static constexpr const char* kNames[] = {
      "mma",           "ldmatrix",  "stmatrix",        "shfl",      "vote",     "syncwarp",
      "ld.shared",     "st.shared", "ld.global",       "st.global", "cp.async", "cp.async commit",
      "cp.async wait", "bar",       "mbarrier",        "tma",       "wgmma",    "fence",
      "setmaxnreg",    "cvt",       "special function"};
  static_assert(std::size(kNames) == static_cast<size_t>(Op::kCount));
  return kNames[static_cast<int>(op)];
}

const char* hazard_name(HazardKind kind) {
  static constexpr const char* kNames[] = {
      "unwritten shared memory", "copy in flight",      "race",
      "out of bounds",           "misaligned",          "deadlock",
      "uninitialised register",  "left over",           "barrier misuse",
      "missing proxy fence",     "registers in flight", "bad operand",
      "wrong global write"};
  static_assert(std::size(kNames) == static_cast<size_t>(HazardKind::kCount));
  return kNames[static_cast<int>(kind)];
}

bool RunReport::has(HazardKind kind) const {
  return std::any_of(hazards.begin(), hazards.end(),
                     [&](const Hazard& hazard) { return hazard.kind == kind; });
}

std::string RunReport::summary() const {
  std::string text;
  for (const Hazard& hazard : hazards) text += hazard.text + "\n";
  return text;
}

std::string RunReport::counters() const {
  std::string text = "instructions, per warp:\n";
  char line[400];
  for (int op = 0; op < static_cast<int>(Op::kCount); ++op) {
    if (instructions[op] == 0) continue;
    std::snprintf(line, sizeof line, "  %-18s %12llu\n", op_name(static_cast<Op>(op)),
                  static_cast<unsigned long long>(instructions[op]));
    text += line;
  }
  text += "memory, by line: requests, wavefronts (ideal), sectors (ideal)\n";
  for (const SiteCounters& site : sites) {
    std::snprintf(line, sizeof line, "  %-10s %9llu %9llu (%llu) %9llu (%llu)  %s\n",
                  op_name(site.op), static_cast<unsigned long long>(site.requests),
                  static_cast<unsigned long long>(site.wavefronts),
                  static_cast<unsigned long long>(site.ideal_wavefronts),
                  static_cast<unsigned long long>(site.sectors),
                  static_cast<unsigned long long>(site.ideal_sectors), site.where.c_str());
    text += line;
  }
  return text;
}

void join(Clock& into, const Clock& from) {
  uint32_t* a = into.data();
  const uint32_t* b = from.data();
  for (size_t i = 0; i < into.size(); ++i) a[i] = std::max(a[i], b[i]);
}

Machine::Machine(const Launch& launch_in, GlobalMemory& memory_in,
                 const std::function<void()>& kernel)
    : launch(launch_in), memory(memory_in), kernel_(kernel) {
  sites_.push_back(Site());
  random_state_ = launch.seed * 0x9e3779b97f4a7c15u + 1;
}

// xorshift64*.
uint64_t Machine::random() {
  random_state_ ^= random_state_ >> 12;
  random_state_ ^= random_state_ << 25;
  random_state_ ^= random_state_ >> 27;
  return random_state_ * 0x2545f4914f6cdd1du;
}

void Machine::run() {
  gridDim = launch.grid;
  blockDim = launch.block;
  int64_t cta = 0;
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x, ++cta) {
        if (launch.only_cta >= 0 && cta != launch.only_cta) continue;
        blockIdx = {x, y, z};
        start_cta();
        while (num_alive_ > 0 && !stopped_) {
          current_ = pick();
          if (current_ == nullptr) {
            report_deadlock();
            break;
          }
          warps_[current_->warp].ready &= ~(1u << current_->in_warp);
          threadIdx = current_->thread_idx;
          current_->fiber = std::move(current_->fiber).resume();
        }
        finish_cta();
        if (report.hazards.size() >= launch.max_hazards) return;
      }
    }
  }
}

void Machine::start_cta() {
  const int num_threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  stopped_ = false;
  lanes_.clear();
  lanes_.reserve(static_cast<size_t>(num_threads));
  warps_.assign((num_threads + kWarpSize - 1) / kWarpSize, Warp());
  barriers.fill(Barrier());
  mbarriers.clear();
  engine_queue.clear();
  engine_now = 1;
  wgmma_log.clear();
  accumulators.clear();
  registers_of_warp.clear();
  const uint32_t num_cells = (launch.shared_bytes + kCellBytes - 1) / kCellBytes;
  cells_.assign(num_cells, Cell());
  readers_.resize(num_cells * warps_.size());
  // Poison: NaN in every format.
  arena_.assign(launch.shared_bytes + 2 * size_t{1024}, std::byte{0xff});
  const uintptr_t address = reinterpret_cast<uintptr_t>(arena_.data());
  shared_ = arena_.data() + ((address + 1023) / 1024 * 1024 - address);

  for (int i = 0; i < num_threads; ++i) {
    Lane& lane = lanes_.emplace_back();
    lane.index = i;
    lane.warp = i / kWarpSize;
    lane.in_warp = i % kWarpSize;
    const unsigned x = launch.block.x, y = launch.block.y, t = static_cast<unsigned>(i);
    lane.thread_idx = {t % x, t / x % y, t / (x * y)};
    wake(lane);
  }
  num_alive_ = num_threads;
  warp_order_.clear();
  for (size_t w = 0; w < warps_.size(); ++w) {
    warps_[w].index = static_cast<int>(w);
    warp_order_.insert(warp_order_.begin() + static_cast<int64_t>(random() % (w + 1)),
                       static_cast<int>(w));
  }
  for (Lane& lane : lanes_) {
    lane.clock.assign(clock_size(), 0);
    lane.fiber = boost::context::fiber(std::allocator_arg, StackPool(),
                                       [this, &lane](boost::context::fiber&& scheduler) {
                                         scheduler_ = std::move(scheduler);
                                         kernel_();
                                         lane.done = true;
                                         --num_alive_;
                                         return std::move(scheduler_);
                                       });
  }
}

void Machine::finish_cta() {
  for (Warp& warp : warps_) flush_accesses(warp);
  for (Lane& lane : lanes_) {
    if (!lane.done) continue;
    const CpAsync* copy = nullptr;
    for (const auto& group : lane.copy_groups) {
      if (!group.empty()) copy = &group.front();
    }
    if (!lane.open_copies.empty()) copy = &lane.open_copies.front();
    if (copy != nullptr) {
      hazard(HazardKind::kLeftover, lane, copy->site,
             "the lane has ended with this cp.async never waited for");
    }
  }
  if (num_alive_ == 0) check_hopper_leftovers();
  for (Lane& lane : lanes_) lane.fiber = boost::context::fiber();  // unwinds what has not ended
}

// Which lane runs next. Orders by seed: 0 = warp by warp, in order; then, in turn: any lane of any
// warp; warps by a random priority, so that one runs far ahead; one random warp until it blocks.
Lane* Machine::pick() {
  const int mode = launch.seed == 0 ? 0 : 1 + static_cast<int>(launch.seed % 3);
  while (true) {
    if (mode != 0 && !engine_queue.empty() && random() % 64 == 0) {
      const size_t chosen = random() % engine_queue.size();
      auto landing = std::move(engine_queue[chosen]);
      engine_queue.erase(engine_queue.begin() + static_cast<int64_t>(chosen));
      landing();
    }
    const size_t num_warps = warps_.size();
    const size_t start = mode == 1 ? random() % num_warps : last_warp_;
    Warp* chosen = nullptr;
    for (size_t i = 0; i < num_warps && chosen == nullptr; ++i) {
      const size_t w = mode == 2 ? static_cast<size_t>(warp_order_[i]) : (start + i) % num_warps;
      if (warps_[w].ready != 0) chosen = &warps_[w];
    }
    if (mode == 3 && chosen != nullptr && chosen->index != static_cast<int>(last_warp_)) {
      const size_t other = random() % num_warps;
      if (warps_[other].ready != 0) chosen = &warps_[other];
    }
    if (chosen != nullptr) {
      last_warp_ = static_cast<size_t>(chosen->index);
      uint32_t ready = chosen->ready;
      if (mode == 2) return &lane_of(*chosen, 31 - std::countl_zero(ready));
      if (mode != 0) {
        for (uint64_t skip = random() % static_cast<uint64_t>(std::popcount(ready)); skip > 0;
             --skip)
          ready &= ready - 1;
      }
      return &lane_of(*chosen, std::countr_zero(ready));
    }
    if (engine_queue.empty()) return nullptr;
    auto landing = std::move(engine_queue.front());
    engine_queue.erase(engine_queue.begin());
    landing();
  }
}

void Machine::park(Op op, SiteId site, std::string detail) {
  Lane& self = *current_;
  self.wait_op = op;
  self.wait_site = site;
  self.wait_detail = std::move(detail);
  scheduler_ = std::move(scheduler_).resume();
  self.wait_op = Op::kCount;
}

void Machine::stop() {
  stopped_ = true;
  while (true) scheduler_ = std::move(scheduler_).resume();
}

void Machine::meet(Op op, const Site& where, void* args,
                   void (*execute)(Machine&, Warp&, void* const*, SiteId)) {
  Lane& self = lane();
  Warp& team = warp();
  const SiteId id = intern(where);
  auto meeting = std::find_if(team.meetings.begin(), team.meetings.end(),
                              [&](const Warp::Meeting& m) { return m.op == op && m.site == id; });
  if (meeting == team.meetings.end()) {
    meeting = team.meetings.insert(team.meetings.end(), Warp::Meeting{op, id, 0, {}});
  }
  meeting->arrived |= 1u << self.in_warp;
  meeting->args[self.in_warp] = args;
  if (meeting->arrived != kWholeWarp) {
    park(op, id, "");
    return;
  }
  void* all[kWarpSize];
  std::memcpy(all, meeting->args, sizeof all);
  team.meetings.erase(meeting);
  flush_accesses(team);
  count(op);
  execute(*this, team, all, id);
  team.ready |= kWholeWarp & ~(1u << self.in_warp);
}

void Machine::report_deadlock() {
  std::map<std::tuple<int, Op, SiteId, std::string>, uint32_t> waiting;
  std::map<int, uint32_t> gone;
  const Lane* first = nullptr;
  for (const Lane& lane : lanes_) {
    if (lane.done) {
      gone[lane.warp] |= 1u << lane.in_warp;
      continue;
    }
    if (first == nullptr) first = &lane;
    waiting[{lane.warp, lane.wait_op, lane.wait_site, lane.wait_detail}] |= 1u << lane.in_warp;
  }
  std::string text = "no lane can go on:";
  for (const auto& [key, mask] : waiting) {
    const auto& [warp, op, id, detail] = key;
    text += "\n    warp " + std::to_string(warp) + " lanes " + lane_list(mask) + " wait in " +
            op_name(op) + (detail.empty() ? "" : " (" + detail + ")") + " at " + where(id);
  }
  for (const auto& [warp, mask] : gone) {
    text += "\n    warp " + std::to_string(warp) + " lanes " + lane_list(mask) + " have ended";
  }
  if (first != nullptr) hazard(HazardKind::kDeadlock, *first, first->wait_site, text);
}

SiteId Machine::intern(const Site& site) {
  const auto key = std::make_tuple(site.function_name(), site.line(), site.column());
  auto [it, added] = site_ids_.try_emplace(key, static_cast<SiteId>(sites_.size()));
  if (added) sites_.push_back(site);
  return it->second;
}

std::string Machine::where(SiteId id) const {
  const Site& site = sites_[id];
  std::string file = site.file_name();
  const size_t slash = file.rfind('/');
  if (slash != std::string::npos) file = file.substr(slash + 1);
  // The plain name of the function: no template arguments, no parameters.
  std::string function = site.function_name();
  function = function.substr(0, function.find_first_of("(<["));
  const size_t space = function.find_last_of(" :");
  if (space != std::string::npos) function = function.substr(space + 1);
  return file + ":" + std::to_string(site.line()) + " (" + function + ")";
}

std::string Machine::lane_name(int index) const {
  if (index >= static_cast<int>(lanes_.size())) return "the copy engine";
  return "thread " + std::to_string(index) + " (warp " + std::to_string(index / kWarpSize) +
         ", lane " + std::to_string(index % kWarpSize) + ")";
}

void Machine::hazard(HazardKind kind, const Lane& lane, SiteId site, const std::string& what,
                     SiteId other) {
  if (report.hazards.size() >= launch.max_hazards) {
    stopped_ = true;
    return;
  }
  if (!seen_.insert({kind, site, other}).second) return;
  report.hazards.push_back({kind, std::string("[") + hazard_name(kind) + "] kernel " +
                                      launch.kernel + ", CTA (" + std::to_string(blockIdx.x) + "," +
                                      std::to_string(blockIdx.y) + "," +
                                      std::to_string(blockIdx.z) + "), " + lane_name(lane.index) +
                                      ", " + where(site) + ": " + what});
}

void Machine::release(Lane& lane, Clock& into) {
  into.resize(clock_size(), 0);
  lane.clock[lane.index] = warp_of(lane).now++;
  join(into, lane.clock);
}

void Machine::acquire(Lane& lane, const Clock& from) {
  if (!from.empty()) join(lane.clock, from);
}

void Machine::close_report() {
  for (size_t id = 0; id < site_counters_.size(); ++id) {
    if (site_counters_[id].op == Op::kCount) continue;
    site_counters_[id].where = where(static_cast<SiteId>(id));
    report.sites.push_back(site_counters_[id]);
  }
}

RunReport run(const Launch& launch, GlobalMemory& memory, const std::function<void()>& kernel) {
  memory.forget_writers();
  Machine machine(launch, memory, kernel);
  Machine* const previous = g_machine;
  g_machine = &machine;
  machine.run();
  g_machine = previous;
  machine.close_report();
  return machine.report;
}

namespace device {

int lane_in_warp() { return g_machine->lane().in_warp; }

void count_op(Op op) {
  // Arithmetic is counted once per warp: by its first lane.
  if (g_machine->lane().in_warp == 0) g_machine->count(op);
}

void sync_warp(const Site& site) {
  g_machine->meet(Op::kSyncWarp, site, nullptr,
                  [](Machine& machine, Warp& warp, void* const*, SiteId) {
                    Clock clock;
                    for (int i = 0; i < kWarpSize; ++i)
                      machine.release(machine.lane_of(warp, i), clock);
                    for (int i = 0; i < kWarpSize; ++i)
                      machine.acquire(machine.lane_of(warp, i), clock);
                  });
}

uint32_t shuffle(uint32_t value, int source_lane, const Site& site) {
  struct Args {
    uint32_t value;
    int source_lane;
    uint32_t result;
  } args{value, source_lane & (kWarpSize - 1), 0};
  g_machine->meet(Op::kShuffle, site, &args, [](Machine&, Warp&, void* const* all, SiteId) {
    for (int i = 0; i < kWarpSize; ++i) {
      Args& mine = *static_cast<Args*>(all[i]);
      mine.result = static_cast<Args*>(all[mine.source_lane])->value;
    }
  });
  return args.result;
}

uint32_t ballot(bool predicate, const Site& site) {
  struct Args {
    bool predicate;
    uint32_t result;
  } args{predicate, 0};
  g_machine->meet(Op::kVote, site, &args, [](Machine&, Warp&, void* const* all, SiteId) {
    uint32_t mask = 0;
    for (int i = 0; i < kWarpSize; ++i)
      mask |= static_cast<uint32_t>(static_cast<Args*>(all[i])->predicate) << i;
    for (int i = 0; i < kWarpSize; ++i) static_cast<Args*>(all[i])->result = mask;
  });
  return args.result;
}

namespace {

// Enters the lane into a barrier's phase; true if that completes it.
bool enter_barrier(int id, int num_threads, bool predicate, bool waits, SiteId site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  if (id < 0 || id >= kNumBarriers) {
    machine.hazard(HazardKind::kBarrierMisuse, lane, site,
                   "barrier " + std::to_string(id) + " does not exist");
    machine.stop();
  }
  if (num_threads == 0) num_threads = machine.num_lanes();
  Barrier& barrier = machine.barriers[id];
  if (num_threads % kWarpSize != 0 || num_threads > machine.num_lanes()) {
    machine.hazard(HazardKind::kBarrierMisuse, lane, site,
                   "barrier " + std::to_string(id) + " for " + std::to_string(num_threads) +
                       " threads: not whole warps of this CTA");
  }
  if (barrier.arrived == 0) {
    barrier.expected = num_threads;
  } else if (barrier.expected != num_threads) {
    machine.hazard(HazardKind::kBarrierMisuse, lane, site,
                   "barrier " + std::to_string(id) + " for " + std::to_string(num_threads) +
                       " threads, where others came to it for " + std::to_string(barrier.expected));
  }
  const SiteId warp_site = barrier.warp_site.try_emplace(lane.warp, site).first->second;
  if (warp_site != site) {
    machine.hazard(HazardKind::kBarrierMisuse, lane, site,
                   "barrier " + std::to_string(id) +
                       " is divergent: other lanes of the warp came to it from " +
                       machine.where(warp_site),
                   warp_site);
  }
  if (lane.in_warp == 0) machine.count(Op::kBarrier);
  machine.release(lane, barrier.clock);
  barrier.any |= predicate;
  if (++barrier.arrived < barrier.expected) return false;
  for (const auto& [warp, unused] : barrier.warp_site)
    machine.flush_accesses(machine.warp_of(machine.lane_at(warp * kWarpSize)));
  for (Lane* other : barrier.waiting) {
    machine.acquire(*other, barrier.clock);
    other->result = barrier.any;
    machine.wake(*other);
  }
  lane.result = barrier.any;
  if (waits) machine.acquire(lane, barrier.clock);
  barrier = Barrier();
  return true;
}

}  // namespace

bool barrier(int id, int num_threads, bool predicate, const Site& site) {
  Machine& machine = *g_machine;
  const SiteId where = machine.intern(site);
  if (enter_barrier(id, num_threads, predicate, true, where)) return machine.lane().result;
  Barrier& barrier = machine.barriers[id];
  barrier.waiting.push_back(&machine.lane());
  machine.park(
      Op::kBarrier, where,
      "barrier " + std::to_string(id) + " of " + std::to_string(barrier.expected) + " threads");
  return machine.lane().result;
}

void barrier_arrive(int id, int num_threads, const Site& site) {
  enter_barrier(id, num_threads, false, false, g_machine->intern(site));
}

}  // namespace device
}  // namespace tilefold::lane_machine
