// Runs a GPU kernel on the lane machine from the command line: to look for hazards, to count, to
// step through one CTA in a debugger, and to print what a warp holds at a named point.
// docs/lane-machine.md shows its use.
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "forward_run.h"
#include "lane_machine/numbers.h"

namespace {

using namespace tilefold::lane_machine;

constexpr const char* kUsage =
    "usage: lane_machine_run [--load FILE]... [--list] [--kernel NAME]... [--case TEXT]...\n"
    "           [--schedules N] [--schedule N] [--splits N] [--cta N] [--counters]\n"
    "           [--print POINT [--warp N]] [--save FILE]\n"
    "  --load FILE    a shared object with more kernels\n"
    "  --kernel NAME  a row of kernels.def; default: all that are linked in\n"
    "  --case TEXT    \"nq=64 nk=100 causal=top_left ...\"; the dtype is the kernel's, and so are "
    "the\n"
    "                 head dims, if the case has no d= or dv= below them\n"
    "  --schedules N  run under N schedules (default 1) from --schedule (default 0) on; stop at "
    "the\n"
    "                 first that fails\n"
    "  --splits N     sm80: K and V split over N CTAs\n"
    "  --cta N        only this CTA; the result is not compared then\n"
    "  --print POINT  FUNCTION:INSTRUCTION#N, e.g. compute_scores:mma#0: the registers of the\n"
    "                 N-th such instruction that the warp (--warp N, default 0) executes in that\n"
    "                 function, lane by lane and as a matrix; mma, ldmatrix, ldmatrix.trans\n"
    "  --save FILE    appends each result of the first schedule, for lane_machine_compare_gpu\n"
    "Exit status: 0 all is well; 1 a hazard or a wrong result, or a point that was not reached; 2 "
    "what\n"
    "was asked for does not exist.\n";

struct Options {
  std::vector<std::string> kernels;
  std::vector<std::string> cases;
  uint64_t first_schedule = 0;
  uint64_t num_schedules = 1;
  int num_splits = 1;
  int64_t cta = -1;
  bool list = false;
  bool counters = false;
  std::string point;  // as given; the three below are its parts
  std::string point_function;
  std::string point_instruction;
  uint64_t point_number = 0;
  int64_t warp = -1;  // -1: not given
  std::string save;
};

// What has been seen of the point to be printed.
struct PointSearch {
  uint64_t executed = 0;  // such instructions in this CTA
  uint64_t most = 0;      // ... in any
  bool printed = false;
  std::set<std::string> functions;  // those that execute the instruction
};

// Says what cannot be done, and ends.
[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "lane_machine_run: %s\n", why.c_str());
  std::exit(2);
}

int64_t number(const std::string& option, const std::string& text, int64_t least) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || value < least)
    refuse(option + " takes a number from " + std::to_string(least) + " up, not '" + text + "'");
  return value;
}

void parse_point(Options& options) {
  const std::string& point = options.point;
  const size_t colon = point.find(':');
  const size_t hash = point.find('#');
  if (colon == 0 || colon == std::string::npos || (hash != std::string::npos && hash < colon))
    refuse("--print takes FUNCTION:INSTRUCTION#N, not '" + point + "'");
  options.point_function = point.substr(0, colon);
  options.point_instruction =
      point.substr(colon + 1, hash == std::string::npos ? hash : hash - colon - 1);
  if (hash != std::string::npos)
    options.point_number = static_cast<uint64_t>(
        number("--print " + point.substr(0, hash + 1), point.substr(hash + 1), 0));
  for (const char* known : {"mma", "mma.m16n8k16", "ldmatrix", "ldmatrix.trans"})
    if (options.point_instruction == known) return;
  refuse("--print knows mma, ldmatrix and ldmatrix.trans, not '" + options.point_instruction + "'");
}

// The plain name of a function: no template arguments, no parameters.
std::string plain_name(std::string function) {
  function = function.substr(0, function.find_first_of("(<["));
  const size_t space = function.find_last_of(" :");
  return space == std::string::npos ? function : function.substr(space + 1);
}

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

// Prints the event if it is the point that was asked for. An mma comes as two events: A, B and C
// before it is executed, D after.
void observe(const FragmentEvent& event, const Options& options, PointSearch& search) {
  if (event.warp != std::max<int64_t>(options.warp, 0)) return;
  const std::string& wanted = options.point_instruction;
  if (std::strncmp(event.instruction, wanted.c_str(), wanted.size()) != 0) return;
  const std::string function = plain_name(event.site.function_name());
  search.functions.insert(function);
  if (function != options.point_function) return;
  if (std::strcmp(event.operands[0].name, "D") != 0) ++search.executed;
  search.most = std::max(search.most, search.executed);
  if (search.executed != options.point_number + 1) return;
  search.printed = true;
  print_fragments(event);
}

// The point was never reached: why.
std::string not_reached(const Options& options, const PointSearch& search) {
  std::string text = "the point " + options.point + " was never reached: warp " +
                     std::to_string(std::max<int64_t>(options.warp, 0)) + " executes ";
  if (search.most > 0)
    return text + std::to_string(search.most) + " such instructions there, counted from 0";
  text += "no " + options.point_instruction + " in " + options.point_function;
  std::string names;
  for (const std::string& name : search.functions) names += (names.empty() ? "" : ", ") + name;
  return text + (names.empty() ? ", nor anywhere else" : "; it does in " + names);
}

// Ends the program where the case asks for what the kernel does not have.
void check_case(const ForwardKernel& kernel, const ForwardSetup& setup, const std::string& text) {
  const auto& c = setup.c;
  const std::string of = kernel.name + ", \"" + text + "\": ";
  const bool is_half = c.dtype == tilefold::reference::DType::kFloat16;
  if (is_half != (kernel.dtype == tilefold::DType::kFloat16) ||
      (!is_half && c.dtype != tilefold::reference::DType::kBFloat16))
    refuse(of + "the dtype is the kernel's");
  if (c.head_dim > kernel.head_dim || c.head_dim_v > kernel.head_dim_v)
    refuse(of + "the kernel is for d up to " + std::to_string(kernel.head_dim) + ", dv up to " +
           std::to_string(kernel.head_dim_v));
  if (c.head_dim < 8 || c.head_dim_v < 8 || c.head_dim % 8 != 0 || c.head_dim_v % 8 != 0)
    refuse(of + "d and dv have to be multiples of 8");
  if (c.batch < 1 || c.seqlen_q < 1 || c.heads_kv < 1 || c.heads < 1 || c.heads % c.heads_kv != 0)
    refuse(of + "b, hq, hkv and nq have to be 1 or more, and hq a multiple of hkv");
}

// A line of text, then the bits of O, row by row, and of the LSE.
void save(const ForwardKernel& kernel, const ForwardSetup& setup, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) refuse("cannot write " + path);
  std::fprintf(file, "%s|%s\n", kernel.name.c_str(), setup.c.to_string().c_str());
  for (const auto* tensor : {&setup.instance.o, &setup.instance.lse}) {
    tilefold::reference::for_each_index(tensor->shape(), [&](std::span<const int64_t> index) {
      const uint32_t bits = tensor->bits_at(index);
      std::fwrite(&bits, sizeof bits, 1, file);
    });
  }
  std::fclose(file);
}

enum class RunResult { kOk, kFailed, kLeftOut };

RunResult run_one(const ForwardKernel& kernel, const std::string& text, const Options& options) {
  ForwardSetup setup = setup_for(kernel, text);
  check_case(kernel, setup, text);
  if (options.num_splits > 1 && std::string(kernel.family) != "sm80")
    refuse("--splits is for the sm80 kernels; " + kernel.name + " is none");
  const tilefold::ForwardProblem& problem = setup.problem;
  if (!kernel.masked && (problem.masks_left() || problem.masks_right())) {
    std::printf("left out %s \"%s\": the kernel has no masks\n", kernel.name.c_str(), text.c_str());
    return RunResult::kLeftOut;
  }
  if (problem.seqlen_q > kernel.most_queries) {
    std::printf("left out %s \"%s\": the kernel takes up to %" PRId64 " query rows\n",
                kernel.name.c_str(), text.c_str(), kernel.most_queries);
    return RunResult::kLeftOut;
  }
  for (uint64_t i = 0; i < options.num_schedules; ++i) {
    ForwardRun how;
    how.seed = options.first_schedule + i;
    how.num_splits = options.num_splits;
    PointSearch search;
    how.adjust = [&](Launch& launch) {
      const int64_t num_ctas = int64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
      const int64_t num_warps = (launch.block.x + kWarpSize - 1) / kWarpSize;
      if (options.cta >= num_ctas)
        refuse("there is no CTA " + std::to_string(options.cta) + ": " + kernel.name + " has " +
               std::to_string(num_ctas) + " here, from 0 on");
      if (options.warp >= num_warps)
        refuse("there is no warp " + std::to_string(options.warp) + ": " + kernel.name + " has " +
               std::to_string(num_warps) + ", from 0 on");
      launch.only_cta = options.cta;
      if (options.point.empty()) return;
      launch.observe = [&, last = ~0u](const FragmentEvent& event) mutable {
        if (blockIdx.x != last) search.executed = 0;  // grids have one dimension
        last = blockIdx.x;
        observe(event, options, search);
      };
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
    if (!outcome.ok()) return RunResult::kFailed;
    if (!options.point.empty() && !search.printed) {
      std::fprintf(stderr, "lane_machine_run: %s\n", not_reached(options, search).c_str());
      return RunResult::kFailed;
    }
  }
  return RunResult::kOk;
}

int run_all(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 < argc) return argv[++i];
      refuse(word + " takes a value; --help says which");
    };
    if (word == "--load") {
      if (dlopen(value(), RTLD_NOW | RTLD_GLOBAL) == nullptr) refuse(dlerror());
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--kernel") {
      options.kernels.push_back(value());
    } else if (word == "--case") {
      options.cases.push_back(value());
    } else if (word == "--schedules") {
      options.num_schedules = static_cast<uint64_t>(number(word, value(), 1));
    } else if (word == "--schedule") {
      options.first_schedule = static_cast<uint64_t>(number(word, value(), 0));
    } else if (word == "--splits") {
      options.num_splits = static_cast<int>(std::min<int64_t>(number(word, value(), 1), 1 << 20));
    } else if (word == "--cta") {
      options.cta = number(word, value(), 0);
    } else if (word == "--counters") {
      options.counters = true;
    } else if (word == "--print") {
      options.point = value();
      parse_point(options);
    } else if (word == "--save") {
      options.save = value();
    } else if (word == "--warp") {
      options.warp = number(word, value(), 0);
    } else if (word == "--help" || word == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    } else {
      refuse("no such option: " + word + "; --help names those that there are");
    }
  }
  if (options.warp >= 0 && options.point.empty()) refuse("--warp goes with --print");
  if (forward_kernels().empty()) refuse("no kernels were compiled into this, and none was loaded");
  for (const std::string& name : options.kernels)
    if (find_kernel(name) == nullptr)
      refuse("no such kernel: " + name + "; --list names those that there are");
  if (options.cases.empty()) options.cases.push_back("hq=1 nq=128 nk=256 seed=1");
  bool any = options.list;
  for (const ForwardKernel& kernel : forward_kernels()) {
    bool wanted = options.kernels.empty();
    for (const std::string& name : options.kernels) wanted = wanted || name == kernel.name;
    if (!wanted) continue;
    if (options.list) {
      std::printf("%s\n", kernel.name.c_str());
      continue;
    }
    for (const std::string& text : options.cases) {
      const RunResult result = run_one(kernel, text, options);
      if (result == RunResult::kFailed) return 1;
      any = any || result == RunResult::kOk;
    }
  }
  if (!any) refuse("nothing was run");
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_all(argc, argv); }
