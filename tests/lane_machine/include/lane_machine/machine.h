// The lane machine: runs the CTAs of a GPU kernel on the host, every lane a fiber, and reports what
// a GPU would let pass or answer with wrong numbers. docs/lane-machine.md describes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "lane_machine/cuda_builtins.h"

namespace tilefold::lane_machine {

using BoxPlace = std::array<int32_t, 5>;  // coordinates of a TMA box, as many as its map has
using Site = std::source_location;        // the line of a kernel from which a wrapper was called

constexpr int kWarpSize = 32;
constexpr uint32_t kWholeWarp = 0xffffffffu;
// Shared addresses start here, as they do on a GPU of today; 0 stays invalid.
constexpr uint32_t kSharedBase = 1024;

enum class Op : uint8_t {
  kMma,
  kLdmatrix,
  kStmatrix,
  kShuffle,
  kVote,
  kSyncWarp,
  kLoadShared,
  kStoreShared,
  kLoadGlobal,
  kStoreGlobal,
  kCpAsync,
  kCpAsyncCommit,
  kCpAsyncWait,
  kBarrier,
  kMbarrier,
  kTma,
  kWgmma,
  kFence,
  kSetmaxnreg,
  kConvert,
  kSpecialFunction,
  kCount
};
const char* op_name(Op op);

enum class HazardKind : uint8_t {
  kUnwrittenShared,        // a read of shared memory that nothing has written
  kCopyInFlight,           // an access to the destination or source of an unfinished copy
  kRace,                   // two accesses, one of them a write, that nothing orders
  kBounds,                 // outside shared memory or outside every registered global region
  kMisaligned,             // an address that its instruction does not take
  kDeadlock,               // lanes that wait for what no lane can do any more
  kUninitialisedRegister,  // an operand of mma that nothing has written
  kLeftover,               // copies or products still under way at the kernel's end
  kBarrierMisuse,          // counts that disagree, divergent barriers, phases that slip
  kProxy,                  // an ordinary write that TMA or wgmma reads without fence.proxy.async
  kRegistersInFlight,      // registers of a wgmma touched before its wait, or no wgmma.fence
  kBadOperand,             // a descriptor, coordinate or immediate that the hardware does not take
  kWrongGlobalWrite,       // two lanes write one address, or a write to read-only memory
  kCount
};
const char* hazard_name(HazardKind kind);

struct Hazard {
  HazardKind kind;
  std::string text;  // kind, kernel, CTA, lane, source line, address, and the other party if any
};

// What one source line did to memory.
struct SiteCounters {
  std::string where;
  Op op = Op::kCount;
  uint64_t requests = 0;          // warp-wide
  uint64_t wavefronts = 0;        // shared memory: passes of 128 bytes that the banks needed
  uint64_t ideal_wavefronts = 0;  // ... and the least that would do
  uint64_t sectors = 0;           // global memory: 32-byte sectors touched
  uint64_t ideal_sectors = 0;     // ... and the least that hold as many bytes
};

struct RunReport {
  std::vector<Hazard> hazards;
  uint64_t instructions[static_cast<int>(Op::kCount)] = {};  // warp-wide
  uint64_t bank_conflicts = 0;                               // wavefronts beyond the ideal
  std::vector<SiteCounters> sites;

  uint64_t count(Op op) const { return instructions[static_cast<int>(op)]; }
  bool has(HazardKind kind) const;
  std::string summary() const;   // the hazards, a line each
  std::string counters() const;  // instructions by family, memory by source line
};

// A piece of global memory that the kernel may touch. Kernels get ordinary host pointers into it.
struct Region {
  std::string name;
  std::byte* base = nullptr;
  size_t bytes = 0;
  bool writable = false;
  // One entry per byte: 0 = belongs to no tensor element (a gap between rows, say), touching it is
  // out of bounds. Empty: all of it belongs.
  std::vector<uint8_t> used;
  // Per byte, who wrote it when; filled by the machine.
  struct Writer {
    uint32_t cta = 0;
    uint16_t lane = 0;
    uint32_t time = 0;  // 0: nobody
  };
  std::vector<Writer> writers;
};

class GlobalMemory {
 public:
  // `used` as in Region.
  void add(std::string name, const void* base, size_t bytes, bool writable,
           std::vector<uint8_t> used = {});
  Region* find(uintptr_t address, size_t bytes);
  void forget_writers();
  std::string describe(uintptr_t address) const;

 private:
  std::vector<Region> regions_;
};

// A look at the registers of one warp-wide instruction: what print_warp shows.
struct FragmentEvent {
  Op op;
  const char* instruction;  // "ldmatrix.x4.trans", "mma.m16n8k16.bf16"
  Site site;
  int warp = 0;
  uint64_t occurrence = 0;  // how often this warp executed this line before
  struct Operand {
    const char* name;
    bool is_float;  // float32, else packed 16-bit pairs
    int num_registers;
    const uint32_t* registers[kWarpSize];
  };
  std::vector<Operand> operands;
  bool is_bfloat16 = false;
};

struct Launch {
  const char* kernel = "kernel";
  Dim3 grid;
  Dim3 block;
  uint32_t shared_bytes = 0;
  // Order in which lanes run and asynchronous copies land. 0: warp by warp, copies as late as
  // possible; others: four kinds of order in turn, all of them reproducible.
  uint64_t seed = 0;
  int64_t only_cta = -1;  // linear index; -1 = all
  size_t max_hazards = 20;
  std::function<void(const FragmentEvent&)> observe;
};

// Runs `kernel` once per lane of every CTA, one CTA after another.
RunReport run(const Launch& launch, GlobalMemory& memory, const std::function<void()>& kernel);

}  // namespace tilefold::lane_machine
