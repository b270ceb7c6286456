// `tilefold info`: the version, the devices and the kernels of this build.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/device_memory.h"
#include "cli/flags.h"
#include "cli/io/json_writer.h"
#include "cli/io/text.h"
#include "cli/terminal.h"

namespace tilefold::cli {
namespace {

struct InfoFlags {
  bool kernels = false;
  bool json = false;
};

std::string bytes_text(int64_t bytes) {
  if (bytes <= 0) return "-";
  if (bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

std::string number_or(int64_t value, const char* otherwise) {
  return value == 0 ? otherwise : std::to_string(value);
}

void print_json() {
  JsonWriter out;
  out.field("version", version());
  out.field("cuda", cuda::available());
  out.begin_list("devices");
  for (const DeviceInfo& info : devices()) {
    out.begin_object();
    out.field("device", device_text(info.device));
    out.field("name", info.name);
    out.field("compute_capability", info.compute_capability);
    out.field("multiprocessors", info.num_multiprocessors);
    out.field("shared_memory_bytes", info.shared_memory_bytes);
    out.field("l2_bytes", info.l2_bytes);
    out.field("usable", info.usable);
    out.field("note", info.note);
    out.end();
  }
  out.end();
  out.begin_list("kernels");
  for (const KernelInfo& info : kernels()) {
    out.begin_object();
    out.field("name", info.name);
    out.field("backend", info.backend);
    out.field("dtypes", info.dtypes);
    out.field("head_dim", info.head_dim);
    out.field("head_dim_v", info.head_dim_v);
    out.field("block_m", info.block_m);
    out.field("block_n", info.block_n);
    out.field("stages", info.num_stages);
    out.field("threads", info.num_threads);
    out.field("shared_memory_bytes", info.shared_memory_bytes);
    out.end();
  }
  fmt::print("{}", out.finish());
}

void run_info(const InfoFlags& flags) {
  if (flags.json) return print_json();
  using Align = Table::Align;
  fmt::print("{} {}, {}\n\n", bold("tilefold"), version(),
             cuda::available() ? "built with CUDA" : "built without CUDA");
  Table device_table({{"device"},
                      {"name"},
                      {"threads / SMs", Align::kRight},
                      {"compute", Align::kRight},
                      {"cache", Align::kRight},
                      {"state"}});
  for (const DeviceInfo& info : devices()) {
    device_table.add(
        {device_text(info.device), info.name, std::to_string(info.num_multiprocessors),
         info.compute_capability == 0
             ? "-"
             : fmt::format("{}.{}", info.compute_capability / 10, info.compute_capability % 10),
         bytes_text(info.l2_bytes),
         (info.usable ? "usable" : "not usable") + (info.note.empty() ? "" : ": " + info.note)});
  }
  fmt::print("{}", device_table.text());
  const std::vector<KernelInfo> all = kernels();
  if (!flags.kernels) {
    fmt::print("\n{}; `tilefold info --kernels` lists them\n",
               counted(int64_t(all.size()), "kernel"));
    return;
  }
  Table kernel_table({{"kernel"},
                      {"back end"},
                      {"dtypes"},
                      {"D <=", Align::kRight},
                      {"Dv <=", Align::kRight},
                      {"tile", Align::kRight},
                      {"stages", Align::kRight},
                      {"threads", Align::kRight},
                      {"shared memory", Align::kRight}});
  for (const KernelInfo& info : all) {
    kernel_table.add(
        {info.name, info.backend, info.dtypes, number_or(info.head_dim, "any"),
         number_or(info.head_dim_v, "any"),
         info.block_m == 0 ? "at run time" : fmt::format("{} x {}", info.block_m, info.block_n),
         number_or(info.num_stages, "-"), number_or(info.num_threads, "-"),
         bytes_text(info.shared_memory_bytes)});
  }
  fmt::print("\n{}", kernel_table.text());
}

}  // namespace

Command make_info_command() {
  const auto flags = std::make_shared<InfoFlags>();
  Command command("info", "Version, instruction set, devices and kernels of this build");
  command.flag("--kernels", &flags->kernels, "List the kernels, in the order dispatch tries them");
  command.flag("--json", &flags->json, "Everything as JSON");
  command.footer(std::string(R"(Examples:
  tilefold info
  tilefold info --kernels

)") + kExitCodesHelp);
  command.runs([flags] { run_info(*flags); });
  return command;
}

}  // namespace tilefold::cli
