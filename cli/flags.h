// The options that several commands share, and how they become the library's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tilefold/tilefold.hpp>
#include <vector>

#include "cli/command_line.h"

namespace tilefold::cli {

/// What every command's --help ends with.
extern const char kExitCodesHelp[];

/// "cpu", "cuda" or "cuda:N"; "auto" is the first usable CUDA device, else the CPU.
/// \throws UsageError for anything else
Device parse_device(const std::string& text);
std::string device_text(Device device);
/// The device's entry in devices(); \throws Failure (library refused) where there is none or it is
/// unusable.
DeviceInfo require_device(Device device);

/// "float32", "float16", "bfloat16" (or f32, f16, bf16). \throws UsageError
DataType parse_data_type(const std::string& text);

/// --device
struct DeviceFlag {
  std::string text = "cpu";
  void add_to(Command* command, const char* default_text = "cpu");
  Device device() const { return parse_device(text); }
};

/// Mask, scale, empty rows, kernel and threads.
struct AttentionFlags {
  std::string causal = "none";
  std::string window;
  std::string window_align = "auto";
  std::optional<float> scale;
  std::string empty_row_lse = "+inf";
  std::string kernel;
  int num_threads = 0;

  void add_to(Command* command);
  /// Only --kernel and --threads.
  void add_kernel_to(Command* command);
  /// \throws Failure (library refused) if --kernel names none of this build
  void require_kernel() const;
  /// \throws UsageError
  Options options() const;
};

/// --threads
void add_threads_to(Command* command, int* num_threads);

/// Causal masks by name, in the order of the enum: "none", "top-left", "bottom-right".
Causal parse_causal(const std::string& text);
const char* causal_text(Causal causal);

/// Splits "1,8,-1" into integers. \throws UsageError naming `option`
std::vector<int64_t> parse_integers(const std::string& option, const std::string& text,
                                    size_t min_count, size_t max_count);

}  // namespace tilefold::cli
