// `tilefold demo`: attention of a real model's layer, checked, timed and drawn.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/attention_map.h"
#include "cli/commands.h"
#include "cli/device_problem.h"
#include "cli/failure.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/io/files.h"
#include "cli/io/png.h"
#include "cli/io/tensor_file.h"
#include "cli/io/text.h"
#include "cli/sample.h"
#include "cli/terminal.h"
#include "reference.h"

namespace tilefold::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSampleName = "smollm2_layer17.safetensors";
constexpr const char* kPictureName = "attention.png";
constexpr const char* kIndent = "  ";

struct DemoFlags {
  std::string sample;
  std::string out = "build/demo";
  DeviceFlag device;
  int num_threads = 0;
  int warm_ups = 3;
  int repetitions = 21;
};

// The sample that is installed beside the program, or that lies in the source tree.
std::string default_sample() {
  std::error_code error;
  std::vector<fs::path> places;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) places.push_back(program.parent_path() / "../share/tilefold" / kSampleName);
  places.push_back(fs::path(TILEFOLD_CLI_SAMPLE_DIR) / kSampleName);
  places.push_back(fs::path("samples") / kSampleName);
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, error)) return place.lexically_normal().string();
  }
  fail(ExitCode::kBadInput,
       "{}: the sample was not found beside the program nor in {}; --sample "
       "names one",
       kSampleName, TILEFOLD_CLI_SAMPLE_DIR);
}

// One line of the demo's table.
struct Run {
  Device device;
  DataType type;
};

// The stored type first; then what else the device is worth showing with.
std::vector<Run> runs_on(Device device) {
  if (device.type == kDLCPU) {
    return {
        {device, DataType::kFloat32}, {device, DataType::kFloat16}, {device, DataType::kBFloat16}};
  }
  return {{device, DataType::kFloat16},
          {device, DataType::kBFloat16},
          {Device::cpu(), DataType::kFloat32}};
}

struct Outcome {
  std::string kernel;
  std::string reason;
  double median_ms = 0;
  double gflops = 0;
  reference::Comparison comparison;
  std::vector<std::byte> lse;
};

Outcome run(const DemoFlags& flags, const Inputs& inputs, const Options& options, const Run& run) {
  std::vector<std::shared_ptr<FileBytes>> memory;
  const ConstTensor q = convert(inputs.q, run.type, &memory);
  const ConstTensor k = convert(inputs.k, run.type, &memory);
  const ConstTensor v = convert(inputs.v, run.type, &memory);
  DeviceProblem problem(q, k, v, run.device);
  Outcome outcome;
  const Explanation explanation = problem.explain(options);
  outcome.kernel = explanation.kernel;
  for (const Explanation::Row& row : explanation.rows) {
    if (row.kernel == explanation.kernel) outcome.reason = row.reason;
  }
  outcome.median_ms = median(problem.time_ms(options, flags.warm_ups, flags.repetitions));
  outcome.gflops = forward_flops(q, v, options) / outcome.median_ms * 1e-6;

  // The reference sees the inputs as converted: the error is attention's alone.
  std::vector<std::byte> o = problem.o_bytes();
  outcome.lse = problem.lse_bytes();
  const tilefold_options c_options = options.c_options();
  const reference::Result expected =
      reference::attention(q.dl_tensor(), k.dl_tensor(), v.dl_tensor(), &c_options);
  const Tensor o_on_host(o.data(), run.type, problem.o().shape());
  const Tensor lse_on_host(outcome.lse.data(), DataType::kFloat32, problem.lse().shape());
  const DLTensor lse_dl = lse_on_host.dl_tensor();
  outcome.comparison = reference::compare(expected, o_on_host.dl_tensor(), &lse_dl);
  return outcome;
}

void print_field(const char* name, const std::string& text) {
  fmt::print("{}{} {}\n", kIndent, dim(fmt::format("{:<8}", name)), text);
}

void print_sample(const Sample& sample, const Inputs& inputs, const std::string& path) {
  const int64_t heads = inputs.q.shape()[1];
  const int64_t heads_kv = inputs.k.shape()[1];
  std::string model = sample.model.empty() ? clean(path) : sample.model;
  if (!sample.layer.empty()) {
    model += ", layer " + sample.layer;
    if (!sample.num_layers.empty()) model += " of " + sample.num_layers;
  }
  model += heads == heads_kv ? ": " + counted(heads, "head")
                             : fmt::format(": {} query heads share {}", heads,
                                           counted(heads_kv, "key/value head"));
  print_field("model", model);
  if (!sample.title.empty()) {
    print_field("text", fmt::format("{}, {}", sample.title, counted(inputs.q.shape()[2], "token")));
  }
  print_field("shapes", fmt::format("q {}, k {}, v {} ({})", shape_text(inputs.q.shape()),
                                    shape_text(inputs.k.shape()), shape_text(inputs.v.shape()),
                                    to_string(inputs.q.type())));
  print_field("mask", sample.causal == "none" ? "none" : "causal, " + sample.causal);
}

// The largest square from the text's beginning whose map fits the terminal.
void print_terminal_map(const Inputs& inputs, const Sample& sample, std::span<const float> lse,
                        const Options& options) {
  constexpr int kLabelColumns = 16;
  constexpr int kColumnsPerKey = 2;
  constexpr int64_t kMostTokens = 40;
  const int64_t fitting = (std::min(terminal_columns(), 120) - kLabelColumns) / kColumnsPerKey;
  MapRequest request;
  request.head = sample.head;
  request.num_rows = std::min({inputs.q.shape()[2], fitting, kMostTokens});
  request.num_keys = std::min({inputs.k.shape()[2], fitting, kMostTokens});
  if (request.num_rows <= 0 || request.num_keys <= 0) return;
  // Tokens, or numbers where there are none.
  const auto names = [](std::vector<std::string> tokens, int64_t count) {
    const auto most = static_cast<size_t>(count);
    while (tokens.size() < most) tokens.push_back(std::to_string(tokens.size()));
    tokens.resize(most);
    return tokens;
  };
  const AttentionMap map = attention_map(inputs.q, inputs.k, lse, options, request);
  fmt::print("{}", terminal_map(map, names(sample.row_tokens, request.num_rows),
                                names(sample.key_tokens, request.num_keys), kIndent));
}

void run_demo(const DemoFlags& flags) {
  const Device device = flags.device.device();
  const DeviceInfo info = require_device(device);
  InputFlags input_flags;
  input_flags.files = {flags.sample.empty() ? default_sample() : flags.sample};
  const Inputs inputs = read_inputs(input_flags);
  const Sample sample = describe_sample(inputs);
  Options options;
  options.causal = parse_causal(sample.causal);
  options.num_threads = flags.num_threads;
  std::error_code error;
  fs::create_directories(flags.out, error);
  if (error) fail(ExitCode::kIo, "{}: cannot be made: {}", flags.out, error.message());
  OutputFile picture_file((fs::path(flags.out) / kPictureName).string());

  fmt::print("\n{} {}: exact attention, softmax(scale Q K^T + mask) V\n\n", bold("tilefold"),
             version());
  print_sample(sample, inputs, input_flags.files[0]);
  print_field("device", fmt::format("{}: {}{}", device_text(device), info.name,
                                    info.note.empty() ? "" : ", " + info.note));
  std::fflush(stdout);

  using Align = Table::Align;
  Table table({{"dtype"},
               {"kernel"},
               {"max error", Align::kRight},
               {"relative error", Align::kRight},
               {"of the bound", Align::kRight},
               {"time", Align::kRight},
               {"GFLOP/s", Align::kRight}});
  std::optional<Outcome> first;
  int wrong = 0;
  for (const Run& what : runs_on(device)) {
    Outcome outcome = run(flags, inputs, options, what);
    if (!outcome.comparison.ok) ++wrong;
    table.add({to_string(what.type), outcome.kernel,
               fmt::format("{:.1e}", outcome.comparison.max_abs_error),
               fmt::format("{:.1e}", outcome.comparison.relative_frobenius),
               outcome.comparison.ok ? fmt::format("{:.0f} %", 100 * outcome.comparison.worst_ratio)
                                     : "WRONG",
               time_text(outcome.median_ms), short_number(outcome.gflops)});
    if (!first) first = std::move(outcome);
  }
  print_field("kernel", fmt::format("{} ({})", first->kernel, first->reason));
  fmt::print("\n{}{}\n", kIndent, bold("Against a float64 reference"));
  fmt::print("{}", table.text(kIndent));
  fmt::print(
      "{}{}\n", kIndent,
      dim(fmt::format("relative error: Frobenius norm; bound: what rounding can cause at most; "
                      "time: median of {}",
                      flags.repetitions)));

  const std::span lse(reinterpret_cast<const float*>(first->lse.data()),
                      first->lse.size() / sizeof(float));
  fmt::print("\n{}{}\n", kIndent, bold(fmt::format("What head {} looks at", sample.head)));
  if (!sample.note.empty()) fmt::print("{}{}\n", kIndent, sample.note);
  fmt::print("\n");
  print_terminal_map(inputs, sample, lse, options);

  MapRequest request;
  request.head = sample.head;
  request.num_rows = inputs.q.shape()[2];
  request.num_keys = inputs.k.shape()[2];
  const AttentionMap map = attention_map(inputs.q, inputs.k, lse, options, request);
  picture_file.write(encode_png(draw_sample(sample, map, sample.head)));
  picture_file.commit();
  fmt::print("\n{}The whole text as a picture: {}\n\n", kIndent, bold(clean(picture_file.path())));
  if (wrong > 0) {
    fail(ExitCode::kCheckFailed,
         "{} results differ from the float64 reference by more than "
         "rounding explains",
         wrong);
  }
}

}  // namespace

Command make_demo_command() {
  const auto flags = std::make_shared<DemoFlags>();
  Command command("demo", "Run the sample: a real model's attention, checked, timed and drawn");
  command.text("--sample", &flags->sample, "FILE",
               "A .safetensors with q, k, v (default: the sample that comes with tilefold)");
  command.text("--out", &flags->out, "FOLDER", "Folder of the picture (default build/demo)");
  flags->device.add_to(&command, "auto");
  add_threads_to(&command, &flags->num_threads);
  command.integer("--reps", &flags->repetitions, 1, 100'000, "Timed calls (default 21)");
  command.footer(std::string(R"(Examples:
  tilefold demo
  tilefold demo --device cpu --out /tmp/demo

)") + kExitCodesHelp);
  command.runs([flags] { run_demo(*flags); });
  return command;
}

}  // namespace tilefold::cli
