// The C interface over validation and dispatch.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "core/dispatch.h"
#include "core/growth.h"
#include "core/kernel.h"
#include "core/validate.h"

namespace tilefold {
namespace {

constexpr size_t kWorkspaceAlignment = 256;

// No exception may cross the C interface.
template <typename Function>
tilefold_status guarded(Function&& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return fail(TILEFOLD_ERROR_OUT_OF_MEMORY, "host memory for scratch could not be had");
  } catch (const std::exception& error) {
    return fail(TILEFOLD_ERROR_INTERNAL, "internal error: %s", error.what());
  } catch (...) {
    return fail(TILEFOLD_ERROR_INTERNAL, "internal error");
  }
}

// Answers in a struct of the caller's, which may be of an older or a newer header.
template <typename Info>
tilefold_status copy_out(const char* function, size_t first_bytes, const Info& value, Info* info) {
  if (info == nullptr) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "%s: info is NULL; a struct with its struct_bytes set is needed", function);
  }
  const size_t given = info->struct_bytes;
  if (given < first_bytes) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "%s: info->struct_bytes is %zu; set it to the struct's size, at least %zu",
                function, given, first_bytes);
  }
  write_known(value, given, info);
  return TILEFOLD_OK;
}

template <size_t kBytes>
void copy_text(char (&to)[kBytes], const char* from) {
  const size_t length = std::min(std::strlen(from), kBytes - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

// Validation, and the kernel that the options name: what all three calls on a problem begin with.
tilefold_status prepare(const DLTensor* q, const DLTensor* k, const DLTensor* v, const DLTensor* o,
                        const DLTensor* lse, const tilefold_options* options,
                        ForwardProblem* problem, const char** forced) {
  if (auto status = validate_forward(q, k, v, o, lse, options, problem)) return status;
  *forced = options != nullptr ? options->kernel : nullptr;
  return TILEFOLD_OK;
}

size_t workspace_bytes_of(const Choice& choice, const ForwardProblem& problem) {
  if (problem.writes_nothing() || choice.row->workspace_bytes == nullptr) return 0;
  return choice.row->workspace_bytes(*choice.row, problem, *choice.device);
}

tilefold_status check_workspace(const void* workspace, size_t given, size_t needed) {
  if (needed == 0) return TILEFOLD_OK;
  if (workspace == nullptr) {
    return fail(TILEFOLD_ERROR_WORKSPACE,
                "workspace is NULL; %zu bytes are needed (tilefold_forward_workspace_bytes() says "
                "how many)",
                needed);
  }
  if (given < needed) {
    return fail(TILEFOLD_ERROR_WORKSPACE,
                "workspace_bytes is %zu; %zu are needed (tilefold_forward_workspace_bytes() says "
                "how many)",
                given, needed);
  }
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return fail(TILEFOLD_ERROR_WORKSPACE, "workspace is at %p; it must be aligned to %zu bytes",
                workspace, kWorkspaceAlignment);
  }
  return TILEFOLD_OK;
}

}  // namespace
}  // namespace tilefold

using tilefold::Choice;
using tilefold::fail;
using tilefold::ForwardProblem;

extern "C" {

tilefold_status tilefold_options_init(tilefold_options* options, size_t struct_bytes) {
  if (options == nullptr) {
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "tilefold_options_init: options is NULL; a tilefold_options is needed");
  }
  using tilefold::kFirstOptionsBytes;
  using tilefold::kLargestOptionsBytes;
  if (struct_bytes < kFirstOptionsBytes || struct_bytes > kLargestOptionsBytes) {
    const bool small = struct_bytes < kFirstOptionsBytes;
    return fail(
        TILEFOLD_ERROR_INVALID_ARGUMENT,
        "tilefold_options_init: struct_bytes is %zu; it must be sizeof(tilefold_options), at "
        "%s %zu",
        struct_bytes, small ? "least" : "most", small ? kFirstOptionsBytes : kLargestOptionsBytes);
  }
  tilefold_options defaults = {};
  defaults.causal = TILEFOLD_CAUSAL_NONE;
  defaults.empty_row_lse = TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY;
  defaults.window_left = -1;
  defaults.window_right = -1;
  defaults.window_align = TILEFOLD_WINDOW_ALIGN_AUTO;
  std::memset(options, 0, struct_bytes);
  tilefold::write_known(defaults, struct_bytes, options);
  return TILEFOLD_OK;
}

tilefold_status tilefold_forward(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                 const DLTensor* o, const DLTensor* lse,
                                 const tilefold_options* options, void* workspace,
                                 size_t workspace_bytes, void* stream) {
  return tilefold::guarded([&]() -> tilefold_status {
    ForwardProblem problem;
    const char* forced = nullptr;
    if (auto status = tilefold::prepare(q, k, v, o, lse, options, &problem, &forced)) {
      return status;
    }
    Choice choice;
    if (auto status = tilefold::choose_kernel(problem, forced, &choice)) return status;
    if (problem.writes_nothing()) return TILEFOLD_OK;
    const size_t needed = tilefold::workspace_bytes_of(choice, problem);
    if (auto status = tilefold::check_workspace(workspace, workspace_bytes, needed)) return status;
    if (problem.device_type == tilefold::DeviceType::kCpu) {
      return choice.row->launch(*choice.row, problem, *choice.device, workspace, stream);
    }
    tilefold::CudaDeviceGuard guard(problem.device_id);
    if (!guard.ok()) {
      return fail(TILEFOLD_ERROR_CUDA, "CUDA device %d could not be made current",
                  problem.device_id);
    }
    return choice.row->launch(*choice.row, problem, *choice.device, workspace, stream);
  });
}

tilefold_status tilefold_forward_workspace_bytes(const DLTensor* q, const DLTensor* k,
                                                 const DLTensor* v, const DLTensor* o,
                                                 const DLTensor* lse,
                                                 const tilefold_options* options,
                                                 size_t* workspace_bytes) {
  return tilefold::guarded([&]() -> tilefold_status {
    if (workspace_bytes == nullptr) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "tilefold_forward_workspace_bytes: workspace_bytes is NULL; a size_t to write is "
                  "needed");
    }
    ForwardProblem problem;
    const char* forced = nullptr;
    if (auto status = tilefold::prepare(q, k, v, o, lse, options, &problem, &forced)) {
      return status;
    }
    Choice choice;
    if (auto status = tilefold::choose_kernel(problem, forced, &choice)) return status;
    *workspace_bytes = tilefold::workspace_bytes_of(choice, problem);
    return TILEFOLD_OK;
  });
}

tilefold_status tilefold_explain(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                 const DLTensor* o, const DLTensor* lse,
                                 const tilefold_options* options, char* text, size_t text_bytes,
                                 size_t* text_needed) {
  return tilefold::guarded([&]() -> tilefold_status {
    if (text == nullptr && text_bytes != 0) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "tilefold_explain: text is NULL, but text_bytes is %zu; pass 0 to ask for the "
                  "size alone",
                  text_bytes);
    }
    ForwardProblem problem;
    const char* forced = nullptr;
    if (auto status = tilefold::prepare(q, k, v, o, lse, options, &problem, &forced)) {
      return status;
    }
    std::string whole;
    if (auto status = tilefold::explain_choice(problem, forced, &whole)) return status;
    if (text_needed != nullptr) *text_needed = whole.size() + 1;
    if (text_bytes > 0) {
      const size_t length = std::min(whole.size(), text_bytes - 1);
      std::memcpy(text, whole.data(), length);
      text[length] = '\0';
    }
    return TILEFOLD_OK;
  });
}

int32_t tilefold_device_count(void) { return 1 + tilefold::cuda_device_count(); }

tilefold_status tilefold_get_device_info(int32_t index, tilefold_device_info* info) {
  return tilefold::guarded([&]() -> tilefold_status {
    const int32_t count = tilefold_device_count();
    if (index < 0 || index >= count) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "tilefold_get_device_info: index is %d; accepted: 0 to %d", index, count - 1);
    }
    tilefold::Reason reason;
    const tilefold::DeviceProperties* device =
        index == 0 ? &tilefold::cpu_device() : tilefold::cuda_device(index - 1, &reason);
    if (device == nullptr) return fail(TILEFOLD_ERROR_DEVICE, "%s", reason.text);
    tilefold_device_info value = {};
    value.device.device_type = index == 0 ? kDLCPU : kDLCUDA;
    value.device.device_id = device->id;
    value.compute_capability = device->compute_capability;
    value.num_multiprocessors = device->num_multiprocessors;
    value.shared_memory_bytes = device->shared_memory_bytes;
    value.l2_bytes = device->l2_bytes;
    value.usable = device->usable ? 1 : 0;
    tilefold::copy_text(value.name, device->name);
    tilefold::copy_text(value.note, device->note);
    return tilefold::copy_out("tilefold_get_device_info", tilefold::kFirstDeviceInfoBytes, value,
                              info);
  });
}

int32_t tilefold_kernel_count(void) {
  return static_cast<int32_t>(tilefold::kernel_table().size());
}

tilefold_status tilefold_get_kernel_info(int32_t index, tilefold_kernel_info* info) {
  return tilefold::guarded([&]() -> tilefold_status {
    const auto table = tilefold::kernel_table();
    if (index < 0 || index >= static_cast<int32_t>(table.size())) {
      return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "tilefold_get_kernel_info: index is %d; accepted: 0 to %d", index,
                  static_cast<int>(table.size()) - 1);
    }
    const tilefold::KernelRow& row = table[index];
    tilefold_kernel_info value = {};
    tilefold::copy_text(value.name, row.name);
    tilefold::copy_text(value.backend, row.backend);
    tilefold::copy_text(value.dtypes, row.dtypes);
    value.head_dim = row.head_dim;
    value.head_dim_v = row.head_dim_v;
    value.block_m = row.block_m;
    value.block_n = row.block_n;
    value.num_stages = row.num_stages;
    value.num_threads = row.num_threads;
    value.shared_memory_bytes = row.shared_memory_bytes;
    return tilefold::copy_out("tilefold_get_kernel_info", tilefold::kFirstKernelInfoBytes, value,
                              info);
  });
}

}  // extern "C"
