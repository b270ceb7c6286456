// tilefold_ladder: times the rungs and the library's kernels in one table.
//
//   tilefold_ladder [--seqlen N] [--tokens T] [--width W] [--rounds R]
//
// batch = T / N, heads = W / head dim; float16, no mask. All rungs take turns, after a warm-up; the
// median counts. "worth" is the factor gained on the rung before; "error" is the relative Frobenius
// error of O against float64 over sampled rows.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ladder.h"
#include "number_formats.h"
#include "tilefold/tilefold.h"

namespace tilefold::ladder {
namespace {

struct Settings {
  int seqlen = 4096;
  int tokens = 16384;
  int width = 2048;
  int rounds = 12;
};

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "tilefold_ladder: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
T* allocate(size_t count) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, std::max<size_t>(count * sizeof(T), 1)), "cudaMalloc");
  return static_cast<T*>(memory);
}

std::vector<uint16_t> random_halves(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> table(1 << 16);
  for (uint16_t& half : table) half = reference::float_to_half(normal(generator));
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = table[generator() >> 16];
  return values;
}

// A rung as the table shows it.
struct Entry {
  std::string name;
  std::string idea;
  std::function<cudaError_t()> run;
  std::vector<float> times_ms;
  double error = 0;
};

// The inputs on host and device, and the output.
struct Data {
  Problem problem;
  std::vector<uint16_t> q, k, v;

  Data(const Settings& settings, int head_dim) {
    problem.num_heads = settings.tokens / settings.seqlen * (settings.width / head_dim);
    problem.seqlen = settings.seqlen;
    problem.head_dim = head_dim;
    problem.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    const size_t rows = static_cast<size_t>(problem.num_heads) * problem.seqlen;
    const size_t count = rows * head_dim;
    q = random_halves(count, 1);
    k = random_halves(count, 2);
    v = random_halves(count, 3);
    const auto upload = [&](const std::vector<uint16_t>& host) {
      auto* device = allocate<uint16_t>(count);
      require(cudaMemcpy(device, host.data(), count * 2, cudaMemcpyHostToDevice), "upload");
      return device;
    };
    problem.q = upload(q);
    problem.k = upload(k);
    problem.v = upload(v);
    problem.o = allocate<uint16_t>(count);
    problem.lse = allocate<float>(rows);
    size_t workspace_bytes = 0;
    for (const Rung& rung : rungs()) {
      workspace_bytes = std::max(workspace_bytes, rung.workspace_bytes(problem));
    }
    problem.workspace = allocate<unsigned char>(workspace_bytes);
  }
  ~Data() {
    for (const void* memory : std::initializer_list<const void*>{
             problem.q, problem.k, problem.v, problem.o, problem.lse, problem.workspace}) {
      cudaFree(const_cast<void*>(memory));
    }
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  size_t num_elements() const { return q.size(); }

  // |O - O_float64| / |O_float64| over rows spread over all heads; NaN if a row was not written.
  double sampled_error() const {
    constexpr int kSamples = 96;
    const int d = problem.head_dim;
    const int n = problem.seqlen;
    std::vector<uint16_t> o(num_elements());
    require(cudaMemcpy(o.data(), problem.o, o.size() * 2, cudaMemcpyDeviceToHost), "download");
    double difference = 0;
    double norm = 0;
    std::vector<double> p(n);
    for (int sample = 0; sample < kSamples; ++sample) {
      const size_t num_rows = num_elements() / d;
      const size_t row = (num_rows / kSamples * sample + sample * 37 % n) % num_rows;
      const size_t head = row / n;
      double largest = -1e300;
      for (int j = 0; j < n; ++j) {
        p[j] = 0;
        for (int c = 0; c < d; ++c) {
          p[j] += static_cast<double>(reference::half_to_float(q[row * d + c])) *
                  reference::half_to_float(k[(head * n + j) * d + c]);
        }
        largest = std::max(largest, p[j] *= problem.scale);
      }
      double sum = 0;
      for (double& value : p) sum += value = std::exp(value - largest);
      for (int c = 0; c < d; ++c) {
        double expected = 0;
        for (int j = 0; j < n; ++j) {
          expected += p[j] * reference::half_to_float(v[(head * n + j) * d + c]);
        }
        expected /= sum;
        const double actual = reference::half_to_float(o[row * d + c]);
        difference += (actual - expected) * (actual - expected);
        norm += expected * expected;
      }
    }
    return std::sqrt(difference / norm);
  }
};

// The library on the same tensors, through its C interface, with a row of `family` ("" = its
// choice).
struct Library {
  int64_t shape[4];
  DLTensor q, k, v, o, lse;
  tilefold_options options;
  std::string kernel;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;

  Library(const Problem& problem, const std::string& family)
      : shape{1, problem.num_heads, problem.seqlen, problem.head_dim} {
    int device = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    const auto tensor = [&](const void* data, int rank, uint8_t bits) {
      DLTensor t = {};
      t.data = const_cast<void*>(data);
      t.device = {kDLCUDA, device};
      t.ndim = rank;
      t.dtype = {kDLFloat, bits, 1};
      t.shape = shape;
      return t;
    };
    q = tensor(problem.q, 4, 16);
    k = tensor(problem.k, 4, 16);
    v = tensor(problem.v, 4, 16);
    o = tensor(problem.o, 4, 16);
    lse = tensor(problem.lse, 3, 32);
    tilefold_options_init(&options, sizeof(options));
    kernel = best_row(family);
    if (kernel.empty()) return;
    options.kernel = kernel.c_str();
    if (tilefold_forward_workspace_bytes(&q, &k, &v, &o, &lse, &options, &workspace_bytes) !=
        TILEFOLD_OK) {
      kernel.clear();
      return;
    }
    workspace = allocate<unsigned char>(workspace_bytes);
  }
  ~Library() { cudaFree(workspace); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // The eligible row of the family with the highest preference, as tilefold_explain() tells it.
  std::string best_row(const std::string& family) const {
    std::vector<char> text(1 << 17);
    if (tilefold_explain(&q, &k, &v, &o, &lse, &options, text.data(), text.size(), nullptr) !=
        TILEFOLD_OK) {
      return "";
    }
    const std::string all = text.data();
    std::string best;
    long best_preference = 0;
    for (size_t begin = all.find('\n') + 1; begin < all.size();) {
      const size_t end = std::min(all.find('\n', begin), all.size());
      const std::string line = all.substr(begin, end - begin);
      begin = end + 1;
      const size_t colon = line.find(": ");
      if (colon == std::string::npos || line.rfind(family, 0) != 0) continue;
      for (const char* eligible : {"chosen, preference ", "could serve, preference "}) {
        if (line.compare(colon + 2, std::strlen(eligible), eligible) != 0) continue;
        const long preference = std::atol(line.c_str() + colon + 2 + std::strlen(eligible));
        if (preference > best_preference) {
          best_preference = preference;
          best = line.substr(0, colon);
        }
      }
    }
    return best;
  }

  cudaError_t run() {
    const tilefold_status status =
        tilefold_forward(&q, &k, &v, &o, &lse, &options, workspace_bytes ? workspace : nullptr,
                         workspace_bytes, nullptr);
    if (status == TILEFOLD_OK) return cudaSuccess;
    std::fprintf(stderr, "tilefold_ladder: %s\n", tilefold_last_error());
    return cudaErrorUnknown;
  }
};

// Runs every rung once on a poisoned output, and drops those that the GPU cannot launch.
void check(const Data& data, std::vector<Entry>* entries) {
  std::vector<Entry> working;
  for (Entry& entry : *entries) {
    require(cudaMemset(data.problem.o, 0xff, data.num_elements() * 2), "cudaMemset");
    const cudaError_t error = entry.run();
    if (error != cudaSuccess) {
      cudaGetLastError();
      std::printf("%-22s left out: %s\n", entry.name.c_str(), cudaGetErrorString(error));
      continue;
    }
    require(cudaDeviceSynchronize(), entry.name.c_str());
    entry.error = data.sampled_error();
    working.push_back(std::move(entry));
  }
  *entries = std::move(working);
}

void measure(const Settings& settings, std::vector<Entry>* entries) {
  cudaEvent_t begin;
  cudaEvent_t end;
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  constexpr int kWarmUpRounds = 3;
  for (int round = -kWarmUpRounds; round < settings.rounds; ++round) {
    for (Entry& entry : *entries) {
      require(entry.run(), "warm-up");  // so that the timed launch follows its own kind
      require(cudaEventRecord(begin), "cudaEventRecord");
      require(entry.run(), entry.name.c_str());
      require(cudaEventRecord(end), "cudaEventRecord");
      require(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      require(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      if (round >= 0) entry.times_ms.push_back(ms);
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

void print_table(const Problem& problem, std::vector<Entry>& entries) {
  const double flops = 4.0 * problem.num_heads * problem.seqlen *
                       static_cast<double>(problem.seqlen) * problem.head_dim;
  std::printf("\nhead dim %d, %d heads x %d rows, float16, no mask\n", problem.head_dim,
              problem.num_heads, problem.seqlen);
  std::printf("| rung | adds | ms | TFLOP/s | worth | error |\n|---|---|---|---|---|---|\n");
  double before = 0;
  for (Entry& entry : entries) {
    std::sort(entry.times_ms.begin(), entry.times_ms.end());
    const double ms = entry.times_ms[entry.times_ms.size() / 2];
    char worth[16] = "";
    if (before > 0) std::snprintf(worth, sizeof(worth), "%.2fx", before / ms);
    std::printf("| %s | %s | %.3f | %.1f | %s | %.1e |\n", entry.name.c_str(), entry.idea.c_str(),
                ms, flops / ms * 1e-9, worth, entry.error);
    before = ms;
  }
  std::fflush(stdout);
}

// False if a rung is wrong.
bool run_head_dim(const Settings& settings, int head_dim) {
  constexpr double kLargestError = 1e-3;  // float16 P and O come to 3e-4
  const Data data(settings, head_dim);
  std::vector<Entry> entries;
  for (const Rung& rung : rungs()) {
    entries.push_back({rung.name, rung.idea, [&] { return rung.run(data.problem, nullptr); }, {}});
  }
  Library sm80(data.problem, "sm80_");
  Library chosen(data.problem, "");
  if (!sm80.kernel.empty()) {
    entries.push_back({"library, sm80", sm80.kernel, [&] { return sm80.run(); }, {}});
  }
  if (chosen.kernel != sm80.kernel) {
    entries.push_back({"library", chosen.kernel, [&] { return chosen.run(); }, {}});
  }
  check(data, &entries);
  measure(settings, &entries);
  print_table(data.problem, entries);
  bool right = true;
  for (const Entry& entry : entries) {
    if (entry.error < kLargestError) continue;
    std::printf("WRONG: %s, error %.1e\n", entry.name.c_str(), entry.error);
    right = false;
  }
  return right;
}

constexpr const char* kUsage =
    "usage: tilefold_ladder [--seqlen N] [--tokens T] [--width W] [--rounds R]\n";

int main_of(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::printf("%s", kUsage);
      return 0;
    }
    int* const target = name == "--seqlen"   ? &settings.seqlen
                        : name == "--tokens" ? &settings.tokens
                        : name == "--width"  ? &settings.width
                        : name == "--rounds" ? &settings.rounds
                                             : nullptr;
    if (target == nullptr) {
      std::fprintf(stderr, "tilefold_ladder: unknown option %s\n%s", name.c_str(), kUsage);
      return 2;
    }
    const std::string_view number = i + 1 < argc ? argv[i + 1] : "";
    const char* const end = number.data() + number.size();
    if (std::from_chars(number.data(), end, *target).ptr != end || number.empty()) {
      std::fprintf(stderr, "tilefold_ladder: %s is followed by '%s'; takes a number\n%s",
                   name.c_str(), number.data(), kUsage);
      return 2;
    }
  }
  if (settings.seqlen <= 0 || settings.seqlen % kSeqlenMultiple != 0 ||
      settings.tokens < settings.seqlen || settings.width < 128 || settings.rounds < 1) {
    std::fprintf(stderr,
                 "tilefold_ladder: --seqlen is %d, --tokens %d, --width %d, --rounds %d; accepted: "
                 "a multiple of %d, at least seqlen, at least 128, at least 1\n",
                 settings.seqlen, settings.tokens, settings.width, settings.rounds,
                 kSeqlenMultiple);
    return 2;
  }
  cudaDeviceProp device;
  require(cudaGetDeviceProperties(&device, 0), "no GPU");
  std::printf("%s, %d multiprocessors\n", device.name, device.multiProcessorCount);
  const bool right64 = run_head_dim(settings, 64);
  const bool right128 = run_head_dim(settings, 128);
  return right64 && right128 ? 0 : 1;
}

}  // namespace
}  // namespace tilefold::ladder

int main(int argc, char** argv) { return tilefold::ladder::main_of(argc, argv); }
