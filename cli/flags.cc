// The options that several commands share.
#include "cli/flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "cli/device_memory.h"
#include "cli/failure.h"

namespace tilefold::cli {

const char kExitCodesHelp[] =
    "Exit codes: 0 done; 1 a check failed; 2 wrong command line; 3 bad input file;\n"
    "4 the library refused the problem; 5 reading, writing or memory failed.";

Device parse_device(const std::string& text) {
  if (text == "cpu") return Device::cpu();
  if (text == "auto") {
    for (const DeviceInfo& info : devices()) {
      if (info.device.type == kDLCUDA && info.usable && cuda::available()) return info.device;
    }
    return Device::cpu();
  }
  if (text == "cuda") return Device::cuda(0);
  constexpr std::string_view kPrefix = "cuda:";
  int32_t id = 0;
  const char* end = text.data() + text.size();
  if (text.starts_with(kPrefix)) {
    const auto [at, error] = std::from_chars(text.data() + kPrefix.size(), end, id);
    if (error == std::errc() && at == end && id >= 0) return Device::cuda(id);
  }
  throw UsageError("--device", fmt::format("'{}'; accepted: cpu, cuda, cuda:N, auto", text));
}

std::string device_text(Device device) {
  return device.type == kDLCPU ? "cpu" : fmt::format("cuda:{}", device.id);
}

DeviceInfo require_device(Device device) {
  std::string known;
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) {
      if (!info.usable) {
        fail(ExitCode::kLibraryRefused, "device {} ({}) cannot be used: {}", device_text(device),
             info.name, info.note);
      }
      return info;
    }
    known += (known.empty() ? "" : ", ") + device_text(info.device);
  }
  fail(ExitCode::kLibraryRefused, "there is no device {}{}; devices here: {}", device_text(device),
       cuda::available() ? "" : " (this build of tilefold has no CUDA)", known);
}

DataType parse_data_type(const std::string& text) {
  if (text == "float32" || text == "f32") return DataType::kFloat32;
  if (text == "float16" || text == "f16") return DataType::kFloat16;
  if (text == "bfloat16" || text == "bf16") return DataType::kBFloat16;
  throw UsageError("--dtype", fmt::format("'{}'; accepted: float32, float16, bfloat16", text));
}

Causal parse_causal(const std::string& text) {
  for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
    if (text == causal_text(causal)) return causal;
  }
  throw UsageError("--causal", fmt::format("'{}'; accepted: none, top-left, bottom-right", text));
}

const char* causal_text(Causal causal) {
  switch (causal) {
    case Causal::kNone: return "none";
    case Causal::kTopLeft: return "top-left";
    case Causal::kBottomRight: return "bottom-right";
  }
  return "unknown";
}

std::vector<int64_t> parse_integers(const std::string& option, const std::string& text,
                                    size_t min_count, size_t max_count) {
  std::vector<int64_t> values;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && *next != ',')) {
      throw UsageError(option, fmt::format("'{}' is not a list of integers such as 4,0", text));
    }
    values.push_back(value);
    if (next == end) break;
    at = next + 1;
  }
  if (values.size() < min_count || values.size() > max_count) {
    throw UsageError(option, min_count == max_count
                                 ? fmt::format("'{}' has {} numbers; accepted: {}", text,
                                               values.size(), min_count)
                                 : fmt::format("'{}' has {} numbers; accepted: {} to {}", text,
                                               values.size(), min_count, max_count));
  }
  return values;
}

void DeviceFlag::add_to(Command* command, const char* default_text) {
  text = default_text;
  command->text("--device", &text, "DEVICE",
                fmt::format("cpu, cuda, cuda:N, or auto: a GPU where there is one (default {})",
                            default_text));
}

void add_threads_to(Command* command, int* num_threads) {
  command->integer("--threads", num_threads, 0, std::numeric_limits<int>::max(),
                   "CPU threads (default: as OpenMP decides)");
}

void AttentionFlags::add_kernel_to(Command* command) {
  command->text("--kernel", &kernel, "NAME",
                "The kernel to run (tilefold info --kernels lists them)");
  add_threads_to(command, &num_threads);
}

void AttentionFlags::require_kernel() const {
  if (kernel.empty()) return;
  const std::vector<KernelInfo> all = kernels();
  const bool known = std::any_of(all.begin(), all.end(),
                                 [&](const KernelInfo& info) { return info.name == kernel; });
  if (!known) {
    fail(ExitCode::kLibraryRefused,
         "kernel '{}' is not in this build; `tilefold info --kernels` lists the {} that are",
         kernel, all.size());
  }
}

void AttentionFlags::add_to(Command* command) {
  command->text("--causal", &causal, "MASK",
                "Causal mask: none, top-left (j <= i) or bottom-right (j <= i + Nk - Nq)");
  command->text("--window", &window, "L,R",
                "Keys before and after the diagonal that a row sees; -1: all");
  command->text("--window-align", &window_align, "MASK",
                "The window's diagonal: auto (as --causal), top-left, bottom-right");
  command->real("--scale", &scale, "Factor of the scores (default 1/sqrt(D))");
  command->text("--empty-row-lse", &empty_row_lse, "INF",
                "LSE of a row that sees no key: +inf (default) or -inf");
  add_kernel_to(command);
}

Options AttentionFlags::options() const {
  Options options;
  options.causal = parse_causal(causal);
  options.scale = scale;
  options.kernel = kernel;
  options.num_threads = num_threads;
  if (!window.empty()) {
    const std::vector<int64_t> sides = parse_integers("--window", window, 2, 2);
    options.window_left = sides[0];
    options.window_right = sides[1];
  }
  if (window_align == "top-left") {
    options.window_align = WindowAlign::kTopLeft;
  } else if (window_align == "bottom-right") {
    options.window_align = WindowAlign::kBottomRight;
  } else if (window_align != "auto") {
    throw UsageError("--window-align",
                     fmt::format("'{}'; accepted: auto, top-left, bottom-right", window_align));
  }
  if (empty_row_lse == "-inf") {
    options.empty_row_lse = EmptyRowLse::kNegativeInfinity;
  } else if (empty_row_lse != "+inf" && empty_row_lse != "inf") {
    throw UsageError("--empty-row-lse", fmt::format("'{}'; accepted: +inf, -inf", empty_row_lse));
  }
  return options;
}

}  // namespace tilefold::cli
