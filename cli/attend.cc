// `tilefold attend`: attention of tensors in files. `tilefold picture`: one head of it, drawn.
#include <fmt/core.h>

#include <charconv>
#include <cstdio>
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

namespace tilefold::cli {
namespace {

struct AttendFlags {
  InputFlags inputs;
  AttentionFlags attention;
  DeviceFlag device;
  std::string out;
  std::string lse_out;
  bool explain = false;
};

// A shape as the output files have it: the axes that the inputs lacked dropped again.
std::vector<int64_t> drop_added_axes(std::vector<int64_t> shape, size_t rank, AxisOrder order,
                                     bool is_lse) {
  if (rank <= 3) shape.erase(shape.begin());  // batch
  if (rank == 2) {                            // heads: innermost of N, H where the order has it so
    shape.erase(shape.begin() + (order == AxisOrder::kBnhd && !is_lse ? 1 : 0));
  }
  return shape;
}

// An output tensor on its way to a file.
struct Result {
  TensorToWrite what;
  std::vector<std::byte> bytes;
};

void write_npy(OutputFile* file, const Result& result) {
  file->write(npy_header(result.what.type, result.what.shape));
  file->write(result.bytes);
}

void write_safetensors(OutputFile* file, const std::vector<const Result*>& results) {
  std::vector<TensorToWrite> headers;
  headers.reserve(results.size());
  for (const Result* result : results) headers.push_back(result->what);
  file->write(safetensors_header(headers, {{"made_by", "tilefold " + std::string(version())}}));
  for (const Result* result : results) file->write(result->bytes);
}

// An output must not take the place of what it is worked out from.
void refuse_input_as_output(const char* option, const std::string& out, const InputFlags& inputs) {
  for (const std::string& input : inputs.files) {
    if (!out.empty() && same_target(out, input)) {
      throw UsageError(option, fmt::format("'{}' is an input file; accepted: another name", out));
    }
  }
}

bool is_npy_path(const std::string& path) { return path.ends_with(".npy"); }

// Output names whose form is wrong are refused before any work.
void check_output_names(const AttendFlags& flags) {
  const auto known = [](const std::string& path) {
    return path.empty() || is_npy_path(path) || path.ends_with(".safetensors");
  };
  if (!known(flags.out)) {
    throw UsageError(
        "--out", fmt::format("'{}'; accepted: a name ending in .safetensors or .npy", flags.out));
  }
  if (!known(flags.lse_out)) {
    throw UsageError("--lse", fmt::format("'{}'; accepted: a name ending in .safetensors "
                                          "or .npy",
                                          flags.lse_out));
  }
  if (!flags.out.empty() && !flags.lse_out.empty() && same_target(flags.out, flags.lse_out)) {
    throw UsageError("--lse", "it names the same file as --out");
  }
  refuse_input_as_output("--out", flags.out, flags.inputs);
  refuse_input_as_output("--lse", flags.lse_out, flags.inputs);
}

void run_attend(const AttendFlags& flags) {
  check_output_names(flags);
  const Options options = flags.attention.options();
  const AxisOrder order = flags.inputs.axis_order();
  const Device device = flags.device.device();
  require_device(device);
  const Inputs inputs = read_inputs(flags.inputs);
  if (is_npy_path(flags.out) && inputs.q.type() == DataType::kBFloat16) {
    throw UsageError(
        "--out", fmt::format("'{}': o is bfloat16, which .npy cannot name; accepted: .safetensors, "
                             "or --dtype float32",
                             flags.out));
  }
  // Opened before the work: an unwritable place is known at once.
  std::optional<OutputFile> out_file;
  std::optional<OutputFile> lse_file;
  if (!flags.out.empty()) out_file.emplace(flags.out);
  if (!flags.lse_out.empty()) lse_file.emplace(flags.lse_out);

  DeviceProblem problem(inputs.q, inputs.k, inputs.v, device, order);
  const Explanation explanation = problem.explain(options);
  if (flags.explain) fmt::print("{}", explanation.text);
  Stopwatch stopwatch(device);
  stopwatch.start();
  problem.forward(options);
  const double ms = stopwatch.stop_ms();

  const int64_t batch = inputs.q.shape()[0], heads = inputs.q.shape()[1];
  const int64_t rows = inputs.q.shape()[2], columns = inputs.v.shape()[3];
  std::vector<int64_t> o_shape = {batch, heads, rows, columns};
  if (order == AxisOrder::kBnhd) std::swap(o_shape[1], o_shape[2]);
  const Result o = {{"o", inputs.q.type(), drop_added_axes(o_shape, inputs.rank, order, false)},
                    problem.o_bytes()};
  const Result lse = {
      {"lse", DataType::kFloat32, drop_added_axes({batch, heads, rows}, inputs.rank, order, true)},
      problem.lse_bytes()};
  if (out_file) {
    if (is_npy_path(flags.out)) {
      write_npy(&*out_file, o);
    } else if (lse_file) {
      write_safetensors(&*out_file, {&o});
    } else {
      write_safetensors(&*out_file, {&o, &lse});
    }
  }
  if (lse_file) {
    is_npy_path(flags.lse_out) ? write_npy(&*lse_file, lse) : write_safetensors(&*lse_file, {&lse});
  }
  if (out_file) out_file->commit();
  if (lse_file) lse_file->commit();

  std::string written;
  if (out_file) {
    const bool both = !is_npy_path(flags.out) && !lse_file;
    written += fmt::format("{} ({})", flags.out, both ? "o, lse" : "o");
  }
  if (lse_file) written += fmt::format("{}{} (lse)", out_file ? ", " : "", flags.lse_out);
  fmt::print(stderr, "q {}, k {}, v {} {} -> o {}: {} in {} on {}; {}\n",
             shape_text(inputs.q.shape()), shape_text(inputs.k.shape()),
             shape_text(inputs.v.shape()), to_string(inputs.q.type()), shape_text(o.what.shape),
             explanation.kernel, time_text(ms), device_text(device),
             written.empty() ? "nothing written (--out names a file)" : "wrote " + clean(written));
}

struct PictureFlags {
  InputFlags inputs;
  AttentionFlags attention;
  DeviceFlag device;
  std::string out;
  int64_t batch = 0;
  int64_t head = -1;
  std::string rows;
  std::string keys;
};

// "100:200" -> [100, 200), within `size`.
std::pair<int64_t, int64_t> parse_range(const std::string& option, const std::string& text,
                                        int64_t size) {
  if (text.empty()) return {0, size};
  const char* const end = text.data() + text.size();
  int64_t first = 0, last = 0;
  const auto [colon, error] = std::from_chars(text.data(), end, first);
  bool is_range = error == std::errc() && colon != end && *colon == ':';
  if (is_range) {
    const auto [at, second_error] = std::from_chars(colon + 1, end, last);
    is_range = second_error == std::errc() && at == end;
  }
  if (!is_range || first < 0 || first >= last || last > size) {
    throw UsageError(option, fmt::format("'{}'; accepted: A:B with 0 <= A < B <= {}", text, size));
  }
  return {first, last};
}

void run_picture(const PictureFlags& flags) {
  if (!flags.out.ends_with(".png")) {
    throw UsageError("--out", fmt::format("'{}'; accepted: a name ending in .png", flags.out));
  }
  refuse_input_as_output("--out", flags.out, flags.inputs);
  Options options = flags.attention.options();
  const Device device = flags.device.device();
  require_device(device);
  const Inputs inputs = read_inputs(flags.inputs);
  const Sample sample = describe_sample(inputs);
  const int64_t head = flags.head >= 0 ? flags.head : sample.head;
  if (inputs.q.num_elems() == 0 || inputs.k.num_elems() == 0) {
    throw UsageError("files", "there is nothing to draw: q or k is empty");
  }
  if (const int64_t heads = inputs.q.shape()[1]; head >= heads) {
    throw UsageError("--head", fmt::format("{}; q has {}; accepted: 0 to {}", head,
                                           counted(heads, "head"), heads - 1));
  }
  if (const int64_t batch = inputs.q.shape()[0]; flags.batch >= batch) {
    throw UsageError("--batch", fmt::format("{}; q's batch is {}; accepted: 0 to {}", flags.batch,
                                            batch, batch - 1));
  }
  const auto rows = parse_range("--rows", flags.rows, inputs.q.shape()[2]);
  const auto keys = parse_range("--keys", flags.keys, inputs.k.shape()[2]);
  OutputFile file(flags.out);
  DeviceProblem problem(inputs.q, inputs.k, inputs.v, device);
  problem.forward(options);
  const std::vector<std::byte> lse_bytes = problem.lse_bytes();
  const std::span lse(reinterpret_cast<const float*>(lse_bytes.data()),
                      lse_bytes.size() / sizeof(float));
  MapRequest request;
  request.batch = flags.batch;
  request.head = head;
  request.first_row = rows.first;
  request.num_rows = rows.second - rows.first;
  request.first_key = keys.first;
  request.num_keys = keys.second - keys.first;
  const AttentionMap map = attention_map(inputs.q, inputs.k, lse, options, request);
  const Picture picture = draw_sample(sample, map, head);
  file.write(encode_png(picture));
  file.commit();
  fmt::print(stderr, "wrote {}: head {}, {} x {} pixels\n", clean(flags.out), head, picture.width(),
             picture.height());
}

}  // namespace

Command make_attend_command() {
  const auto flags = std::make_shared<AttendFlags>();
  Command command("attend", "Attention of q, k and v from files");
  flags->inputs.add_to(&command);
  command.text("-o,--out", &flags->out, "FILE",
               "Where o goes: .safetensors (with lse, unless --lse names a file) or .npy");
  command.text("--lse", &flags->lse_out, "FILE", "Where lse goes: .npy or .safetensors");
  flags->attention.add_to(&command);
  flags->device.add_to(&command);
  command.flag("--explain", &flags->explain, "Print which kernel runs, and why not the others");
  command.footer(std::string(R"(Examples:
  tilefold attend qkv.safetensors -o out.safetensors --causal top-left
  tilefold attend q.npy k.npy v.npy -o o.npy --lse lse.npy --window 256,0
  tilefold attend cache.safetensors --k-key layer0.k --v-key layer0.v --layout bnhd \
      --causal bottom-right --device cuda:0 --explain -o out.safetensors

Shapes: q [B, Hq, Nq, D], k [B, Hkv, Nk, D], v [B, Hkv, Nk, Dv]; with --layout bnhd the
middle axes are swapped. Files of rank 3 have a batch of 1, of rank 2 also one head; o and
lse are written with the inputs' rank. float32, float16 and bfloat16 (.safetensors only).

)") + kExitCodesHelp);
  command.runs([flags] { run_attend(*flags); });
  return command;
}

Command make_picture_command() {
  const auto flags = std::make_shared<PictureFlags>();
  Command command("picture", "Draw the attention pattern of one head as a PNG");
  flags->inputs.add_to(&command);
  command.text("-o,--out", &flags->out, "FILE", "The PNG to write, .png");
  command.required();
  constexpr int64_t kMostIndex = std::numeric_limits<int32_t>::max();
  command.integer<int64_t>("--head", &flags->head, 0, kMostIndex,
                           "Query head (default: the file's own, else 0)");
  command.integer<int64_t>("--batch", &flags->batch, 0, kMostIndex, "Batch entry (default 0)");
  command.text("--rows", &flags->rows, "A:B", "The query rows to draw (default: all)");
  command.text("--keys", &flags->keys, "A:B", "The keys to draw (default: all)");
  flags->attention.add_to(&command);
  flags->device.add_to(&command);
  command.footer(std::string(R"(Examples:
  tilefold picture qkv.safetensors -o head3.png --head 3 --causal top-left
  tilefold picture samples/smollm2_layer17.safetensors -o verse.png --causal top-left \
      --rows 0:60 --keys 0:60

Each pixel is exp(scale q.k - lse), worked out from q, k and the LSE that attention gave;
long sequences are pooled by their maximum. Files with `tokens` in their metadata (a JSON
list of strings) get labelled axes.

)") + kExitCodesHelp);
  command.runs([flags] { run_picture(*flags); });
  return command;
}

}  // namespace tilefold::cli
