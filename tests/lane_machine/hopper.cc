// Hopper's asynchronous machinery in the lane machine: mbarrier, TMA, wgmma, the proxy fence,
// setmaxnreg.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "lane_machine/device.h"
#include "lane_machine/numbers.h"
#include "lane_machine/tensor_map.h"
#include "machine_impl.h"

namespace tilefold::lane_machine {
namespace {

constexpr float kPoisonedAccumulator = std::bit_cast<float>(0x7fbadbadu);

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// The 128-byte swizzle: address bits 4-6 are XORed with bits 7-9. 64 and 32 bytes: two bits, one.
uint32_t swizzle(uint32_t address, int span_bytes) {
  const uint32_t mask = span_bytes == 128 ? 7 : span_bytes == 64 ? 3 : span_bytes == 32 ? 1 : 0;
  return address ^ ((address >> 7 & mask) << 4);
}

// A shared-memory operand of wgmma: `outer` rows along M or N by 16 along K.
struct Descriptor {
  uint32_t start;
  uint32_t leading;
  uint32_t stride;
  int span_bytes;  // of the swizzle; 16: none

  explicit Descriptor(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4) {
    constexpr int kSpans[] = {16, 128, 64, 32};
    span_bytes = kSpans[bits >> 62];
  }

  // The address of the 8 elements from (outer, k) on that are contiguous along K (K-major) ...
  uint32_t k_major(int outer, int k) const {
    const uint32_t group = static_cast<uint32_t>(outer / 8), row = static_cast<uint32_t>(outer % 8);
    const uint32_t bytes = static_cast<uint32_t>(k) * 2;
    if (span_bytes == 16) return start + group * stride + bytes / 16 * leading + row * 16;
    return swizzle(start + group * stride + row * static_cast<uint32_t>(span_bytes) + bytes,
                   span_bytes);
  }
  // ... or along M or N.
  uint32_t mn_major(int outer, int k) const {
    const uint32_t span = static_cast<uint32_t>(span_bytes);
    const uint32_t bytes = static_cast<uint32_t>(outer) * 2;
    const uint32_t group = static_cast<uint32_t>(k / 8), row = static_cast<uint32_t>(k % 8);
    return swizzle(start + bytes / span * leading + group * stride + row * span + bytes % span,
                   span_bytes);
  }
};

const HostTensorMap* as_map(const void* map) {
  const HostTensorMap* host = static_cast<const HostTensorMap*>(map);
  return host->magic == HostTensorMap::kMagic ? host : nullptr;
}

// Calls visit(shared address, global address or null, bytes) for each row of a box. Columns past
// the tensor's end come in a call of their own.
template <class Visit>
void for_each_piece(const HostTensorMap& map, uint32_t shared, const BoxPlace& at,
                    const Visit& visit) {
  const int bytes = map.box_columns * static_cast<int>(map.strides[0]);
  for (int row = 0; row < map.box_rows * map.box_heads; ++row) {
    BoxPlace first = at;  // of this row
    first[1] += row % map.box_rows;
    first[2] += row / map.box_rows;
    bool inside = true;
    for (int i = 1; i < map.rank; ++i) inside &= first[i] >= 0 && first[i] < map.dims[i];
    for (int offset = 0; offset < bytes; offset += 16) {
      const uint32_t target = swizzle(shared + static_cast<uint32_t>(row * bytes + offset), bytes);
      int valid = 0;  // bytes of this piece that the tensor has
      const int64_t x = int64_t{at[0]} + offset / map.strides[0];
      if (inside && x >= 0)
        valid = static_cast<int>(
            std::clamp<int64_t>((map.dims[0] - x) * map.strides[0], int64_t{0}, int64_t{16}));
      std::byte* global = nullptr;
      if (valid > 0) {
        global = map.data + x * map.strides[0];
        for (int i = 1; i < map.rank; ++i) global += first[i] * map.strides[i];
      }
      visit(target, global, valid);
    }
  }
}

int box_bytes(const HostTensorMap& map) {
  return map.box_heads * map.box_rows * map.box_columns * static_cast<int>(map.strides[0]);
}

// The 16-byte pieces of shared memory that a wgmma reads. They count as read by each of the four
// warps: which of them reads which rows of A is not said anywhere.
template <class Visit>
void for_each_operand_piece(const PendingProduct& product, const Visit& visit) {
  const Descriptor a(product.a_descriptor), b(product.b_descriptor);
  for (int row = 0; !product.a_in_registers && row < 64; ++row) {
    for (int k = 0; k < 16; k += 8) visit(a.k_major(row, k));
  }
  for (int n = 0; !product.b_transposed && n < product.n; ++n) {
    for (int k = 0; k < 16; k += 8) visit(b.k_major(n, k));
  }
  for (int n = 0; product.b_transposed && n < product.n; n += 8) {
    for (int k = 0; k < 16; ++k) visit(b.mn_major(n, k));
  }
}

float widen(uint16_t bits, bool bfloat) {
  return bfloat ? bfloat16_to_float(bits) : half_to_float(bits);
}

}  // namespace

// --- mbarrier

Mbarrier* Machine::find_mbarrier(const Lane& lane, uint32_t address, SiteId site,
                                 bool async_proxy) {
  const auto found = mbarriers.find(address);
  if (found == mbarriers.end()) {
    hazard(HazardKind::kBarrierMisuse, lane, site,
           "no mbarrier has been initialised at shared " + hex(address));
    return nullptr;
  }
  Mbarrier& barrier = found->second;
  if (!ordered(lane, barrier.init_lane, barrier.init_time)) {
    hazard(HazardKind::kRace, lane, site,
           "the mbarrier at shared " + hex(address) + " is used, but nothing orders that after " +
               lane_name(barrier.init_lane) + " initialises it at " + where(barrier.init_site));
  } else if (async_proxy && !proxy_fenced(lane, barrier.init_lane, barrier.init_time)) {
    hazard(HazardKind::kProxy, lane, site,
           "the async proxy uses the mbarrier at shared " + hex(address) +
               ", which was not made visible to it by fence.mbarrier_init");
  }
  return &barrier;
}

void Machine::maybe_complete(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.pending_bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.completed = barrier.gathering;
  for (Lane* lane : barrier.waiting) wake(*lane);
  barrier.waiting.clear();
}

// --- TMA

void Machine::land_load(int issuer, uint32_t destination, const void* map, uint32_t barrier,
                        const BoxPlace& at, SiteId site) {
  const HostTensorMap& tensor = *as_map(map);
  Lane& lane = lanes_[issuer];
  const uint32_t time = engine_now++;
  for_each_piece(tensor, destination, at, [&](uint32_t target, std::byte* global, int valid) {
    std::memset(shared(target), 0, 16);
    // The hardware reads whole 16-byte units of the tensor only; rows end on such a boundary.
    if (valid > 0 && check_global(lane, site, global, valid, 2, false))
      std::memcpy(shared(target), global, static_cast<size_t>(valid));
  });
  note_landing(destination, box_bytes(tensor), engine(), time);
  Mbarrier& target = mbarriers.at(barrier);
  target.gathering.resize(clock_size(), 0);
  target.gathering[engine()] = time;
  target.pending_bytes -= box_bytes(tensor);
  maybe_complete(target);
}

// The store has read its box. Global memory gets it as late as the program allows.
void Machine::read_store(Lane& lane, const PendingStore& store) {
  const HostTensorMap& map = *as_map(store.map);
  for_each_piece(map, store.source, store.at, [&](uint32_t source, std::byte* global, int valid) {
    if (valid > 0 && check_global(lane, store.site, global, valid, 2, true)) {
      PendingWrite& write = lane.store_writes.emplace_back();
      write.global = global;
      write.count = valid;
      std::memcpy(write.bytes.data(), shared(source), static_cast<size_t>(valid));
    }
  });
  end_reads(store.source, box_bytes(map), lane);
}

void Machine::write_stores(Lane& lane) {
  for (const PendingWrite& write : lane.store_writes)
    std::memcpy(write.global, write.bytes.data(), static_cast<size_t>(write.count));
  lane.store_writes.clear();
}

// --- wgmma

// Computes a product at the latest moment that its wait allows, from what shared memory holds then.
void Machine::land_product(Warp& warp, PendingProduct& product) {
  Lane& first = lane_of(warp, 0);
  for_each_operand_piece(
      product, [&](uint32_t address) { note_read(address, 16, first, true, product.site, true); });
  float a[16][16];                        // [m][k]
  std::vector<float> b(product.n * 16u);  // [k][n]
  const auto piece = [&](uint32_t address, int i) {
    uint16_t bits;
    std::memcpy(&bits, shared(address) + 2 * i, 2);
    return widen(bits, product.bfloat);
  };
  const Descriptor a_tile(product.a_descriptor), b_tile(product.b_descriptor);
  for (int lane = 0; product.a_in_registers && lane < kWarpSize; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const uint32_t pair = product.a_registers[lane][r];
      const int row = lane / 4 + 8 * (r % 2), k = lane % 4 * 2 + 8 * (r / 2);
      a[row][k] = widen(static_cast<uint16_t>(pair), product.bfloat);
      a[row][k + 1] = widen(static_cast<uint16_t>(pair >> 16), product.bfloat);
    }
  }
  for (int m = 0; !product.a_in_registers && m < 16; ++m) {
    for (int k = 0; k < 16; ++k)
      a[m][k] = piece(a_tile.k_major(warp.index % 4 * 16 + m, k / 8 * 8), k % 8);
  }
  for (int n = 0; n < product.n; n += 8) {
    for (int k = 0; k < 16; ++k) {
      for (int i = 0; i < 8; ++i)
        b[static_cast<size_t>(k * product.n + n + i)] =
            product.b_transposed ? piece(b_tile.mn_major(n, k), i)
                                 : piece(b_tile.k_major(n + i, k / 8 * 8), k % 8);
    }
  }
  // Exact products, their sum with the accumulator in double, one rounding to float32.
  auto& values = product.accumulator->values;
  std::vector<double> sums(static_cast<size_t>(product.n));
  for (int m = 0; m < 16; ++m) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int k = 0; k < 16; ++k) {
      const float factor = a[m][k];
      const float* row = &b[static_cast<size_t>(k * product.n)];
      for (int n = 0; n < product.n; ++n) sums[n] += static_cast<double>(factor) * row[n];
    }
    for (int n = 0; n < product.n; ++n) {
      float& value = values[n / 8 * 4 + m / 8 * 2 + n % 2][m % 8 * 4 + n % 8 / 2];
      value = static_cast<float>(sums[n] + (product.accumulate ? value : 0.0));
    }
  }
  if (--product.accumulator->users > 0) return;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    float* registers = product.accumulator->registers[lane];
    for (int i = 0; i < product.n / 2; ++i) {
      if (std::bit_cast<uint32_t>(registers[i]) != std::bit_cast<uint32_t>(kPoisonedAccumulator)) {
        hazard(HazardKind::kRegistersInFlight, lane_of(warp, lane), product.site,
               "accumulator " + std::to_string(i) + " was written while the wgmma was in flight");
      }
      registers[i] = values[i][lane];
    }
  }
  accumulators.erase(product.accumulator->registers[0]);
}

void Machine::check_hopper_leftovers() {
  const auto leftover = [&](const Lane& lane, SiteId site, const char* what) {
    hazard(HazardKind::kLeftover, lane, site, std::string("the CTA has ended with ") + what);
  };
  if (!engine_queue.empty()) leftover(lanes_[0], 0, "TMA loads that have not landed");
  for (const auto& [address, barrier] : mbarriers) {
    if (barrier.pending_bytes != 0)
      leftover(lanes_[barrier.init_lane], barrier.init_site,
               "an mbarrier whose expected bytes have not come (or more than expected)");
  }
  for (Lane& lane : lanes_) {
    for (const auto& group : lane.store_groups)
      if (!group.empty())
        leftover(lane, group[0].site, "a TMA store that shared memory must outlive");
    if (!lane.open_stores.empty())
      leftover(lane, lane.open_stores[0].site, "a TMA store never committed");
    write_stores(lane);
  }
  for (Warp& warp : warps_) {
    for (const auto& group : warp.product_groups)
      if (!group.empty()) leftover(lane_of(warp, 0), group[0].site, "a wgmma never waited for");
    if (!warp.open_products.empty())
      leftover(lane_of(warp, 0), warp.open_products[0].site, "a wgmma never committed");
  }
  int64_t registers = 0;
  for (const auto& [warp, count] : registers_of_warp) {
    registers += int64_t{count} * kWarpSize;
    if (count != registers_of_warp[warp / 4 * 4])
      hazard(HazardKind::kBadOperand, lanes_[warp * kWarpSize], 0,
             "setmaxnreg differs inside a warpgroup");
  }
  if (registers > 65536)
    hazard(HazardKind::kBadOperand, lanes_[0], 0,
           "setmaxnreg hands out " + std::to_string(registers) + " registers of 65536");
}

namespace device {

void mbarrier_init(uint32_t address, uint32_t count, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  machine.count(Op::kMbarrier);
  if (!machine.check_shared(lane, id, address, 8, 8, "mbarrier")) return;
  if (count == 0 || count >= 1u << 20)
    machine.hazard(HazardKind::kBadOperand, lane, id, "mbarrier for " + std::to_string(count));
  machine.note_write(address, 8, lane, id, CellState::kMbarrier);
  Mbarrier barrier;
  barrier.count = barrier.pending = count;
  barrier.init_lane = lane.index;
  barrier.init_time = machine.warp().now;
  barrier.init_site = id;
  machine.mbarriers[address] = barrier;
}

void mbarrier_arrive(uint32_t address, uint32_t expect_bytes, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  machine.count(Op::kMbarrier);
  Mbarrier* barrier = machine.find_mbarrier(lane, address, id, false);
  if (barrier == nullptr) return;
  barrier->pending_bytes += expect_bytes;
  machine.release(lane, barrier->gathering);
  if (barrier->pending == 0) {
    machine.hazard(HazardKind::kBarrierMisuse, lane, id,
                   "one arrival too many in a phase of the mbarrier at shared " + hex(address) +
                       ", which is for " + std::to_string(barrier->count));
    return;
  }
  --barrier->pending;
  machine.maybe_complete(*barrier);
}

void mbarrier_wait(uint32_t address, uint32_t parity, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  if (lane.in_warp == 0) machine.count(Op::kMbarrier);
  Mbarrier* barrier = machine.find_mbarrier(lane, address, id, false);
  if (barrier == nullptr) machine.stop();
  if ((barrier->phase & 1) == (parity & 1)) {
    const uint64_t phase = barrier->phase;
    barrier->waiting.push_back(&lane);
    machine.park(Op::kMbarrier, id,
                 "mbarrier at shared " + hex(address) + ", phase " + std::to_string(phase) +
                     ", parity " + std::to_string(parity) + ", " +
                     std::to_string(barrier->pending) + " arrivals and " +
                     std::to_string(barrier->pending_bytes) + " bytes short when it came");
    if (barrier->phase > phase + 1) {
      machine.hazard(HazardKind::kBarrierMisuse, lane, id,
                     "phase slip: the mbarrier at shared " + hex(address) +
                         " has completed a second phase before this lane could see the first");
    }
  }
  machine.acquire(lane, barrier->completed);
}

void fence_proxy_async(const Site&) {
  Machine& machine = *g_machine;
  count_op(Op::kFence);
  machine.lane().proxy_fences.push_back(machine.warp().now++);
}

void fence_mbarrier_init(const Site& site) { fence_proxy_async(site); }

void tma_load(uint32_t destination, const void* map, uint32_t barrier, int rank, const BoxPlace& at,
              const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  machine.count(Op::kTma);
  const HostTensorMap* tensor = as_map(map);
  if (tensor == nullptr || tensor->rank != rank || reinterpret_cast<uintptr_t>(map) % 64 != 0) {
    machine.hazard(HazardKind::kBadOperand, lane, id,
                   "no tensor map of that rank at a multiple of 64 bytes");
    machine.stop();
  }
  const int bytes = box_bytes(*tensor);
  if (!machine.check_shared(lane, id, destination, bytes, 128, "TMA load")) machine.stop();
  if (machine.find_mbarrier(lane, barrier, id, true) == nullptr) machine.stop();
  machine.note_write(destination, bytes, lane, id, CellState::kInFlight, true);
  std::memset(machine.shared(destination), 0xff, static_cast<size_t>(bytes));
  machine.engine_queue.push_back(
      [&machine, issuer = lane.index, destination, map, barrier, place = at, id] {
        machine.land_load(issuer, destination, map, barrier, place, id);
      });
}

void tma_store(const void* map, uint32_t source, int rank, const BoxPlace& at, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  machine.count(Op::kTma);
  const HostTensorMap* tensor = as_map(map);
  if (tensor == nullptr || tensor->rank != rank || reinterpret_cast<uintptr_t>(map) % 64 != 0) {
    machine.hazard(HazardKind::kBadOperand, lane, id,
                   "no tensor map of that rank at a multiple of 64 bytes");
    machine.stop();
  }
  for (const int32_t coordinate : at) {
    if (coordinate < 0) {  // legal for loads only
      machine.hazard(HazardKind::kBadOperand, lane, id, "TMA store at a negative coordinate");
      machine.stop();
    }
  }
  if (!machine.check_shared(lane, id, source, box_bytes(*tensor), 128, "TMA store")) machine.stop();
  machine.note_read(source, box_bytes(*tensor), lane, false, id, true, true);
  lane.open_stores.push_back({map, source, at, id});
}

void tma_store_commit(const Site&) {
  Lane& lane = g_machine->lane();
  lane.store_groups.push_back(std::move(lane.open_stores));
  lane.open_stores.clear();
}

void tma_store_wait_read(int pending, const Site&) {
  Lane& lane = g_machine->lane();
  while (lane.store_groups.size() > static_cast<size_t>(pending)) {
    for (const PendingStore& store : lane.store_groups.front()) {
      g_machine->read_store(lane, store);
    }
    lane.store_groups.pop_front();
  }
}

void tma_store_wait(const Site& site) {
  tma_store_wait_read(0, site);
  g_machine->write_stores(g_machine->lane());
}

void wgmma_fence(const Site& site) {
  g_machine->meet(Op::kFence, site, nullptr,
                  [](Machine&, Warp& warp, void* const*, SiteId) { warp.wgmma_fenced = true; });
}

void wgmma_commit(const Site& site) {
  g_machine->meet(Op::kFence, site, nullptr, [](Machine&, Warp& warp, void* const*, SiteId) {
    warp.product_groups.push_back(std::move(warp.open_products));
    warp.open_products.clear();
    warp.wgmma_fenced = false;  // the next batch begins with a fence of its own
  });
}

void wgmma_wait(int pending, const Site& site) {
  g_machine->meet(Op::kFence, site, &pending,
                  [](Machine& machine, Warp& warp, void* const* all, SiteId) {
                    const size_t left = static_cast<size_t>(*static_cast<int*>(all[0]));
                    while (warp.product_groups.size() > left) {
                      for (PendingProduct& product : warp.product_groups.front())
                        machine.land_product(warp, product);
                      warp.product_groups.pop_front();
                    }
                  });
}

namespace {

struct WgmmaArgs {
  int n;
  bool bfloat;
  float* d;
  const uint32_t* a;
  uint64_t a_descriptor;
  uint64_t b_descriptor;
  bool b_transposed;
  bool accumulate;
};

void issue_wgmma(Machine& machine, Warp& warp, void* const* all, SiteId site) {
  const WgmmaArgs& first = *static_cast<WgmmaArgs*>(all[0]);
  Lane& lane = machine.lane_of(warp, 0);
  PendingProduct product;
  product.n = first.n;
  product.bfloat = first.bfloat;
  product.a_in_registers = first.a != nullptr;
  product.a_descriptor = first.a_descriptor;
  product.b_descriptor = first.b_descriptor;
  product.b_transposed = first.b_transposed;
  product.accumulate = first.accumulate;
  product.site = site;
  for (int i = 0; i < kWarpSize; ++i) {
    const WgmmaArgs& args = *static_cast<WgmmaArgs*>(all[i]);
    if (args.a_descriptor != first.a_descriptor || args.b_descriptor != first.b_descriptor ||
        args.accumulate != first.accumulate)
      machine.hazard(HazardKind::kBadOperand, machine.lane_of(warp, i), site,
                     "the warp's lanes disagree on a wgmma's descriptors");
    if (first.a != nullptr) std::copy_n(args.a, 4, product.a_registers[i].begin());
  }
  // The four warps of a warpgroup issue the same sequence.
  auto& log = machine.wgmma_log[warp.index / 4];
  if (warp.num_wgmma == log.size()) {
    log.push_back(first.b_descriptor);
  } else if (log[warp.num_wgmma] != first.b_descriptor) {
    machine.hazard(HazardKind::kBadOperand, lane, site,
                   "the warps of the warpgroup disagree on a wgmma's descriptor");
  }
  ++warp.num_wgmma;
  if (!warp.wgmma_fenced)
    machine.hazard(HazardKind::kRegistersInFlight, lane, site,
                   "no wgmma.fence since the last commit_group");

  bool in_bounds = true;
  for_each_operand_piece(product, [&](uint32_t address) {
    in_bounds = in_bounds && machine.check_shared(lane, site, address, 16, 16, "wgmma operand");
  });
  if (!in_bounds) return;
  for_each_operand_piece(product, [&](uint32_t address) {
    machine.note_read(address, 16, lane, true, site, true, true);
  });

  auto& slot = machine.accumulators[first.d];
  product.accumulator = slot.lock();
  if (product.accumulator == nullptr) {
    product.accumulator = std::make_shared<Accumulator>();
    slot = product.accumulator;
    product.accumulator->values.resize(static_cast<size_t>(first.n / 2));
    for (int i = 0; i < kWarpSize; ++i) {
      float* d = static_cast<WgmmaArgs*>(all[i])->d;
      product.accumulator->registers[i] = d;
      for (int r = 0; r < first.n / 2; ++r) {
        product.accumulator->values[r][i] = d[r];
        d[r] = kPoisonedAccumulator;
      }
    }
  }
  ++product.accumulator->users;
  warp.open_products.push_back(std::move(product));
}

}  // namespace

void wgmma(int n, bool bfloat, float* d, const uint32_t* a_registers, uint64_t a_descriptor,
           uint64_t b_descriptor, bool b_transposed, bool accumulate, const Site& site) {
  WgmmaArgs args{n, bfloat, d, a_registers, a_descriptor, b_descriptor, b_transposed, accumulate};
  g_machine->meet(Op::kWgmma, site, &args, issue_wgmma);
}

void setmaxnreg(int registers, bool increase, const Site& site) {
  struct Args {
    int registers;
    bool increase;
  } args{registers, increase};
  g_machine->meet(Op::kSetmaxnreg, site, &args,
                  [](Machine& machine, Warp& warp, void* const* all, SiteId id) {
                    const Args& first = *static_cast<Args*>(all[0]);
                    // What the launch bounds leave every thread at entry.
                    const int entry = std::min(255, 65536 / machine.num_lanes()) / 8 * 8;
                    if (first.increase ? first.registers < entry : first.registers > entry)
                      machine.hazard(HazardKind::kBadOperand, machine.lane_of(warp, 0), id,
                                     "setmaxnreg in the wrong direction: entered with " +
                                         std::to_string(entry) + " registers");
                    machine.registers_of_warp[warp.index] = first.registers;
                  });
}

// Which lane is elected is the hardware's choice; the seed makes it here.
bool elect_one(const Site& site) {
  bool elected = false;
  g_machine->meet(Op::kVote, site, &elected, [](Machine& machine, Warp&, void* const* all, SiteId) {
    *static_cast<bool*>(all[machine.launch.seed * 11 % kWarpSize]) = true;
  });
  return elected;
}

uint32_t atomic_add(uint32_t* address, uint32_t value, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  if (!machine.check_global(lane, id, address, 4, 4, false)) return 0;
  machine.record_access(lane, Op::kStoreGlobal, id, true, 4, reinterpret_cast<uintptr_t>(address));
  const uint32_t before = *address;
  *address += value;
  return before;
}

// Of several lanes, in any order: no hazard, as ordinary writes would be.
void atomic_store(void* address, const void* value, int bytes, const Site& site) {
  Machine& machine = *g_machine;
  Lane& lane = machine.lane();
  const SiteId id = machine.intern(site);
  if (!machine.check_global(lane, id, address, bytes, bytes, false)) return;
  machine.record_access(lane, Op::kStoreGlobal, id, true, bytes,
                        reinterpret_cast<uintptr_t>(address));
  std::memcpy(address, value, static_cast<size_t>(bytes));
}

void wait_forever(const Site& site) {
  Machine& machine = *g_machine;
  machine.hazard(HazardKind::kDeadlock, machine.lane(), machine.intern(site),
                 "waits for a value in global memory that nobody will write");
  machine.stop();
}

}  // namespace device
}  // namespace tilefold::lane_machine
