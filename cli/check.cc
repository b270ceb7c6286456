// `tilefold check`: a back end against the float64 reference, over a grid or random problems.
#include <fmt/core.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/device_memory.h"
#include "cli/failure.h"
#include "cli/flags.h"
#include "cli/io/text.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "reference.h"

namespace tilefold::cli {
namespace {

struct CheckFlags {
  DeviceFlag device;
  AttentionFlags attention;  // --kernel and --threads only
  int64_t fuzz = 0;
  uint64_t seed = 1;
  std::string one_case;
  std::string dtype;
  int64_t max_seqlen = 300;
  bool verbose = false;
};

constexpr int64_t kMostProblems = 1'000'000;

enum class Outcome { kPassed, kFailed, kRefused };

struct Verdict {
  Outcome outcome;
  std::string message;
  double worst_ratio = 0;  // error / bound
};

// A case's tensors on the device, memory around them included.
class DeviceCopy {
 public:
  DeviceCopy(Device device, reference::HostTensor* host)
      : host_(host), memory_(device, host->memory().size()), tensor_(*host->dl()) {
    memory_.upload(std::as_const(*host).memory());
    tensor_.data = memory_.data() + host->data_offset_bytes();
    tensor_.device.device_type = device.type;
    tensor_.device.device_id = device.id;
  }
  const DLTensor* dl() const { return &tensor_; }
  void fetch() { memory_.download(host_->memory()); }

 private:
  reference::HostTensor* host_;
  DeviceMemory memory_;
  DLTensor tensor_;
};

// Runs the problem where it belongs; the instance's outputs hold the result.
tilefold_status run_on_device(const CheckFlags& flags, Device device,
                              reference::Instance* problem) {
  tilefold_options options = problem->options;
  options.num_threads = flags.attention.num_threads;
  options.kernel = flags.attention.kernel.empty() ? nullptr : flags.attention.kernel.c_str();
  std::vector<DeviceCopy> copies;
  const DLTensor* tensors[] = {problem->q.dl(), problem->k.dl(), problem->v.dl(), problem->o.dl(),
                               problem->lse.dl()};
  if (device.type != kDLCPU) {
    copies.reserve(std::size(tensors));
    for (reference::HostTensor* host :
         {&problem->q, &problem->k, &problem->v, &problem->o, &problem->lse}) {
      copies.emplace_back(device, host);
      tensors[copies.size() - 1] = copies.back().dl();
    }
  }
  const DLTensor* lse = problem->want_lse ? tensors[4] : nullptr;
  size_t bytes = 0;
  tilefold_status status = tilefold_forward_workspace_bytes(tensors[0], tensors[1], tensors[2],
                                                            tensors[3], lse, &options, &bytes);
  if (status == TILEFOLD_OK) {
    Workspace workspace = make_workspace(device);
    workspace.reserve(bytes);
    status = tilefold_forward(tensors[0], tensors[1], tensors[2], tensors[3], lse, &options,
                              workspace.data(), bytes, nullptr);
    if (status == TILEFOLD_OK) synchronize(device);
  }
  if (!copies.empty()) {
    copies[3].fetch();
    copies[4].fetch();
  }
  return status;
}

Verdict check_case(const CheckFlags& flags, Device device, const reference::Case& problem) {
  reference::Instance instance = reference::make_instance(problem);
  const tilefold_status status = run_on_device(flags, device, &instance);
  if (status != TILEFOLD_OK) {
    const std::string sentence = tilefold_last_error();
    if (!instance.o.untouched() || !instance.lse.untouched()) {
      return {Outcome::kFailed, "refused, but outputs were written: " + sentence};
    }
    const std::string message = fmt::format("{}: {}", tilefold_status_string(status), sentence);
    // The problems of the grid and of --fuzz are valid ones; a --case may be anything.
    const bool refused = status == TILEFOLD_ERROR_UNSUPPORTED ||
                         (status == TILEFOLD_ERROR_INVALID_ARGUMENT && !flags.one_case.empty());
    return {refused ? Outcome::kRefused : Outcome::kFailed, message};
  }
  if (!instance.o.surroundings_intact() || !instance.lse.surroundings_intact()) {
    return {Outcome::kFailed, "memory beside the outputs was written"};
  }
  const reference::Result expected =
      reference::attention(*instance.q.dl(), *instance.k.dl(), *instance.v.dl(), &instance.options);
  const reference::Comparison comparison =
      reference::compare(expected, *instance.o.dl(), instance.lse_dl());
  return {comparison.ok ? Outcome::kPassed : Outcome::kFailed, comparison.message(),
          comparison.worst_ratio};
}

std::vector<reference::DType> dtypes_of(const CheckFlags& flags) {
  if (!flags.dtype.empty()) {
    return {reference_type(parse_data_type(flags.dtype))};
  }
  return {reference::DType::kFloat32, reference::DType::kFloat16, reference::DType::kBFloat16};
}

// Lengths around tile edges x head dims x masks x dtypes, with grouped heads.
std::vector<reference::Case> grid(const std::vector<reference::DType>& dtypes) {
  constexpr std::pair<int64_t, int64_t> kLengths[] = {
      {1, 1}, {1, 257}, {63, 65}, {64, 64}, {127, 129}, {128, 300}, {257, 128}, {300, 300}};
  constexpr std::pair<int64_t, int64_t> kHeadDims[] = {
      {16, 16}, {59, 59}, {64, 64}, {96, 64}, {128, 128}};
  struct Mask {
    int causal;
    int64_t left, right;
  };
  constexpr Mask kMasks[] = {{TILEFOLD_CAUSAL_NONE, -1, -1},
                             {TILEFOLD_CAUSAL_TOP_LEFT, -1, -1},
                             {TILEFOLD_CAUSAL_BOTTOM_RIGHT, -1, -1},
                             {TILEFOLD_CAUSAL_NONE, 40, 20}};
  std::vector<reference::Case> cases;
  for (const reference::DType dtype : dtypes) {
    for (const auto& [head_dim, head_dim_v] : kHeadDims) {
      for (const Mask& mask : kMasks) {
        for (const auto& [seqlen_q, seqlen_k] : kLengths) {
          reference::Case problem;
          problem.dtype = dtype;
          problem.batch = 2;
          problem.heads = 4;
          problem.heads_kv = 2;
          problem.seqlen_q = seqlen_q;
          problem.seqlen_k = seqlen_k;
          problem.head_dim = head_dim;
          problem.head_dim_v = head_dim_v;
          problem.causal = mask.causal;
          problem.window_left = mask.left;
          problem.window_right = mask.right;
          problem.seed = cases.size() + 1;
          cases.push_back(problem);
        }
      }
    }
  }
  return cases;
}

std::vector<reference::Case> cases_of(const CheckFlags& flags) {
  if (!flags.one_case.empty()) {
    reference::Case problem;
    std::string error;
    if (!reference::from_string(flags.one_case, &problem, &error)) {
      throw UsageError("--case", error);
    }
    return {problem};
  }
  if (flags.fuzz == 0) return grid(dtypes_of(flags));
  reference::CaseLimits limits;
  limits.dtypes = dtypes_of(flags);
  limits.max_seqlen = flags.max_seqlen;
  std::vector<reference::Case> cases;
  cases.reserve(static_cast<size_t>(flags.fuzz));
  for (int64_t i = 0; i < flags.fuzz; ++i) {
    // Seeds of their own, so that --seed 1 and --seed 2 share no problem.
    cases.push_back(reference::random_case(
        reference::random_bits(flags.seed, static_cast<uint64_t>(i)), limits));
  }
  return cases;
}

// The command line that runs one case again.
std::string reproduction(const CheckFlags& flags, const reference::Case& problem) {
  std::string line = "tilefold check";
  if (flags.device.text != "cpu") line += " --device " + flags.device.text;
  if (!flags.attention.kernel.empty()) line += " --kernel " + flags.attention.kernel;
  if (flags.attention.num_threads != 0) {
    line += fmt::format(" --threads {}", flags.attention.num_threads);
  }
  return fmt::format("{} --case \"{}\"", line, problem.to_string());
}

void run_check(const CheckFlags& flags) {
  const Device device = flags.device.device();
  const DeviceInfo info = require_device(device);
  flags.attention.require_kernel();
  const std::vector<reference::Case> cases = cases_of(flags);
  const bool one = !flags.one_case.empty();
  int64_t passed = 0, failed = 0, refused = 0;
  std::string refusal;
  double worst_ratio = 0;
  std::string worst_case;
  ProgressBar progress(static_cast<int64_t>(cases.size()));
  for (size_t i = 0; i < cases.size(); ++i) {
    progress.update(static_cast<int64_t>(i), failed > 0 ? fmt::format("{} failed", failed) : "");
    const Verdict verdict = check_case(flags, device, cases[i]);
    if (flags.verbose && !one) {
      progress.clear();
      fmt::print("{}: {}\n", cases[i].to_string(), verdict.message);
    }
    switch (verdict.outcome) {
      case Outcome::kPassed:
        ++passed;
        if (verdict.worst_ratio > worst_ratio) {
          worst_ratio = verdict.worst_ratio;
          worst_case = cases[i].to_string();
        }
        break;
      case Outcome::kRefused:
        ++refused;
        if (refusal.empty()) refusal = verdict.message;
        break;
      case Outcome::kFailed:
        ++failed;
        progress.clear();
        fmt::print("{}  # {}\n", reproduction(flags, cases[i]), verdict.message);
        break;
    }
    if (one && verdict.outcome == Outcome::kPassed) fmt::print("{}\n", verdict.message);
  }
  progress.clear();
  if (!one) {
    fmt::print("{} on {} ({}{}): {} passed, {} failed, {} refused by the library\n",
               counted(int64_t(cases.size()), "problem"), device_text(device), info.name,
               flags.attention.kernel.empty() ? "" : ", kernel " + flags.attention.kernel, passed,
               failed, refused);
    if (!worst_case.empty()) {
      fmt::print("largest error: {:.2f} of its bound, at \"{}\"\n", worst_ratio, worst_case);
    }
  }
  if (refused > 0 && !one) fmt::print("first refusal: {}\n", refusal);
  if (failed > 0) {
    fail(ExitCode::kCheckFailed, "{} of {} failed", failed,
         counted(int64_t(cases.size()), "problem"));
  }
  if (passed == 0) fail(ExitCode::kLibraryRefused, "no problem was served: {}", refusal);
}

}  // namespace

Command make_check_command() {
  const auto flags = std::make_shared<CheckFlags>();
  Command command("check", "Compare a back end with the float64 reference");
  command.integer<int64_t>("--fuzz", &flags->fuzz, 1, kMostProblems,
                           "Check N random problems instead of the grid");
  command.integer<uint64_t>("--seed", &flags->seed, 0, std::numeric_limits<uint64_t>::max(),
                            "Seed of the random problems (default 1)");
  command.needs("--fuzz");
  command.integer<int64_t>("--max-seqlen", &flags->max_seqlen, 1, int64_t{1} << 20,
                           "Longest sequence of the random problems (default 300)");
  command.needs("--fuzz");
  command.text("--case", &flags->one_case, "CASE", "Check one problem, as a failure printed it");
  command.excludes("--fuzz");
  command.text("--dtype", &flags->dtype, "TYPE", "Only this type: float32, float16, bfloat16");
  flags->device.add_to(&command);
  flags->attention.add_kernel_to(&command);
  command.flag("-v,--verbose", &flags->verbose, "Print every problem");
  command.footer(std::string(R"(Examples:
  tilefold check
  tilefold check --fuzz 100 --seed 7
  tilefold check --device cuda:0 --kernel generic_fp32 --fuzz 200
  tilefold check --case "dtype=float16 b=1 hq=8 hkv=2 nq=128 nk=300 d=64 causal=bottom_right"

Tolerances are per element, from the numbers of the problem and the unit roundoff of its
type. Memory around the outputs is guarded: a stray write is a failure. A problem that the
library refuses (a forced kernel that does not serve it; a --case that is not valid) counts
apart; where it refused every problem, the exit code is 4.

)") + kExitCodesHelp);
  command.runs([flags] { run_check(*flags); });
  return command;
}

}  // namespace tilefold::cli
