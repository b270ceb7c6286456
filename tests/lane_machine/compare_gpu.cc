// Runs on a GPU the problems whose results the lane machine has written down (lane_machine_run
// --save), with the same kernels, and compares the results bit by bit. They may differ by what the
// device's exp2 and the order of its sums leave: a unit in the last place of O here and there.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "cases.h"
#include "tilefold/tilefold.h"

namespace {

using namespace tilefold::reference;

// A unit of O's last place, at the largest magnitude of its row.
constexpr double kAllowedUnits = 1.0;
constexpr double kAllowedLse = 2e-6;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

// A tensor's memory on the GPU; lives until the program ends.
DLTensor on_device(const HostTensor& host, void** memory) {
  check(cudaMalloc(memory, host.memory().size()));
  check(cudaMemcpy(*memory, host.memory().data(), host.memory().size(), cudaMemcpyHostToDevice));
  DLTensor tensor = *host.dl();
  tensor.data = static_cast<char*>(*memory) + host.data_offset_bytes();
  tensor.byte_offset = 0;
  tensor.device = {kDLCUDA, 0};
  return tensor;
}

float value_of(DType dtype, uint32_t bits) {
  if (dtype == DType::kBFloat16) return std::bit_cast<float>(bits << 16);
  HostTensor one(dtype, {1});
  *reinterpret_cast<uint16_t*>(one.memory().data() + one.data_offset_bytes()) =
      static_cast<uint16_t>(bits);
  return one.at(0);
}

struct Verdict {
  bool ok = true;
  int64_t elements = 0;
  int64_t different = 0;
  double worst_units = 0;
  double worst_lse = 0;
};

Verdict run_case(const std::string& kernel, const Case& c, std::ifstream& saved) {
  Instance instance = make_instance(c);
  void* memory[6] = {};
  const DLTensor q = on_device(instance.q, &memory[0]);
  const DLTensor k = on_device(instance.k, &memory[1]);
  const DLTensor v = on_device(instance.v, &memory[2]);
  DLTensor o = on_device(instance.o, &memory[3]);
  DLTensor lse = on_device(instance.lse, &memory[4]);
  tilefold_options options = instance.options;
  options.kernel = kernel.c_str();
  size_t bytes = 0;
  const DLTensor* const lse_or_null = instance.want_lse ? &lse : nullptr;
  tilefold_status status =
      tilefold_forward_workspace_bytes(&q, &k, &v, &o, lse_or_null, &options, &bytes);
  if (status == TILEFOLD_OK) {
    check(cudaMalloc(&memory[5], std::max<size_t>(bytes, 256)));
    status = tilefold_forward(&q, &k, &v, &o, lse_or_null, &options, memory[5], bytes, nullptr);
  }
  if (status != TILEFOLD_OK) {
    std::fprintf(stderr, "%s: %s\n", kernel.c_str(), tilefold_last_error());
    std::exit(2);
  }
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(instance.o.memory().data(), memory[3], instance.o.memory().size(),
                   cudaMemcpyDeviceToHost));
  check(cudaMemcpy(instance.lse.memory().data(), memory[4], instance.lse.memory().size(),
                   cudaMemcpyDeviceToHost));
  for (void* piece : memory) check(cudaFree(piece));

  Verdict verdict;
  const double unit = c.dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7;
  const auto read = [&] {
    uint32_t bits = 0;
    saved.read(reinterpret_cast<char*>(&bits), sizeof bits);
    return bits;
  };
  std::vector<float> mine(static_cast<size_t>(c.head_dim_v)), theirs(mine);
  int64_t in_row = 0;
  for_each_index(instance.o.shape(), [&](std::span<const int64_t> index) {
    const uint32_t lane_bits = read();
    mine[in_row] = instance.o.get(index);
    theirs[in_row] = value_of(c.dtype, lane_bits);
    ++verdict.elements;
    verdict.different += lane_bits != instance.o.bits_at(index);
    if (++in_row < c.head_dim_v) return;
    in_row = 0;
    float largest = 0;
    for (const float x : theirs) largest = std::max(largest, std::fabs(x));
    const double row_unit = unit * std::exp2(std::floor(std::log2(std::max(largest, 1e-30f))));
    for (size_t i = 0; i < mine.size(); ++i) {
      if (std::isnan(mine[i]) && std::isnan(theirs[i])) continue;
      const double difference = std::fabs(double{mine[i]} - double{theirs[i]});
      if (!(difference <= kAllowedUnits * row_unit)) verdict.ok = false;
      verdict.worst_units = std::max(verdict.worst_units, difference / row_unit);
    }
  });
  for_each_index(instance.lse.shape(), [&](std::span<const int64_t> index) {
    const float expected = std::bit_cast<float>(read());
    const float got = instance.lse.get(index);
    if (!instance.want_lse || expected == got || (std::isnan(expected) && std::isnan(got))) return;
    const double difference = std::fabs(double{expected} - double{got});
    if (!(difference <= kAllowedLse * std::max(1.0, std::fabs(double{expected}))))
      verdict.ok = false;
    verdict.worst_lse = std::max(verdict.worst_lse, difference);
  });
  return verdict;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: lane_machine_compare_gpu FILE\n");
    return 2;
  }
  std::ifstream saved(argv[1], std::ios::binary);
  bool ok = true;
  int runs = 0;
  for (std::string line; std::getline(saved, line); ++runs) {
    const size_t bar = line.find('|');
    Case c;
    std::string error;
    if (bar == std::string::npos || !from_string(line.substr(bar + 1), &c, &error)) {
      std::fprintf(stderr, "cannot read \"%s\": %s\n", line.c_str(), error.c_str());
      return 2;
    }
    const std::string kernel = line.substr(0, bar);
    const Verdict verdict = run_case(kernel, c, saved);
    std::printf(
        "%s %s nq=%lld nk=%lld: %lld of %lld elements differ, by at most %.3g units; LSE by %.2g\n",
        verdict.ok ? "ok  " : "FAIL", kernel.c_str(), static_cast<long long>(c.seqlen_q),
        static_cast<long long>(c.seqlen_k), static_cast<long long>(verdict.different),
        static_cast<long long>(verdict.elements), verdict.worst_units, verdict.worst_lse);
    ok = ok && verdict.ok;
  }
  std::printf("%d results compared\n", runs);
  return ok && runs > 0 ? 0 : 1;
}
