// Problem -> kernel: the walk over the table, and its explanation.
#include "core/dispatch.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

namespace tilefold {

std::span<const KernelRow> kernel_table() {
  static const std::vector<KernelRow> table = [] {
    std::vector<KernelRow> rows;
    for (const auto family : {sm90_kernels(), sm80_kernels(), generic_kernels(), cpu_kernels()}) {
      rows.insert(rows.end(), family.begin(), family.end());
    }
    return rows;
  }();
  return table;
}

namespace {

tilefold_status find_device(const ForwardProblem& problem, const DeviceProperties** device) {
  if (problem.device_type == DeviceType::kCpu) {
    *device = &cpu_device();
    return TILEFOLD_OK;
  }
  Reason reason;
  *device = cuda_device(problem.device_id, &reason);
  if (*device == nullptr) return fail(TILEFOLD_ERROR_DEVICE, "q: %s", reason.text);
  if (!(*device)->usable) {
    return fail(TILEFOLD_ERROR_DEVICE, "q: it is on CUDA device %d, which cannot be used: %s",
                problem.device_id, (*device)->note);
  }
  return TILEFOLD_OK;
}

bool row_is_on(const KernelRow& row, const DeviceProperties& device) {
  return (std::strcmp(row.backend, "cpu") == 0) == (device.type == DeviceType::kCpu);
}

int preference(const KernelRow& row, const ForwardProblem& problem, const DeviceProperties& device,
               Reason* reason) {
  if (!row_is_on(row, device)) {
    reason->set("the tensors are on a %s device", device.type == DeviceType::kCpu ? "CPU" : "CUDA");
    return 0;
  }
  return row.preference(row, problem, device, reason);
}

const char* forced_name(const char* forced) {
  if (forced != nullptr) return forced;
  const char* environment = std::getenv("TILEFOLD_FORCE_KERNEL");
  return environment != nullptr && environment[0] != '\0' ? environment : nullptr;
}

// The problem with its addresses reduced to what rows may ask of them: alignment, and presence.
ForwardProblem without_addresses(const ForwardProblem& problem) {
  constexpr uintptr_t kAlignmentBytes = 256;
  ForwardProblem p = problem;
  const auto reduce = [](auto*& address) {
    if (address == nullptr) return;
    const uintptr_t low_bits = reinterpret_cast<uintptr_t>(address) % kAlignmentBytes;
    address =
        reinterpret_cast<std::remove_reference_t<decltype(address)>>(low_bits + kAlignmentBytes);
  };
  reduce(p.q);
  reduce(p.k);
  reduce(p.v);
  reduce(p.o);
  reduce(p.lse);
  return p;
}

// A thread's last choice. Most calls repeat the one before but for addresses, and asking all rows
// takes longer than the rest of a call does on the host.
struct LastChoice {
  ForwardProblem problem;
  const KernelRow* row = nullptr;
};
thread_local LastChoice last_choice;

// Names what no kernel could take, with the reason of the device's last row: the family's
// catch-all.
tilefold_status fail_unserved(const ForwardProblem& problem, const DeviceProperties& device) {
  Reason last;
  last.set("this build has no kernel for it");
  for (const KernelRow& row : kernel_table()) {
    if (row_is_on(row, device)) row.preference(row, problem, device, &last);
  }
  return fail(TILEFOLD_ERROR_UNSUPPORTED,
              "no kernel serves this problem (%s, D = %" PRId64 ", Dv = %" PRId64 ", Nq = %" PRId64
              ", Nk = %" PRId64 "): %s",
              dtype_name(problem.dtype), problem.head_dim, problem.head_dim_v, problem.seqlen_q,
              problem.seqlen_k, last.text);
}

}  // namespace

tilefold_status choose_kernel(const ForwardProblem& problem, const char* forced, Choice* choice) {
  *choice = Choice{};
  if (auto status = find_device(problem, &choice->device)) return status;
  const char* name = forced_name(forced);
  Reason reason;
  if (name != nullptr) {
    for (const KernelRow& row : kernel_table()) {
      if (std::strcmp(row.name, name) != 0) continue;
      if (preference(row, problem, *choice->device, &reason) <= 0) {
        return fail(TILEFOLD_ERROR_UNSUPPORTED, "kernel '%s' cannot serve this problem: %s", name,
                    reason.text);
      }
      choice->row = &row;
      return TILEFOLD_OK;
    }
    return fail(TILEFOLD_ERROR_INVALID_ARGUMENT,
                "kernel '%s' (from %s) is not in this build; tilefold_get_kernel_info() and "
                "`tilefold info --kernels` list the %d that are",
                name, forced != nullptr ? "options.kernel" : "TILEFOLD_FORCE_KERNEL",
                static_cast<int>(kernel_table().size()));
  }
  const ForwardProblem key = without_addresses(problem);
  if (last_choice.row != nullptr && last_choice.problem == key) {
    choice->row = last_choice.row;
    return TILEFOLD_OK;
  }
  int best = 0;
  for (const KernelRow& row : kernel_table()) {
    Reason unread;
    unread.wanted = false;
    const int wanted = preference(row, problem, *choice->device, &unread);
    if (wanted > best) {
      best = wanted;
      choice->row = &row;
    }
  }
  if (choice->row == nullptr) return fail_unserved(problem, *choice->device);
  last_choice = {key, choice->row};
  return TILEFOLD_OK;
}

tilefold_status explain_choice(const ForwardProblem& problem, const char* forced,
                               std::string* text) {
  Choice choice;
  const tilefold_status status = choose_kernel(problem, forced, &choice);
  if (status != TILEFOLD_OK && status != TILEFOLD_ERROR_UNSUPPORTED) return status;
  *text = choice.row != nullptr ? choice.row->name : "none";
  *text += '\n';
  if (choice.row == nullptr) *text += std::string(last_error()) + "\n";
  for (const KernelRow& row : kernel_table()) {
    Reason reason;
    const int wanted = preference(row, problem, *choice.device, &reason);
    *text += std::string(row.name) + ": ";
    if (&row == choice.row) {
      *text += forced_name(forced) != nullptr ? "chosen by name" : "chosen";
      if (wanted > 0) *text += ", preference " + std::to_string(wanted);
      if (reason.text[0] != '\0') *text += std::string(" (") + reason.text + ")";
    } else if (wanted > 0) {
      *text += "could serve, preference " + std::to_string(wanted);
      if (reason.text[0] != '\0') *text += std::string(" (") + reason.text + ")";
    } else {
      *text += reason.text;
    }
    *text += '\n';
  }
  return TILEFOLD_OK;
}

}  // namespace tilefold
