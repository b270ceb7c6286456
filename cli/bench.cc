// `tilefold bench`: time, throughput and kernel over a sweep of shapes.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/device_problem.h"
#include "cli/failure.h"
#include "cli/flags.h"
#include "cli/io/files.h"
#include "cli/io/json_writer.h"
#include "cli/io/tensor_file.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "reference.h"

namespace tilefold::cli {
namespace {

struct BenchFlags {
  DeviceFlag device;
  AttentionFlags attention;  // --kernel and --threads only
  std::string seqlens;
  std::string head_dims = "64,128";
  std::vector<std::string> causal = {"none", "top-left"};
  std::vector<std::string> dtypes;
  std::vector<std::string> shapes;
  int64_t tokens = 0;
  int64_t hidden = 0;
  int warm_ups = 3;
  int repetitions = 0;
  double budget_s = 1.0;
  std::string csv;
  std::string json;
};

struct BenchPoint {
  DataType type = DataType::kFloat32;
  Causal causal = Causal::kNone;
  int64_t batch = 0, heads = 0, heads_kv = 0, seqlen_q = 0, seqlen_k = 0;
  int64_t head_dim = 0, head_dim_v = 0;

  std::string text() const {
    return fmt::format("N {} D {} {} {}", seqlen_q, head_dim, to_string(type), causal_text(causal));
  }
};

struct Measurement {
  BenchPoint point;
  std::string kernel;
  int repetitions = 0;
  double median_ms = 0, min_ms = 0, max_ms = 0;
  double flops = 0;  // per call
  double bytes = 0;  // per call

  double gflops() const { return flops / median_ms * 1e-6; }
  double gigabytes_per_s() const { return bytes / median_ms * 1e-6; }
};

// The sweep: explicit shapes, or N x D with B * N and H * D held as the FlashAttention papers do.
std::vector<BenchPoint> sweep(const BenchFlags& flags, Device device) {
  const bool gpu = device.type != kDLCPU;
  const int64_t tokens = flags.tokens > 0 ? flags.tokens : gpu ? 16384 : 4096;
  const int64_t hidden = flags.hidden > 0 ? flags.hidden : gpu ? 2048 : 512;
  std::vector<std::string> types = flags.dtypes;
  if (types.empty()) {
    types =
        gpu ? std::vector<std::string>{"float16", "bfloat16"} : std::vector<std::string>{"float32"};
  }
  const std::string seqlens = !flags.seqlens.empty() ? flags.seqlens
                              : gpu                  ? "512,1024,2048,4096,8192,16384"
                                                     : "512,1024,2048,4096";
  std::vector<BenchPoint> shapes;
  constexpr size_t kMostValues = 64;
  for (const std::string& text : flags.shapes) {
    const std::vector<int64_t> n = parse_integers("--shape", text, 6, 7);
    BenchPoint point;
    point.batch = n[0], point.heads = n[1], point.heads_kv = n[2];
    point.seqlen_q = n[3], point.seqlen_k = n[4], point.head_dim = n[5];
    point.head_dim_v = n.size() == 7 ? n[6] : n[5];
    shapes.push_back(point);
  }
  if (shapes.empty()) {
    for (const int64_t head_dim : parse_integers("--head-dims", flags.head_dims, 1, kMostValues)) {
      for (const int64_t seqlen : parse_integers("--seqlens", seqlens, 1, kMostValues)) {
        for (const auto& [option, value] :
             {std::pair("--seqlens", seqlen), std::pair("--head-dims", head_dim)}) {
          if (value < 1) throw UsageError(option, fmt::format("'{}'; accepted: 1 and more", value));
        }
        BenchPoint point;
        point.batch = std::max<int64_t>(1, tokens / seqlen);
        point.heads = point.heads_kv = std::max<int64_t>(1, hidden / head_dim);
        point.seqlen_q = point.seqlen_k = seqlen;
        point.head_dim = point.head_dim_v = head_dim;
        shapes.push_back(point);
      }
    }
  }
  std::vector<BenchPoint> points;
  for (const std::string& type : types) {
    for (const std::string& causal : flags.causal) {
      for (BenchPoint point : shapes) {
        for (const int64_t extent : {point.batch, point.heads, point.heads_kv, point.seqlen_q,
                                     point.seqlen_k, point.head_dim, point.head_dim_v}) {
          if (extent < 1) throw UsageError("--shape", "extents of a bench begin at 1");
        }
        point.type = parse_data_type(type);
        point.causal = parse_causal(causal);
        points.push_back(point);
      }
    }
  }
  return points;
}

// Normally distributed inputs on the host: a table of random numbers, laid in blocks that each
// begin at another place of it.
class RandomInput {
 public:
  RandomInput(DataType type, const Extents& shape, uint64_t seed)
      : bytes_(static_cast<size_t>(ConstTensor(nullptr, type, shape).num_elems() *
                                   size_in_bytes(type))),
        tensor_(bytes_.span().data(), type, shape) {
    constexpr size_t kTableElems = 1 << 14;
    std::vector<std::byte> table(kTableElems * static_cast<size_t>(size_in_bytes(type)));
    for (size_t i = 0; i < kTableElems; ++i) {
      store_number(type, table.data() + i * static_cast<size_t>(size_in_bytes(type)),
                   static_cast<float>(reference::random_normal(seed, i)));
    }
    const auto out = bytes_.span();
    uint64_t block = 0;
    for (size_t at = 0; at < out.size();) {
      const auto element = static_cast<size_t>(size_in_bytes(type));
      const size_t from = reference::random_bits(seed + 1, block++) % (kTableElems / 2) * element;
      const size_t count = std::min(table.size() / 2, out.size() - at);
      std::copy_n(table.data() + from, count, out.data() + at);
      at += count;
    }
  }
  const ConstTensor& tensor() const { return tensor_; }

 private:
  FileBytes bytes_;
  ConstTensor tensor_;
};

Measurement measure(const BenchFlags& flags, Device device, const BenchPoint& point) {
  const RandomInput q(point.type, {point.batch, point.heads, point.seqlen_q, point.head_dim}, 1);
  const RandomInput k(point.type, {point.batch, point.heads_kv, point.seqlen_k, point.head_dim}, 2);
  const RandomInput v(point.type, {point.batch, point.heads_kv, point.seqlen_k, point.head_dim_v},
                      3);
  Options options = flags.attention.options();
  options.causal = point.causal;
  DeviceProblem problem(q.tensor(), k.tensor(), v.tensor(), device);
  Measurement result;
  result.point = point;
  result.kernel = problem.explain(options).kernel;
  result.repetitions = flags.repetitions;
  std::vector<double> times;
  if (flags.repetitions == 0) {
    // As many as fit the budget, from what the last warm-up took.
    const double once_ms = problem.time_ms(options, std::max(0, flags.warm_ups - 1), 1).back();
    constexpr double kMost = 1000;
    constexpr double kLeast = 3;
    result.repetitions =
        static_cast<int>(std::clamp(flags.budget_s * 1e3 / std::max(once_ms, 1e-3), kLeast, kMost));
    times = problem.time_ms(options, 0, result.repetitions);
  } else {
    times = problem.time_ms(options, flags.warm_ups, flags.repetitions);
  }
  result.median_ms = median(times);
  result.min_ms = *std::min_element(times.begin(), times.end());
  result.max_ms = *std::max_element(times.begin(), times.end());
  result.flops = forward_flops(q.tensor(), v.tensor(), options);
  result.bytes = forward_bytes(q.tensor(), k.tensor(), v.tensor());
  return result;
}

std::string csv_text(const std::vector<Measurement>& results, const std::string& device) {
  std::string text =
      "device,kernel,dtype,causal,batch,heads,heads_kv,seqlen_q,seqlen_k,head_dim,head_dim_v,"
      "repetitions,median_ms,min_ms,max_ms,gflops,gbytes_per_s\n";
  for (const Measurement& m : results) {
    const BenchPoint& p = m.point;
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g}\n",
                    device, m.kernel, to_string(p.type), causal_text(p.causal), p.batch, p.heads,
                    p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim, p.head_dim_v, m.repetitions,
                    m.median_ms, m.min_ms, m.max_ms, m.gflops(), m.gigabytes_per_s());
  }
  return text;
}

std::string json_text(const BenchFlags& flags, const std::vector<Measurement>& results,
                      const DeviceInfo& info) {
  JsonWriter out;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  out.field("date", date);
  out.field("version", version());
  out.begin_object("device");
  out.field("device", device_text(info.device));
  out.field("name", info.name);
  out.field("note", info.note);
  out.end();
  out.field("warm_ups", flags.warm_ups);
  out.field("statistic", "median");
  out.field("flops", "2 (D + Dv) per visible (query, key) pair");
  out.begin_list("results");
  for (const Measurement& m : results) {
    const BenchPoint& p = m.point;
    out.begin_object();
    out.field("kernel", m.kernel);
    out.field("dtype", to_string(p.type));
    out.field("causal", causal_text(p.causal));
    out.field("batch", p.batch);
    out.field("heads", p.heads);
    out.field("heads_kv", p.heads_kv);
    out.field("seqlen_q", p.seqlen_q);
    out.field("seqlen_k", p.seqlen_k);
    out.field("head_dim", p.head_dim);
    out.field("head_dim_v", p.head_dim_v);
    out.field("repetitions", m.repetitions);
    out.field("median_ms", m.median_ms);
    out.field("min_ms", m.min_ms);
    out.field("max_ms", m.max_ms);
    out.field("gflops", m.gflops());
    out.field("gbytes_per_s", m.gigabytes_per_s());
    out.end();
  }
  return out.finish();
}

void print_table(const std::vector<Measurement>& results, bool tera) {
  using Align = Table::Align;
  Table table({{"dtype"},
               {"causal"},
               {"B", Align::kRight},
               {"H", Align::kRight},
               {"N", Align::kRight},
               {"D", Align::kRight},
               {"ms", Align::kRight},
               {tera ? "TFLOP/s" : "GFLOP/s", Align::kRight},
               {"GB/s", Align::kRight},
               {"reps", Align::kRight},
               {"kernel"}});
  for (const Measurement& m : results) {
    const BenchPoint& p = m.point;
    const std::string heads =
        p.heads == p.heads_kv ? std::to_string(p.heads) : fmt::format("{}/{}", p.heads, p.heads_kv);
    const std::string length = p.seqlen_q == p.seqlen_k
                                   ? std::to_string(p.seqlen_q)
                                   : fmt::format("{}/{}", p.seqlen_q, p.seqlen_k);
    const std::string dim = p.head_dim == p.head_dim_v
                                ? std::to_string(p.head_dim)
                                : fmt::format("{}/{}", p.head_dim, p.head_dim_v);
    table.add({to_string(p.type), causal_text(p.causal), std::to_string(p.batch), heads, length,
               dim, short_number(m.median_ms), short_number(tera ? m.gflops() / 1e3 : m.gflops()),
               short_number(m.gigabytes_per_s()), std::to_string(m.repetitions), m.kernel});
  }
  fmt::print("{}", table.text());
}

void run_bench(const BenchFlags& flags) {
  const Device device = flags.device.device();
  const DeviceInfo info = require_device(device);
  flags.attention.require_kernel();
  const std::vector<BenchPoint> points = sweep(flags, device);
  if (!flags.csv.empty() && !flags.json.empty() && same_target(flags.csv, flags.json)) {
    throw UsageError("--json", "it names the same file as --csv");
  }
  std::optional<OutputFile> csv;
  std::optional<OutputFile> json;
  if (!flags.csv.empty()) csv.emplace(flags.csv);
  if (!flags.json.empty()) json.emplace(flags.json);

  std::vector<Measurement> results;
  {
    ProgressBar progress(static_cast<int64_t>(points.size()));
    for (const BenchPoint& point : points) {
      progress.update(static_cast<int64_t>(results.size()), point.text());
      results.push_back(measure(flags, device, point));
    }
  }
  const bool gpu = device.type != kDLCPU;
  fmt::print("{} ({}{}), tilefold {}\n", device_text(device), info.name,
             info.note.empty() ? "" : ", " + info.note, version());
  fmt::print(
      "median of the repetitions after {} warm-up calls, {}; 2 (D + Dv) FLOPs per visible "
      "pair; GB/s: q, k, v, o once each\n\n",
      flags.warm_ups, gpu ? "CUDA events" : "wall clock");
  print_table(results, gpu);
  if (csv) {
    csv->write(csv_text(results, device_text(device)));
    csv->commit();
  }
  if (json) {
    json->write(json_text(flags, results, info));
    json->commit();
  }
}

}  // namespace

Command make_bench_command() {
  const auto flags = std::make_shared<BenchFlags>();
  Command command("bench", "Time, throughput and kernel over a sweep");
  constexpr int64_t kMostExtent = std::numeric_limits<int32_t>::max();
  command.text("--seqlens", &flags->seqlens, "LIST",
               "Sequence lengths N (default 512,1024,2048,4096; a GPU also 8192,16384)");
  command.excludes("--shape");
  command.text("--head-dims", &flags->head_dims, "LIST", "Head dims D (default 64,128)");
  command.excludes("--shape");
  command.integer<int64_t>("--tokens", &flags->tokens, 1, kMostExtent,
                           "B * N, held over the sweep (default: CPU 4096, GPU 16384)");
  command.excludes("--shape");
  command.integer<int64_t>("--hidden", &flags->hidden, 1, kMostExtent,
                           "H * D, held over the sweep (default: CPU 512, GPU 2048)");
  command.excludes("--shape");
  command.texts("--shape", &flags->shapes, "SHAPE",
                "B,Hq,Hkv,Nq,Nk,D[,Dv]: this shape instead of the sweep; repeatable", false);
  command.texts("--causal", &flags->causal, "LIST", "Masks (default none,top-left)", true);
  command.texts("--dtype", &flags->dtypes, "LIST",
                "Types (default: CPU float32; GPU float16,bfloat16)", true);
  flags->device.add_to(&command, "auto");
  flags->attention.add_kernel_to(&command);
  command.integer("--warm-ups", &flags->warm_ups, 1, 1000,
                  "Untimed calls before each point (default 3)");
  command.integer("--reps", &flags->repetitions, 1, 1'000'000,
                  "Timed calls of each point (default: what --seconds allows, 3 to 1000)");
  command.real("--seconds", &flags->budget_s, 0.001, 600.0,
               "Time for each point, seconds (default 1)");
  command.text("--csv", &flags->csv, "FILE", "Also write the results as CSV");
  command.text("--json", &flags->json, "FILE", "Also write the results as JSON");
  command.footer(std::string(R"(Examples:
  tilefold bench
  tilefold bench --device cuda:0 --dtype float16 --head-dims 128 --json h128.json
  tilefold bench --shape 1,32,8,1,8192,128 --causal none --dtype bfloat16
  tilefold bench --seqlens 1024,2048 --threads 1 --csv one-thread.csv

)") + kExitCodesHelp);
  command.runs([flags] { run_bench(*flags); });
  return command;
}

}  // namespace tilefold::cli
