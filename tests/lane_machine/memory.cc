// Shared and global memory of the lane machine: bounds, the shadow that finds races and unwritten
// reads, asynchronous copies, bank conflicts and sectors.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "lane_machine/device.h"
#include "machine_impl.h"

namespace tilefold::lane_machine {
namespace {

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string shared_name(uint32_t address) {
  return "shared " + hex(address) + " (byte " +
         std::to_string(static_cast<int64_t>(address) - kSharedBase) + ")";
}

}  // namespace

// --- global memory

void GlobalMemory::add(std::string name, const void* base, size_t bytes, bool writable,
                       std::vector<uint8_t> used) {
  Region region;
  region.name = std::move(name);
  region.base = static_cast<std::byte*>(const_cast<void*>(base));
  region.bytes = bytes;
  region.writable = writable;
  region.used = std::move(used);
  regions_.push_back(std::move(region));
}

Region* GlobalMemory::find(uintptr_t address, size_t bytes) {
  for (Region& region : regions_) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(region.base);
    if (address >= base && address - base < region.bytes &&
        bytes <= region.bytes - (address - base))
      return &region;
  }
  return nullptr;
}

void GlobalMemory::forget_writers() {
  for (Region& region : regions_) region.writers.clear();
}

std::string GlobalMemory::describe(uintptr_t address) const {
  const Region* nearest = nullptr;
  int64_t nearest_distance = 0;
  for (const Region& region : regions_) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(region.base);
    int64_t distance = 0;
    if (address < base) distance = static_cast<int64_t>(base - address);
    if (address >= base + region.bytes)
      distance = static_cast<int64_t>(address - base - region.bytes) + 1;
    if (nearest == nullptr || distance < nearest_distance) {
      nearest = &region;
      nearest_distance = distance;
    }
  }
  if (nearest == nullptr) return hex(address);
  const int64_t offset = static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(nearest->base));
  return hex(address) + " (" + nearest->name + " + " + std::to_string(offset) + " of " +
         std::to_string(nearest->bytes) + " bytes)";
}

bool Machine::check_global(const Lane& lane, SiteId site, const void* pointer, int bytes,
                           int alignment, bool write) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (address % static_cast<uintptr_t>(alignment) != 0) {
    hazard(HazardKind::kMisaligned, lane, site,
           "global address " + memory.describe(address) + " is not aligned to " +
               std::to_string(alignment) + " bytes");
    return false;
  }
  Region* region = memory.find(address, static_cast<size_t>(bytes));
  if (region == nullptr) {
    hazard(HazardKind::kBounds, lane, site,
           std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
               " bytes outside of every region: global address " + memory.describe(address));
    return false;
  }
  const size_t offset = address - reinterpret_cast<uintptr_t>(region->base);
  const size_t end = offset + static_cast<size_t>(bytes);
  for (size_t i = offset; i < end && !region->used.empty(); ++i) {
    if (region->used[i]) continue;
    hazard(HazardKind::kBounds, lane, site,
           std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
               " bytes that belong to no tensor element: global address " +
               memory.describe(address));
    return false;
  }
  if (!write) return true;
  if (!region->writable) {
    hazard(HazardKind::kWrongGlobalWrite, lane, site,
           "write to an input: global address " + memory.describe(address));
    return false;
  }
  if (region->writers.empty()) region->writers.resize(region->bytes);
  const uint32_t cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  for (size_t i = offset; i < end; ++i) {
    Region::Writer& last = region->writers[i];
    if (last.time != 0 && (last.cta != cta || !ordered(lane, last.lane, last.time))) {
      hazard(HazardKind::kWrongGlobalWrite, lane, site,
             "a second lane writes global address " + memory.describe(address) + "; CTA " +
                 std::to_string(last.cta) + ", " + lane_name(last.lane) +
                 " wrote it, and nothing orders the two");
    }
    last = {cta, static_cast<uint16_t>(lane.index), warp_of(lane).now};
  }
  return true;
}

// --- shared memory

bool Machine::check_shared(const Lane& lane, SiteId site, uint32_t address, int bytes,
                           int alignment, const char* what) {
  if (address % static_cast<uint32_t>(alignment) != 0) {
    hazard(HazardKind::kMisaligned, lane, site,
           shared_name(address) + " is not aligned to " + std::to_string(alignment) + " bytes");
    return false;
  }
  const int64_t offset = static_cast<int64_t>(address) - kSharedBase;
  if (offset < 0 || offset + bytes > static_cast<int64_t>(launch.shared_bytes)) {
    hazard(HazardKind::kBounds, lane, site,
           std::string(what) + " of " + std::to_string(bytes) + " bytes at " +
               shared_name(address) + ", where the CTA has " + std::to_string(launch.shared_bytes) +
               " bytes");
    return false;
  }
  return true;
}

void Machine::note_read(uint32_t address, int bytes, Lane& lane, bool whole_warp, SiteId site,
                        bool async_proxy, bool in_flight) {
  const size_t num_warps = warps_.size();
  const uint32_t now = warp_of(lane).now;
  const size_t first = (address - kSharedBase) / kCellBytes;
  const size_t last = (address - kSharedBase + static_cast<uint32_t>(bytes) - 1) / kCellBytes;
  for (size_t i = first; i <= last; ++i) {
    Cell& cell = cells_[i];
    const uint32_t at = kSharedBase + static_cast<uint32_t>(i) * kCellBytes;
    if (cell.state == CellState::kWritten) {
      if (!ordered(lane, cell.lane, cell.time)) {
        hazard(HazardKind::kRace, lane, site,
               "read of " + shared_name(at) + ", which " + lane_name(cell.lane) + " writes at " +
                   where(cell.site) + "; nothing orders the read after the write",
               cell.site);
      } else if (async_proxy && !cell.async_proxy && !proxy_fenced(lane, cell.lane, cell.time)) {
        hazard(HazardKind::kProxy, lane, site,
               "the async proxy reads " + shared_name(at) + ", which " + lane_name(cell.lane) +
                   " wrote at " + where(cell.site) +
                   " and did not make visible by fence.proxy.async",
               cell.site);
      }
    } else if (cell.state == CellState::kUnwritten) {
      hazard(HazardKind::kUnwrittenShared, lane, site,
             "read of " + shared_name(at) + ", which nothing has written");
    } else if (cell.state == CellState::kInFlight) {
      hazard(HazardKind::kCopyInFlight, lane, site,
             "read of " + shared_name(at) + ", the destination of a copy that " +
                 lane_name(cell.lane) + " started at " + where(cell.site) +
                 " and that need not have landed",
             cell.site);
    } else {
      hazard(HazardKind::kBarrierMisuse, lane, site,
             "read of " + shared_name(at) + ", which is an mbarrier");
    }
    Reader& reader = readers_[i * num_warps + static_cast<size_t>(lane.warp)];
    reader = {in_flight ? kReadInFlight : now, site, static_cast<uint8_t>(lane.in_warp),
              whole_warp};
    cell.readers |= static_cast<uint16_t>(1u << lane.warp);
  }
}

// The writer must have fenced between the write and the release that the observer acquired.
bool Machine::proxy_fenced(const Lane& observer, int writer, uint32_t time) const {
  if (writer == engine()) return true;
  const auto& fences = lanes_[writer].proxy_fences;
  const auto fence = std::lower_bound(fences.begin(), fences.end(), time);
  return fence != fences.end() && ordered(observer, writer, *fence);
}

// Of reads in flight (wgmma operands, TMA stores): they end now.
void Machine::end_reads(uint32_t address, int bytes, Lane& lane) {
  const size_t first = (address - kSharedBase) / kCellBytes;
  const size_t last = (address - kSharedBase + static_cast<uint32_t>(bytes) - 1) / kCellBytes;
  for (size_t i = first; i <= last; ++i) {
    Reader& reader = readers_[i * warps_.size() + static_cast<size_t>(lane.warp)];
    if (reader.time == kReadInFlight) reader.time = warp_of(lane).now;
  }
}

void Machine::note_write(uint32_t address, int bytes, Lane& lane, SiteId site, CellState state,
                         bool async_proxy) {
  const size_t num_warps = warps_.size();
  const uint32_t now = warp_of(lane).now;
  const size_t first = (address - kSharedBase) / kCellBytes;
  const size_t last = (address - kSharedBase + static_cast<uint32_t>(bytes) - 1) / kCellBytes;
  for (size_t i = first; i <= last; ++i) {
    Cell& cell = cells_[i];
    const uint32_t at = kSharedBase + static_cast<uint32_t>(i) * kCellBytes;
    if (cell.state == CellState::kInFlight) {
      hazard(HazardKind::kCopyInFlight, lane, site,
             "write of " + shared_name(at) + ", the destination of a copy that " +
                 lane_name(cell.lane) + " started at " + where(cell.site) +
                 " and that need not have landed",
             cell.site);
    } else if (cell.state == CellState::kMbarrier && state != CellState::kMbarrier) {
      hazard(HazardKind::kBarrierMisuse, lane, site,
             "write of " + shared_name(at) + ", which is an mbarrier");
    } else if (cell.state == CellState::kWritten && !ordered(lane, cell.lane, cell.time)) {
      hazard(HazardKind::kRace, lane, site,
             "write of " + shared_name(at) + ", which " + lane_name(cell.lane) + " writes at " +
                 where(cell.site) + "; nothing orders the two",
             cell.site);
    } else if (async_proxy && cell.state == CellState::kWritten && !cell.async_proxy &&
               !proxy_fenced(lane, cell.lane, cell.time)) {
      hazard(HazardKind::kProxy, lane, site,
             "the async proxy overwrites " + shared_name(at) + ", which " + lane_name(cell.lane) +
                 " wrote at " + where(cell.site) + " with no fence.proxy.async since",
             cell.site);
    }
    for (uint32_t warps = cell.readers; warps != 0; warps &= warps - 1) {
      const int w = std::countr_zero(warps);
      const Reader& reader = readers_[i * num_warps + static_cast<size_t>(w)];
      const int reader_lane = w * kWarpSize + reader.in_warp;
      bool past = false;
      if (reader.time != kReadInFlight) {
        past = (reader.whole_warp && w == lane.warp) || ordered(lane, reader_lane, reader.time);
        // After a warp-wide read, whatever any lane of the warp releases lies later.
        for (int other = 0; reader.whole_warp && !past && other < kWarpSize; ++other)
          past = ordered(lane, w * kWarpSize + other, reader.time);
      }
      if (past) continue;
      hazard(HazardKind::kRace, lane, site,
             "write of " + shared_name(at) + ", which " + lane_name(reader_lane) + " reads at " +
                 where(reader.site) +
                 (reader.time == kReadInFlight ? " by an operation that is still under way"
                                               : "; nothing orders the write after the read"),
             reader.site);
    }
    cell = {now, static_cast<uint16_t>(lane.index), site, state, async_proxy, 0};
  }
}

// A copy's bytes arrive: from now on they are an ordinary write of `writer` at `time`.
void Machine::note_landing(uint32_t address, int bytes, int writer, uint32_t time) {
  const size_t first = (address - kSharedBase) / kCellBytes;
  const size_t last = (address - kSharedBase + static_cast<uint32_t>(bytes) - 1) / kCellBytes;
  for (size_t i = first; i <= last; ++i) {
    cells_[i].state = CellState::kWritten;
    cells_[i].lane = static_cast<uint16_t>(writer);
    cells_[i].time = time;
  }
}

void Machine::land(Lane& lane, const CpAsync& copy) {
  std::byte* destination = shared(copy.shared);
  std::memset(destination, 0, static_cast<size_t>(copy.bytes));
  if (copy.source_bytes > 0)
    std::memcpy(destination, copy.global, static_cast<size_t>(copy.source_bytes));
  note_landing(copy.shared, copy.bytes, lane.index, warp_of(lane).now);
}

// --- counters

void Machine::record_access(Lane& lane, Op op, SiteId site, bool global, int bytes,
                            uint64_t address) {
  auto& groups = warp_of(lane).accesses;
  const uint32_t bit = 1u << lane.in_warp;
  auto group = std::find_if(groups.begin(), groups.end(), [&](const AccessGroup& g) {
    return g.site == site && g.global == global && !(g.mask & bit);
  });
  if (group == groups.end()) {
    group = groups.insert(groups.end(), AccessGroup{site, op, global, bytes, 0, {}});
  }
  group->mask |= bit;
  group->address[lane.in_warp] = address;
}

// Shared memory serves 128 bytes per pass, four from each of 32 banks; accesses of 16 (8) bytes per
// lane are served for 8 (16) lanes at a time.
void Machine::count_wavefronts(SiteId site, Op op, const uint32_t* address, int num, int bytes) {
  const int lanes_per_phase = bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
  uint64_t wavefronts = 0;
  uint64_t ideal = 0;
  for (int first = 0; first < num; first += lanes_per_phase) {
    uint32_t words[64];
    int num_words = 0;
    for (int i = first; i < std::min(num, first + lanes_per_phase); ++i) {
      if (address[i] == 0) continue;  // the lane takes no part
      for (int offset = 0; offset < bytes; offset += 4)
        words[num_words++] = (address[i] + static_cast<uint32_t>(offset)) / 4;
    }
    if (num_words == 0) continue;
    std::sort(words, words + num_words);
    const int num_distinct = static_cast<int>(std::unique(words, words + num_words) - words);
    uint32_t per_bank[32] = {};
    for (int i = 0; i < num_distinct; ++i) ++per_bank[words[i] % 32];
    wavefronts += *std::max_element(per_bank, per_bank + 32);
    ideal += 1;
  }
  if (site_counters_.size() <= site) site_counters_.resize(site + 1u);
  SiteCounters& counters = site_counters_[site];
  counters.op = op;
  counters.requests += 1;
  counters.wavefronts += wavefronts;
  counters.ideal_wavefronts += ideal;
  report.bank_conflicts += wavefronts - ideal;
}

void Machine::flush_accesses(Warp& warp) {
  for (const AccessGroup& group : warp.accesses) {
    if (!group.global) {
      uint32_t address[kWarpSize];
      for (int i = 0; i < kWarpSize; ++i)
        address[i] = group.mask >> i & 1u ? static_cast<uint32_t>(group.address[i]) : 0u;
      count_wavefronts(group.site, group.op, address, kWarpSize, group.bytes);
      count(group.op);
      continue;
    }
    uint64_t sectors[kWarpSize * 2];
    int num = 0;
    for (int i = 0; i < kWarpSize; ++i) {
      if (!(group.mask >> i & 1u)) continue;
      const uint64_t first = group.address[i] / 32;
      const uint64_t last = (group.address[i] + static_cast<uint64_t>(group.bytes) - 1) / 32;
      sectors[num++] = first;
      if (last != first) sectors[num++] = last;
    }
    std::sort(sectors, sectors + num);
    const int64_t distinct = std::unique(sectors, sectors + num) - sectors;
    if (site_counters_.size() <= group.site) site_counters_.resize(group.site + 1u);
    SiteCounters& counters = site_counters_[group.site];
    if (group.op != Op::kCpAsync) {
      counters.op = group.op;
      counters.requests += 1;
      count(group.op);
    }
    counters.sectors += static_cast<uint64_t>(distinct);
    counters.ideal_sectors +=
        static_cast<uint64_t>((std::popcount(group.mask) * group.bytes + 31) / 32);
  }
  warp.accesses.clear();
}

namespace device {

unsigned char* shared_memory() {
  return reinterpret_cast<unsigned char*>(g_machine->shared(kSharedBase));
}

uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const std::byte*>(pointer) -
                               g_machine->shared(kSharedBase)) +
         kSharedBase;
}

void load_shared(void* value, uint32_t address, int bytes, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  std::memset(value, 0xff, static_cast<size_t>(bytes));
  if (!machine.check_shared(lane, id, address, bytes, bytes, "read")) return;
  machine.record_access(lane, Op::kLoadShared, id, false, bytes, address);
  machine.note_read(address, bytes, lane, false, id);
  std::memcpy(value, machine.shared(address), static_cast<size_t>(bytes));
}

void store_shared(uint32_t address, const void* value, int bytes, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  if (!machine.check_shared(lane, id, address, bytes, bytes, "write")) return;
  machine.record_access(lane, Op::kStoreShared, id, false, bytes, address);
  machine.note_write(address, bytes, lane, id, CellState::kWritten);
  std::memcpy(machine.shared(address), value, static_cast<size_t>(bytes));
}

void load_global(void* value, const void* address, int bytes, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  std::memset(value, 0xff, static_cast<size_t>(bytes));
  if (!machine.check_global(lane, id, address, bytes, bytes, false)) return;
  machine.record_access(lane, Op::kLoadGlobal, id, true, bytes,
                        reinterpret_cast<uintptr_t>(address));
  std::memcpy(value, address, static_cast<size_t>(bytes));
}

void store_global(void* address, const void* value, int bytes, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  if (!machine.check_global(lane, id, address, bytes, bytes, true)) return;
  machine.record_access(lane, Op::kStoreGlobal, id, true, bytes,
                        reinterpret_cast<uintptr_t>(address));
  std::memcpy(address, value, static_cast<size_t>(bytes));
}

void cp_async(uint32_t shared, const void* global, int bytes, int source_bytes, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  if (source_bytes < 0 || source_bytes > bytes) {
    machine.hazard(HazardKind::kBadOperand, lane, id,
                   "cp.async of " + std::to_string(source_bytes) + " source bytes");
    return;
  }
  if (!machine.check_shared(lane, id, shared, bytes, bytes, "copy")) return;
  // The source address must be aligned even where no byte of it is read.
  if (source_bytes == 0 && reinterpret_cast<uintptr_t>(global) % static_cast<uintptr_t>(bytes) != 0)
    machine.hazard(HazardKind::kMisaligned, lane, id, "the source of an empty cp.async");
  machine.record_access(lane, Op::kCpAsync, id, false, bytes, shared);
  if (source_bytes > 0) {
    if (!machine.check_global(lane, id, global, source_bytes, bytes, false)) source_bytes = 0;
    machine.record_access(lane, Op::kCpAsync, id, true, bytes, reinterpret_cast<uintptr_t>(global));
  }
  machine.note_write(shared, bytes, lane, id, CellState::kInFlight);
  std::memset(machine.shared(shared), 0xff, static_cast<size_t>(bytes));
  lane.open_copies.push_back({shared, global, bytes, source_bytes, id});
}

void cp_async_commit(const Site& site) {
  (void)site;
  Lane& lane = g_machine->lane();
  count_op(Op::kCpAsyncCommit);
  lane.copy_groups.push_back(std::move(lane.open_copies));
  lane.open_copies.clear();
}

void cp_async_wait(int pending, const Site& site) {
  (void)site;
  Lane& lane = g_machine->lane();
  count_op(Op::kCpAsyncWait);
  while (lane.copy_groups.size() > static_cast<size_t>(pending)) {
    for (const CpAsync& copy : lane.copy_groups.front()) g_machine->land(lane, copy);
    lane.copy_groups.pop_front();
  }
}

}  // namespace device
}  // namespace tilefold::lane_machine
