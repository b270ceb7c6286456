// Times the CPU back end over lengths, head dims and dtypes, beside the FMA peak measured in turns
// with it, and measures its memory.
//
//   tilefold_cpu_bench [--threads N] [--heads N] [--repeats N] [--max-length N] [--csv FILE]
//                      [--command TEXT] [--commit TEXT]
//
// --command and --commit go into the first line of the CSV.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "bench/cpu_peak.h"
#include "cpu/convert.h"
#include "tilefold/tilefold.h"

namespace tilefold::bench {
namespace {

struct Arguments {
  int threads = omp_get_max_threads();
  int64_t heads = 4;
  int repeats = 5;
  int64_t max_length = 16384;
  std::string csv;
  std::string command;
  std::string commit;
};

struct Format {
  const char* name;
  DLDataType type;
};

constexpr Format kFormats[] = {{"float32", {kDLFloat, 32, 1}},
                               {"bfloat16", {kDLBfloat, 16, 1}},
                               {"float16", {kDLFloat, 16, 1}}};

// q, k, v, o of one head dim, contiguous [1, heads, length, head_dim].
struct Tensors {
  std::vector<uint8_t> bytes[4];
  int64_t shape[4];
  DLTensor dl[4];

  Tensors(const Format& format, int64_t heads, int64_t length, int64_t head_dim)
      : shape{1, heads, length, head_dim} {
    const int64_t elements = heads * length * head_dim;
    const int64_t element_bytes = format.type.bits / 8;
    std::mt19937 engine(7);
    std::normal_distribution<float> normal;
    for (int t = 0; t < 4; ++t) {
      bytes[t].resize(elements * element_bytes);
      for (int64_t i = 0; i < elements && t < 3; ++i) {
        const float value = normal(engine);
        const uint16_t half = format.type.code == kDLBfloat ? cpu::bfloat16_from_float(value)
                                                            : cpu::float16_from_float(value);
        std::memcpy(bytes[t].data() + i * element_bytes,
                    element_bytes == 4 ? static_cast<const void*>(&value) : &half, element_bytes);
      }
      dl[t] = DLTensor{bytes[t].data(), {kDLCPU, 0}, 4, format.type, shape, nullptr, 0};
    }
  }
};

double seconds_of_call(const Tensors& tensors, int threads, bool causal) {
  tilefold_options options;
  tilefold_options_init(&options, sizeof(options));
  options.causal = causal ? TILEFOLD_CAUSAL_TOP_LEFT : TILEFOLD_CAUSAL_NONE;
  options.num_threads = threads;
  const auto start = std::chrono::steady_clock::now();
  const tilefold_status status =
      tilefold_forward(&tensors.dl[0], &tensors.dl[1], &tensors.dl[2], &tensors.dl[3], nullptr,
                       &options, nullptr, 0, nullptr);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (status != TILEFOLD_OK) {
    std::fprintf(stderr, "tilefold_cpu_bench: %s\n", tilefold_last_error());
    std::exit(1);
  }
  return elapsed.count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// kB of a line of /proc/self/status, 0 if the system has none.
long status_kb(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  long value = 0;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, name, std::strlen(name)) == 0) {
      value = std::strtol(line + std::strlen(name) + 1, nullptr, 10);
    }
  }
  std::fclose(file);
  return value;
}

// What the process grew by during a first call: threads, their stacks, scratch.
void report_memory(const Arguments& arguments, const Format& format) {
  constexpr int64_t kHeadDim = 128;
  const Tensors tensors(format, arguments.heads, arguments.max_length, kHeadDim);
  const long before = status_kb("VmRSS:");
  seconds_of_call(tensors, arguments.threads, true);
  const long after = status_kb("VmHWM:");
  std::printf(
      "memory beyond the tensors, first call, N = %lld, D = %lld, %s, %d threads: %.1f MB\n",
      static_cast<long long>(arguments.max_length), static_cast<long long>(kHeadDim), format.name,
      arguments.threads, static_cast<double>(after - before) / 1024);
}

void run(const Arguments& arguments) {
  tilefold_device_info device = {};
  device.struct_bytes = sizeof(device);
  tilefold_get_device_info(0, &device);
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%Y-%m-%d", std::gmtime(&now));
  std::printf("%s, %s, %d threads, %s, tilefold %s\n", device.name, device.note, arguments.threads,
              date, tilefold_version());
  report_memory(arguments, kFormats[0]);

  std::FILE* csv = arguments.csv.empty() ? nullptr : std::fopen(arguments.csv.c_str(), "w");
  if (!arguments.csv.empty() && csv == nullptr) {
    std::fprintf(stderr, "tilefold_cpu_bench: %s cannot be written\n", arguments.csv.c_str());
    std::exit(1);
  }
  if (csv != nullptr) {
    std::fprintf(csv, "# %s (%s), %d threads, %s, commit %s, %s\n", device.name, device.note,
                 arguments.threads, date, arguments.commit.c_str(), arguments.command.c_str());
    std::fprintf(csv,
                 "dtype,hdim,causal,batch,heads,seqlen,threads,median_ms,gflops,fma_peak_gflops,"
                 "percent_of_peak\n");
  }
  std::printf("%-9s %4s %6s %6s %10s %9s %9s %7s %9s\n", "dtype", "D", "causal", "N", "ms",
              "GFLOP/s", "peak", "% peak", "ns/pair");
  for (const Format& format : kFormats) {
    for (const int64_t head_dim : {64, 128}) {
      for (const bool causal : {false, true}) {
        for (int64_t length = 512; length <= arguments.max_length; length *= 2) {
          const Tensors tensors(format, arguments.heads, length, head_dim);
          // The peak and the call in turns: both see the same clock and the same neighbours.
          std::vector<double> times;
          std::vector<double> peaks;
          seconds_of_call(tensors, arguments.threads, causal);
          for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
            peaks.push_back(measure_fma_peak(arguments.threads, 0.02));
            times.push_back(seconds_of_call(tensors, arguments.threads, causal));
          }
          const double time = median(times);
          const double peak = median(peaks);
          const double n = static_cast<double>(length);
          const double pairs =
              static_cast<double>(arguments.heads) * (causal ? n * (n + 1) / 2 : n * n);
          const double gflops = 4.0 * pairs * static_cast<double>(head_dim) / time * 1e-9;
          std::printf("%-9s %4lld %6d %6lld %10.3f %9.1f %9.1f %7.1f %9.3f\n", format.name,
                      static_cast<long long>(head_dim), causal, static_cast<long long>(length),
                      time * 1e3, gflops, peak, 100 * gflops / peak, time * 1e9 / pairs);
          std::fflush(stdout);
          if (csv != nullptr) {
            std::fprintf(csv, "%s,%lld,%d,1,%lld,%lld,%d,%.4f,%.1f,%.1f,%.1f\n", format.name,
                         static_cast<long long>(head_dim), causal,
                         static_cast<long long>(arguments.heads), static_cast<long long>(length),
                         arguments.threads, time * 1e3, gflops, peak, 100 * gflops / peak);
          }
        }
      }
    }
  }
  if (csv != nullptr) std::fclose(csv);
}

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--threads") {
      arguments.threads = std::max(1, std::atoi(value));
    } else if (name == "--heads") {
      arguments.heads = std::max(1, std::atoi(value));
    } else if (name == "--repeats") {
      arguments.repeats = std::max(1, std::atoi(value));
    } else if (name == "--max-length") {
      arguments.max_length = std::max(512, std::atoi(value));
    } else if (name == "--csv") {
      arguments.csv = value;
    } else if (name == "--command") {
      arguments.command = value;
    } else if (name == "--commit") {
      arguments.commit = value;
    } else {
      std::fprintf(stderr,
                   "usage: tilefold_cpu_bench [--threads N] [--heads N] [--repeats N] "
                   "[--max-length N] [--csv FILE] [--command TEXT] [--commit TEXT]\n");
      return 2;
    }
  }
  run(arguments);
  return 0;
}

}  // namespace
}  // namespace tilefold::bench

int main(int argc, char** argv) { return tilefold::bench::main(argc, argv); }
