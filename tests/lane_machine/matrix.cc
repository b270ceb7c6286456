// Warp-wide matrix instructions of the lane machine: ldmatrix, stmatrix, mma.sync.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "lane_machine/device.h"
#include "lane_machine/numbers.h"
#include "machine_impl.h"

namespace tilefold::lane_machine {
namespace {

// What -ftrivial-auto-var-init=pattern leaves in a variable that nothing has written.
#if defined(__clang__)
constexpr uint32_t kNeverWritten = 0xaaaaaaaau;
#else
constexpr uint32_t kNeverWritten = 0xfefefefeu;
#endif

struct MatrixArgs {
  uint32_t* registers;
  uint32_t address;
  int num_matrices;
  bool transpose;
};

struct MmaArgs {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
  bool bfloat;
};

void observe(Machine& machine, Warp& warp, SiteId site, Op op, const char* instruction, bool bfloat,
             std::vector<FragmentEvent::Operand> operands) {
  machine.launch.observe({op, instruction, machine.site(site), warp.index, warp.occurrences[site],
                          std::move(operands), bfloat});
}

template <class Args>
FragmentEvent::Operand operand(const char* name, bool is_float, int num_registers, void* const* all,
                               const uint32_t* (*registers)(const Args&)) {
  FragmentEvent::Operand result{name, is_float, num_registers, {}};
  for (int i = 0; i < kWarpSize; ++i) result.registers[i] = registers(*static_cast<Args*>(all[i]));
  return result;
}

// Element (row, column) of an 8x8 matrix lies with lane row * 4 + column / 2, half column % 2.
void execute_ldmatrix(Machine& machine, Warp& warp, void* const* all, SiteId site) {
  const MatrixArgs& first = *static_cast<MatrixArgs*>(all[0]);
  uint32_t rows[kWarpSize] = {};
  for (int m = 0; m < first.num_matrices; ++m) {
    uint16_t element[8][8];
    std::memset(element, 0xff, sizeof element);
    for (int row = 0; row < 8; ++row) {
      Lane& lane = machine.lane_of(warp, 8 * m + row);
      const uint32_t address = static_cast<MatrixArgs*>(all[lane.in_warp])->address;
      if (!machine.check_shared(lane, site, address, 16, 16, "ldmatrix")) continue;
      machine.note_read(address, 16, lane, false, site);
      std::memcpy(element[row], machine.shared(address), 16);
      rows[lane.in_warp] = address;
    }
    for (int i = 0; i < kWarpSize; ++i) {
      const int row = i / 4, column = i % 4 * 2;
      const uint32_t low = first.transpose ? element[column][row] : element[row][column];
      const uint32_t high = first.transpose ? element[column + 1][row] : element[row][column + 1];
      static_cast<MatrixArgs*>(all[i])->registers[m] = low | high << 16;
    }
  }
  machine.count_wavefronts(site, Op::kLdmatrix, rows, 8 * first.num_matrices, 16);
  if (machine.launch.observe) {
    observe(machine, warp, site, Op::kLdmatrix, first.transpose ? "ldmatrix.trans" : "ldmatrix",
            false,
            {operand<MatrixArgs>("r", false, first.num_matrices, all, [](const MatrixArgs& args) {
              return const_cast<const uint32_t*>(args.registers);
            })});
    ++warp.occurrences[site];
  }
}

void execute_stmatrix(Machine& machine, Warp& warp, void* const* all, SiteId site) {
  const MatrixArgs& first = *static_cast<MatrixArgs*>(all[0]);
  uint32_t rows[kWarpSize] = {};
  for (int m = 0; m < first.num_matrices; ++m) {
    uint16_t element[8][8];
    for (int i = 0; i < kWarpSize; ++i) {
      const int row = i / 4, column = i % 4 * 2;
      const uint32_t pair = static_cast<MatrixArgs*>(all[i])->registers[m];
      (first.transpose ? element[column][row] : element[row][column]) = static_cast<uint16_t>(pair);
      (first.transpose ? element[column + 1][row] : element[row][column + 1]) =
          static_cast<uint16_t>(pair >> 16);
    }
    for (int row = 0; row < 8; ++row) {
      Lane& lane = machine.lane_of(warp, 8 * m + row);
      const uint32_t address = static_cast<MatrixArgs*>(all[lane.in_warp])->address;
      if (!machine.check_shared(lane, site, address, 16, 16, "stmatrix")) continue;
      machine.note_write(address, 16, lane, site, CellState::kWritten);
      std::memcpy(machine.shared(address), element[row], 16);
      rows[lane.in_warp] = address;
    }
  }
  machine.count_wavefronts(site, Op::kStmatrix, rows, 8 * first.num_matrices, 16);
}

void check_written(Machine& machine, Warp& warp, int lane, SiteId site, const char* name, int i,
                   uint32_t value) {
  if (value != kNeverWritten) return;
  machine.hazard(
      HazardKind::kUninitialisedRegister, machine.lane_of(warp, lane), site,
      std::string("mma reads ") + name + "[" + std::to_string(i) + "], which nothing has written");
}

// D = A B + C for one 16x8x16 step: the products are exact, their sum with C is formed without
// intermediate rounding (in double, whose error is far below float32's) and rounded to float32
// once.
void execute_mma(Machine& machine, Warp& warp, void* const* all, SiteId site) {
  const bool bfloat = static_cast<MmaArgs*>(all[0])->bfloat;
  static const std::vector<float> half_values = [] {
    std::vector<float> values(65536);
    for (uint32_t i = 0; i < 65536; ++i) values[i] = half_to_float(static_cast<uint16_t>(i));
    return values;
  }();
  const auto widen = [&](uint32_t bits) {
    const uint16_t narrow = static_cast<uint16_t>(bits);
    return static_cast<double>(bfloat ? bfloat16_to_float(narrow) : half_values[narrow]);
  };
  if (machine.launch.observe) {
    observe(machine, warp, site, Op::kMma, "mma.m16n8k16", bfloat,
            {operand<MmaArgs>("A", false, 4, all, [](const MmaArgs& args) { return args.a; }),
             operand<MmaArgs>("B", false, 2, all, [](const MmaArgs& args) { return &args.b[0]; }),
             operand<MmaArgs>("C", true, 4, all, [](const MmaArgs& args) {
               return reinterpret_cast<const uint32_t*>(args.d);
             })});
  }
  double a[16][16];  // [m][k]
  double b[16][8];   // [k][n]
  double d[16][8];   // [m][n]
  for (int i = 0; i < kWarpSize; ++i) {
    const MmaArgs& args = *static_cast<MmaArgs*>(all[i]);
    const int group = i / 4, pair = i % 4 * 2;
    for (int r = 0; r < 4; ++r) {
      check_written(machine, warp, i, site, "a", r, args.a[r]);
      check_written(machine, warp, i, site, "d", r, std::bit_cast<uint32_t>(args.d[r]));
      const int row = group + 8 * (r % 2), k = pair + 8 * (r / 2);
      a[row][k] = widen(args.a[r]);
      a[row][k + 1] = widen(args.a[r] >> 16);
      d[group + 8 * (r / 2)][pair + r % 2] = static_cast<double>(args.d[r]);
    }
    for (int r = 0; r < 2; ++r) {
      check_written(machine, warp, i, site, "b", r, args.b[r]);
      b[pair + 8 * r][group] = widen(args.b[r]);
      b[pair + 8 * r + 1][group] = widen(args.b[r] >> 16);
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int i = 0; i < kWarpSize; ++i) {
    float* out = static_cast<MmaArgs*>(all[i])->d;
    for (int r = 0; r < 4; ++r)
      out[r] = static_cast<float>(d[i / 4 + 8 * (r / 2)][i % 4 * 2 + r % 2]);
  }
  if (machine.launch.observe) {
    observe(machine, warp, site, Op::kMma, "mma.m16n8k16", bfloat,
            {operand<MmaArgs>("D", true, 4, all, [](const MmaArgs& args) {
              return reinterpret_cast<const uint32_t*>(args.d);
            })});
    ++warp.occurrences[site];
  }
}

}  // namespace

namespace device {

void mma_m16n8k16(bool bfloat, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  const Site& site) {
  MmaArgs args{d, a, {b0, b1}, bfloat};
  g_machine->meet(Op::kMma, site, &args, execute_mma);
}

void ldmatrix(uint32_t* r, int num_matrices, bool transpose, uint32_t address, const Site& site) {
  MatrixArgs args{r, address, num_matrices, transpose};
  g_machine->meet(Op::kLdmatrix, site, &args, execute_ldmatrix);
}

void stmatrix(const uint32_t* r, int num_matrices, bool transpose, uint32_t address,
              const Site& site) {
  MatrixArgs args{const_cast<uint32_t*>(r), address, num_matrices, transpose};
  g_machine->meet(Op::kStmatrix, site, &args, execute_stmatrix);
}

}  // namespace device
}  // namespace tilefold::lane_machine
