// Runs a GPU kernel on the lane machine from the command line: to look for hazards, to count, to
// step through one CTA in a debugger, and to print what a warp holds at a named point.
// docs/lane-machine.md shows its use.
#include <dlfcn.h>

#include <bit>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "forward_run.h"
#include "lane_machine/numbers.h"

namespace {

using namespace tilefold::lane_machine;

constexpr const char* kUsage =
    "usage: lane_machine_run [--load FILE]... [--list] [--kernel NAME]... [--case TEXT]...\n"
    "           [--schedules N | --schedule N] [--splits N] [--cta N] [--counters]\n"
    "           [--print POINT [--warp N]] [--save FILE]\n"
    "  --load FILE    a shared object with more kernels\n"
    "  --kernel NAME  a row of kernels.def; default: all that are linked in\n"
    "  --case TEXT    \"nq=64 nk=100 causal=top_left ...\"; dtype and head dim are the kernel's\n"
    "  --schedules N  run under schedules 0 .. N-1 (default 1); stop at the first that fails\n"
    "  --cta N        only this CTA; the result is not compared then\n"
    "  --print POINT  FUNCTION:INSTRUCTION#N, e.g. compute_scores:mma#0: the registers of the "
    "N-th\n"
    "                 such instruction that the warp executes, lane by lane and as a matrix\n"
    "  --save FILE    appends each result of the first schedule, for lane_machine_compare_gpu\n";

struct Options {
  std::vector<std::string> kernels;
  std::vector<std::string> cases;
  uint64_t first_schedule = 0;
  uint64_t num_schedules = 1;
  int num_splits = 1;
  int64_t cta = -1;
  bool list = false;
  bool counters = false;
  std::string point;
  int warp = 0;
  std::string save;
};

double half_value(const FragmentEvent& event, uint32_t bits) {
  const uint16_t narrow = static_cast<uint16_t>(bits);
  return static_cast<double>(event.is_bfloat16 ? bfloat16_to_float(narrow) : half_to_float(narrow));
}

// A register, as what it holds.
std::string value_text(const FragmentEvent& event, const FragmentEvent::Operand& operand,
                       uint32_t bits) {
  char text[64];
  if (operand.is_float) {
    std::snprintf(text, sizeof text, "%11.5g", static_cast<double>(std::bit_cast<float>(bits)));
    return text;
  }
  std::snprintf(text, sizeof text, "(%9.4g,%9.4g)", half_value(event, bits),
                half_value(event, bits >> 16));
  return text;
}

void print_fragments(const FragmentEvent& event) {
  std::printf("%s, warp %d, %s:%u\n", event.instruction, event.warp, event.site.file_name(),
              event.site.line());
  for (const FragmentEvent::Operand& operand : event.operands) {
    std::printf("%s, lane by lane:\n", operand.name);
    for (int lane = 0; lane < kWarpSize; ++lane) {
      std::printf("  lane %2d:", lane);
      for (int r = 0; r < operand.num_registers; ++r)
        std::printf(" %s[%d] %s", operand.name, r,
                    value_text(event, operand, operand.registers[lane][r]).c_str());
      std::printf("\n");
    }
    if (event.op != Op::kMma) continue;
    // mma.m16n8k16: C and D are 16 x 8 float32, A is 16 x 16 and B 16 x 8 in pairs along k.
    const bool is_b = operand.num_registers == 2;
    const int columns = operand.is_float || is_b ? 8 : 16;
    std::printf("%s as a 16 x %d matrix:\n", operand.name, columns);
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < columns; ++column) {
        const int k = is_b ? row : column;
        const int lane = (is_b ? column : row % 8) * 4 + k % 8 / 2;
        const uint32_t* registers = operand.registers[lane];
        if (operand.is_float) {
          std::printf(" %s", value_text(event, operand, registers[row / 8 * 2 + k % 2]).c_str());
        } else {
          const uint32_t pair = registers[is_b ? row / 8 : row / 8 + k / 8 * 2];
          std::printf(" %9.4g", half_value(event, k % 2 == 0 ? pair : pair >> 16));
        }
      }
      std::printf("\n");
    }
  }
}

// Prints the event if it is the point that was asked for.
void observe(const FragmentEvent& event, const Options& options) {
  const size_t colon = options.point.find(':');
  const size_t hash = options.point.find('#');
  if (colon == std::string::npos || event.warp != options.warp) return;
  const std::string function = options.point.substr(0, colon);
  const std::string instruction = options.point.substr(
      colon + 1, hash == std::string::npos ? std::string::npos : hash - colon - 1);
  const uint64_t n =
      hash == std::string::npos ? 0 : std::strtoull(options.point.c_str() + hash + 1, nullptr, 10);
  const std::string name = event.site.function_name();
  const size_t at = name.find(function);
  if (at == std::string::npos || event.occurrence != n) return;
  if (std::strncmp(event.instruction, instruction.c_str(), instruction.size()) != 0) return;
  print_fragments(event);
}

// A line of text, then the bits of O, row by row, and of the LSE.
void save(const ForwardKernel& kernel, const ForwardSetup& setup, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::exit(2);
  }
  std::fprintf(file, "%s|%s\n", kernel.name.c_str(), setup.c.to_string().c_str());
  for (const auto* tensor : {&setup.instance.o, &setup.instance.lse}) {
    tilefold::reference::for_each_index(tensor->shape(), [&](std::span<const int64_t> index) {
      const uint32_t bits = tensor->bits_at(index);
      std::fwrite(&bits, sizeof bits, 1, file);
    });
  }
  std::fclose(file);
}

bool run_one(const ForwardKernel& kernel, const std::string& text, const Options& options) {
  ForwardSetup setup = setup_for(kernel, text);
  const tilefold::ForwardProblem& problem = setup.problem;
  if (!kernel.masked && (problem.masks_left() || problem.masks_right())) return true;
  for (uint64_t i = 0; i < options.num_schedules; ++i) {
    ForwardRun how;
    how.seed = options.first_schedule + i;
    how.num_splits = options.num_splits;
    how.adjust = [&](Launch& launch) {
      launch.only_cta = options.cta;
      if (!options.point.empty())
        launch.observe = [&](const FragmentEvent& event) { observe(event, options); };
    };
    const auto start = std::chrono::steady_clock::now();
    ForwardOutcome outcome = kernel.run(setup, how);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (options.cta >= 0) {
      outcome.expected_mma = 0;
      outcome.comparison.ok = true;
    }
    if (outcome.ok()) {
      std::printf("ok    %s \"%s\" schedule %" PRIu64 ": %.2f s%s%s\n", kernel.name.c_str(),
                  text.c_str(), how.seed, seconds, options.cta >= 0 ? "" : ", ",
                  options.cta >= 0 ? "" : outcome.comparison.message().c_str());
    } else {
      std::printf("FAIL  %s \"%s\" schedule %" PRIu64 "\n%s", kernel.name.c_str(), text.c_str(),
                  how.seed, outcome.message().c_str());
    }
    if (!options.save.empty() && i == 0) save(kernel, setup, options.save);
    if (options.counters && i == 0) std::printf("%s", outcome.report.counters().c_str());
    if (!outcome.ok()) return false;
  }
  return true;
}

int run_all(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 < argc) return argv[++i];
      std::fputs(kUsage, stderr);
      std::exit(2);
    };
    if (word == "--load") {
      if (dlopen(value(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
      }
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--kernel") {
      options.kernels.push_back(value());
    } else if (word == "--case") {
      options.cases.push_back(value());
    } else if (word == "--schedules") {
      options.num_schedules = std::strtoull(value(), nullptr, 10);
    } else if (word == "--schedule") {
      options.first_schedule = std::strtoull(value(), nullptr, 10);
    } else if (word == "--splits") {
      options.num_splits = std::atoi(value());
    } else if (word == "--cta") {
      options.cta = std::atoll(value());
    } else if (word == "--counters") {
      options.counters = true;
    } else if (word == "--print") {
      options.point = value();
    } else if (word == "--save") {
      options.save = value();
    } else if (word == "--warp") {
      options.warp = std::atoi(value());
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (options.cases.empty()) options.cases.push_back("hq=1 nq=128 nk=256 seed=1");
  bool ok = true;
  bool any = false;
  for (const ForwardKernel& kernel : forward_kernels()) {
    bool wanted = options.kernels.empty();
    for (const std::string& name : options.kernels) wanted = wanted || name == kernel.name;
    if (!wanted) continue;
    any = true;
    if (options.list) {
      std::printf("%s\n", kernel.name.c_str());
      continue;
    }
    for (const std::string& text : options.cases) {
      ok = run_one(kernel, text, options) && ok;
      if (!ok) return 1;
    }
  }
  if (!any) std::fprintf(stderr, "no such kernel; --list names those that there are\n");
  return any ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) { return run_all(argc, argv); }
