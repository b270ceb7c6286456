// The device tests' harness.
#include "gpu_test.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace tilefold::gpu_test {
namespace {

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

// A number for the contents of a problem: two problems of one number have one reference result.
class Fingerprint {
 public:
  void add(const void* data, size_t bytes) {
    const auto* from = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; bytes -= 8, from += 8) {
      uint64_t word;
      std::memcpy(&word, from, 8);
      mix(word);
    }
    uint64_t rest = bytes;
    std::memcpy(&rest, from, bytes);
    mix(rest);
  }
  void add(const HostTensor& tensor) {
    add(tensor.memory().data(), tensor.memory().size());
    add(tensor.shape().data(), tensor.shape().size() * sizeof(int64_t));
    add(tensor.strides().data(), tensor.strides().size() * sizeof(int64_t));
    mix(static_cast<uint64_t>(tensor.data_offset_bytes()) * 4 +
        static_cast<uint64_t>(tensor.dtype()));
  }
  std::pair<uint64_t, uint64_t> value() const { return {a_, b_}; }

 private:
  void mix(uint64_t word) {
    a_ = (a_ ^ word) * 0x9e3779b97f4a7c15u;
    a_ ^= a_ >> 29;
    b_ = (b_ + word) * 0xc2b2ae3d27d4eb4fu;
    b_ ^= b_ >> 31;
  }
  uint64_t a_ = 0x243f6a8885a308d3u;
  uint64_t b_ = 0x13198a2e03707344u;
};

// The reference of a problem. Rows of one dtype and head dim meet the same problems in the same
// test: the results of the running test are kept, and dropped when another test begins.
const reference::Result& reference_of(const Instance& instance, int64_t row_step) {
  static std::map<std::pair<uint64_t, uint64_t>, reference::Result> known;
  static std::string test;
  static size_t kept_bytes = 0;
  constexpr size_t kMostBytes = size_t{1} << 30;
  const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = info.name();
  const std::string this_test =
      std::string(info.test_suite_name()) + "." + name.substr(0, name.find('/'));
  if (test != this_test || kept_bytes > kMostBytes) {
    known.clear();
    kept_bytes = 0;
    test = this_test;
  }
  Fingerprint fingerprint;
  for (const HostTensor* tensor : {&instance.q, &instance.k, &instance.v}) {
    fingerprint.add(*tensor);
  }
  tilefold_options options = instance.options;
  options.kernel = nullptr;
  fingerprint.add(&options, sizeof(options));
  fingerprint.add(&row_step, sizeof(row_step));
  const auto [entry, is_new] = known.try_emplace(fingerprint.value());
  if (is_new) {
    reference::Parameters parameters = reference::parameters_of(&instance.options);
    parameters.row_step = row_step;
    // A thread costs more than a small problem, and several test processes share the processors.
    constexpr double kSmallProblem = 2e7;
    constexpr int kThreads = 4;
    const double work = 4.0 * static_cast<double>(instance.q.num_elements()) *
                        static_cast<double>(instance.k.shape()[2]) / static_cast<double>(row_step);
    parameters.num_threads = work < kSmallProblem ? 1 : kThreads;
    entry->second =
        reference::attention(*instance.q.dl(), *instance.k.dl(), *instance.v.dl(), parameters);
    kept_bytes += entry->second.o.size() * sizeof(double);
  }
  return entry->second;
}

// HostTensor::surroundings_intact(), at once for a contiguous tensor: its elements are one run.
bool intact(const HostTensor& tensor) {
  if (tensor.strides() != reference::contiguous_strides(tensor.shape())) {
    return tensor.surroundings_intact();
  }
  const HostTensor poison(tensor.dtype(), {1});
  const auto size = static_cast<size_t>(reference::dtype_bytes(tensor.dtype()));
  const auto memory = tensor.memory();
  const auto begin = static_cast<size_t>(tensor.data_offset_bytes());
  const size_t end = begin + static_cast<size_t>(tensor.num_elements()) * size;
  for (size_t at = 0; at < memory.size(); at = at + size == begin ? end : at + size) {
    if (std::memcmp(memory.data() + at, poison.memory().data(), size) != 0) return false;
  }
  return true;
}

constexpr size_t kAlignment = 1024;
size_t align_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Device memory that buffers gave back, by device and size.
class Pool {
 public:
  std::shared_ptr<void> take(int device, size_t bytes) {
    constexpr size_t kSmallest = 4096;
    constexpr size_t kLargest = size_t{1} << 28;  // larger pieces are rare, and freed at once
    static const char* const environment = std::getenv("TILEFOLD_GPU_EXACT_MEMORY");
    if (bytes > kLargest || (environment != nullptr && environment[0] == '1')) {
      return std::shared_ptr<void>(allocate(bytes), [](void* pointer) { cudaFree(pointer); });
    }
    const std::pair<int, size_t> key = {device, std::bit_ceil(std::max(bytes, kSmallest))};
    void* memory = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::vector<void*>& free = free_[key];
      if (!free.empty()) {
        memory = free.back();
        free.pop_back();
      }
    }
    if (memory == nullptr) memory = allocate(key.second);
    return std::shared_ptr<void>(memory, [this, key](void* pointer) {
      const std::lock_guard<std::mutex> lock(mutex_);
      free_[key].push_back(pointer);
    });
  }

 private:
  static void* allocate(size_t bytes) {
    void* memory = nullptr;
    require(cudaMalloc(&memory, std::max<size_t>(bytes, 1)), "cudaMalloc");
    return memory;
  }
  std::mutex mutex_;
  std::map<std::pair<int, size_t>, std::vector<void*>> free_;
};

// Never destroyed: buffers may outlive main.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

// Pinned host memory through which a thread's copies go.
class Staging {
 public:
  // Room for `bytes`; waits for the last upload from it.
  char* begin(size_t bytes) {
    if (event_ == nullptr) {
      require(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    }
    require(cudaEventSynchronize(event_), "upload");
    if (bytes > bytes_) {
      cudaFreeHost(memory_);
      void* memory = nullptr;
      require(cudaMallocHost(&memory, std::bit_ceil(bytes)), "cudaMallocHost");
      memory_ = static_cast<char*>(memory);
      bytes_ = std::bit_ceil(bytes);
    }
    return memory_;
  }
  void end(cudaStream_t stream) { require(cudaEventRecord(event_, stream), "upload"); }

 private:
  char* memory_ = nullptr;
  size_t bytes_ = 0;
  cudaEvent_t event_ = nullptr;
};

// One for every thread and device.
Staging& this_threads_staging() {
  thread_local std::map<int, Staging> all;
  int device = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  return all[device];
}

constexpr size_t kWorkspaceGuardBytes = 1024;
constexpr unsigned char kPoisonByte = 0xff;  // NaN in every dtype, and an absurd counter

}  // namespace

std::vector<Row> gpu_rows() {
  std::vector<Row> rows;
  for (int32_t index = 0; index < tilefold_kernel_count(); ++index) {
    tilefold_kernel_info info = {};
    info.struct_bytes = sizeof(info);
    if (tilefold_get_kernel_info(index, &info) != TILEFOLD_OK) continue;
    if (std::strcmp(info.backend, "cpu") == 0) continue;
    // A row that takes several dtypes is tested once with each.
    std::string dtypes = info.dtypes;
    while (!dtypes.empty()) {
      const size_t comma = dtypes.find(',');
      std::string dtype = dtypes.substr(0, comma);
      dtype.erase(std::remove(dtype.begin(), dtype.end(), ' '), dtype.end());
      dtypes = comma == std::string::npos ? "" : dtypes.substr(comma + 1);
      Row row{info.name,       info.backend, DType::kFloat32, info.head_dim,
              info.head_dim_v, info.block_m, info.block_n};
      if (reference::parse_dtype(dtype, &row.dtype)) rows.push_back(row);
    }
  }
  return rows;
}

const std::string& no_gpu_reason() {
  static const std::string reason = [] {
    std::string text = "no CUDA device";
    for (int32_t index = 1; index < tilefold_device_count(); ++index) {
      tilefold_device_info info = {};
      info.struct_bytes = sizeof(info);
      if (tilefold_get_device_info(index, &info) != TILEFOLD_OK) continue;
      if (info.usable) return std::string();
      text = std::string(info.name) + ": " + info.note;
    }
    return text;
  }();
  return reason;
}

Case base_case(const Row& row, int64_t seqlen_q, int64_t seqlen_k, int causal) {
  constexpr int64_t kAnyHeadDim = 64;
  Case c;
  c.dtype = row.dtype;
  c.heads = 2;
  c.seqlen_q = seqlen_q;
  c.seqlen_k = seqlen_k;
  c.head_dim = row.head_dim > 0 ? row.head_dim : kAnyHeadDim;
  c.head_dim_v = row.head_dim_v > 0 ? row.head_dim_v : c.head_dim;
  c.causal = causal;
  c.seed = static_cast<uint64_t>(seqlen_q * 1000003 + seqlen_k * 101 + causal);
  return c;
}

DeviceBuffer::DeviceBuffer(size_t bytes) : bytes_(bytes) {
  int device = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  memory_ = pool().take(device, bytes);
}

DeviceTensor::DeviceTensor(const HostTensor& host)
    : DeviceTensor(host, DeviceBuffer(host.memory().size()), 0) {
  upload(host);
}

DeviceTensor::DeviceTensor(const HostTensor& host, const DeviceBuffer& buffer, size_t offset)
    : buffer_(buffer),
      offset_(offset),
      shape_(host.shape()),
      strides_(host.strides()),
      dl_(std::make_unique<DLTensor>(*host.dl())) {
  int device = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  dl_->data = memory() + host.data_offset_bytes();
  dl_->device = {kDLCUDA, device};
  dl_->shape = shape_.data();
  dl_->strides = strides_.data();
}

void DeviceTensor::upload(const HostTensor& host, cudaStream_t stream) {
  require(cudaMemcpyAsync(memory(), host.memory().data(), host.memory().size(),
                          cudaMemcpyHostToDevice, stream),
          "upload");
}

void DeviceTensor::download(HostTensor* host, cudaStream_t stream) const {
  require(cudaMemcpyAsync(host->memory().data(), memory(), host->memory().size(),
                          cudaMemcpyDeviceToHost, stream),
          "download");
}

DeviceProblem::DeviceProblem(const Instance& instance, const char* kernel)
    : options(instance.options), want_lse(instance.want_lse), instance_(&instance) {
  options.kernel = kernel;
  const auto end_of = [](size_t begin, const HostTensor& host) {
    return align_up(begin + host.memory().size());
  };
  const size_t k_begin = end_of(0, instance.q);
  const size_t v_begin = end_of(k_begin, instance.k);
  outputs_begin_ = end_of(v_begin, instance.v);
  const size_t lse_begin = end_of(outputs_begin_, instance.o);
  tensors_ = DeviceBuffer(lse_begin + (want_lse ? instance.lse.memory().size() : 0));
  q = DeviceTensor(instance.q, tensors_, 0);
  k = DeviceTensor(instance.k, tensors_, k_begin);
  v = DeviceTensor(instance.v, tensors_, v_begin);
  o = DeviceTensor(instance.o, tensors_, outputs_begin_);
  if (want_lse) lse = DeviceTensor(instance.lse, tensors_, lse_begin);
}

tilefold_status DeviceProblem::prepare() {
  const tilefold_status status = tilefold_forward_workspace_bytes(
      q.dl(), k.dl(), v.dl(), o.dl(), lse_dl(), &options, &workspace_bytes);
  if (status != TILEFOLD_OK) return status;
  workspace = DeviceBuffer(workspace_bytes + kWorkspaceGuardBytes);
  require(cudaMemsetAsync(workspace.data(), kPoisonByte, workspace.bytes(), nullptr), "cudaMemset");
  upload();
  return status;
}

// One copy for all tensors.
void DeviceProblem::upload() {
  Staging& staging = this_threads_staging();
  char* const to = staging.begin(tensors_.bytes());
  const auto put = [&](const DeviceTensor& tensor, const HostTensor& host) {
    std::memcpy(to + (tensor.memory() - tensors_.data()), host.memory().data(),
                host.memory().size());
  };
  put(q, instance_->q);
  put(k, instance_->k);
  put(v, instance_->v);
  put(o, instance_->o);
  if (want_lse) put(lse, instance_->lse);
  require(cudaMemcpyAsync(tensors_.data(), to, tensors_.bytes(), cudaMemcpyHostToDevice, nullptr),
          "upload");
  staging.end(nullptr);
}

tilefold_status DeviceProblem::forward(cudaStream_t stream) {
  return tilefold_forward(q.dl(), k.dl(), v.dl(), o.dl(), lse_dl(), &options, workspace_data(),
                          workspace_bytes, stream);
}

bool DeviceProblem::download(Instance* instance, cudaStream_t stream) {
  const size_t outputs_bytes = tensors_.bytes() - outputs_begin_;
  Staging& staging = this_threads_staging();
  char* const from = staging.begin(outputs_bytes + kWorkspaceGuardBytes);
  const char* const guard = from + outputs_bytes;
  require(cudaMemcpyAsync(from, tensors_.data() + outputs_begin_, outputs_bytes,
                          cudaMemcpyDeviceToHost, stream),
          "download");
  require(cudaMemcpyAsync(from + outputs_bytes, workspace.data() + workspace_bytes,
                          kWorkspaceGuardBytes, cudaMemcpyDeviceToHost, stream),
          "download");
  require(cudaStreamSynchronize(stream), "the kernel");
  const auto get = [&](const DeviceTensor& tensor, HostTensor* host) {
    std::memcpy(host->memory().data(), from + (tensor.memory() - tensors_.data()) - outputs_begin_,
                host->memory().size());
  };
  get(o, &instance->o);
  if (want_lse) get(lse, &instance->lse);
  const bool guard_intact = std::all_of(guard, guard + kWorkspaceGuardBytes, [](char b) {
    return static_cast<unsigned char>(b) == kPoisonByte;
  });
  return guard_intact && intact(instance->o) && (!want_lse || intact(instance->lse));
}

void DeviceProblem::upload_inputs(const Instance& instance, cudaStream_t stream) {
  q.upload(instance.q, stream);
  k.upload(instance.k, stream);
  v.upload(instance.v, stream);
}

void DeviceProblem::poison_outputs(const Instance& instance, cudaStream_t stream) {
  HostTensor poisoned = instance.o.clone();
  poisoned.poison();
  o.upload(poisoned, stream);
  if (want_lse) {
    HostTensor poisoned_lse = instance.lse.clone();
    poisoned_lse.poison();
    lse.upload(poisoned_lse, stream);
  }
}

void fill_fast(HostTensor* tensor, uint64_t seed) {
  constexpr size_t kTableSize = 1 << 16;
  static const std::vector<float> table = [] {
    std::vector<float> values(kTableSize);
    for (size_t n = 0; n < values.size(); ++n) {
      values[n] = static_cast<float>(reference::random_normal(20, n));
    }
    return values;
  }();
  std::vector<uint32_t> bits(kTableSize, 0);
  for (size_t n = 0; n < kTableSize; ++n) {
    reference::store_element(tensor->dtype(), &bits[n], table[n]);
  }
  const int64_t size = reference::dtype_bytes(tensor->dtype());
  std::byte* to = tensor->memory().data() + tensor->data_offset_bytes();
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t n = 0; n < tensor->num_elements(); ++n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(to + n * size, &bits[state >> 48], static_cast<size_t>(size));
  }
}

Instance make_fast_instance(const Case& c) {
  Instance instance;
  instance.q = HostTensor(c.dtype, {c.batch, c.heads, c.seqlen_q, c.head_dim});
  instance.k = HostTensor(c.dtype, {c.batch, c.heads_kv, c.seqlen_k, c.head_dim});
  instance.v = HostTensor(c.dtype, {c.batch, c.heads_kv, c.seqlen_k, c.head_dim_v});
  instance.o = HostTensor(c.dtype, {c.batch, c.heads, c.seqlen_q, c.head_dim_v});
  instance.lse = HostTensor(DType::kFloat32, {c.batch, c.heads, c.seqlen_q});
  instance.options = c.options();
  instance.want_lse = c.want_lse;
  fill_fast(&instance.q, c.seed * 3 + 1);
  fill_fast(&instance.k, c.seed * 3 + 2);
  fill_fast(&instance.v, c.seed * 3 + 3);
  return instance;
}

void RowTest::SetUp() {
  if (!no_gpu_reason().empty()) GTEST_SKIP() << no_gpu_reason();
  ASSERT_CUDA(cudaSetDevice(0));
}

void RowTest::TearDown() {
  if (!no_gpu_reason().empty() || IsSkipped() || HasFailure()) return;
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaGetLastError()) << "an error was left behind";
  if (served_ == 0) {
    GTEST_SKIP() << GetParam().name << " serves none of the " << unserved_
                 << " problems of this test: " << tilefold_last_error();
  }
}

bool RowTest::serves(const Case& c) const {
  const Instance probe = reference::make_instance(c);
  DeviceProblem problem(probe, GetParam().name.c_str());
  size_t bytes = 0;
  const tilefold_status status =
      tilefold_forward_workspace_bytes(problem.q.dl(), problem.k.dl(), problem.v.dl(),
                                       problem.o.dl(), problem.lse_dl(), &problem.options, &bytes);
  return status != TILEFOLD_ERROR_UNSUPPORTED;
}

// Rows that pack heads take up to 64 queries. Not 64: the heads of a tile end inside of their rows.
constexpr int64_t kFewQueries = 61;

int RowTest::causal_if_served(int causal) const {
  return serves(base_case(GetParam(), kFewQueries, 70, causal))
             ? causal
             : static_cast<int>(TILEFOLD_CAUSAL_NONE);
}

int64_t RowTest::queries_if_served(int64_t queries) const {
  if (queries <= kFewQueries || serves(base_case(GetParam(), queries, 70))) return queries;
  return kFewQueries;
}

Case RowTest::served_case(int64_t queries, int64_t seqlen_k, int causal) const {
  return base_case(GetParam(), queries_if_served(queries), seqlen_k, causal);
}

bool RowTest::run(Instance* instance, const std::string& what) {
  DeviceProblem problem(*instance, GetParam().name.c_str());
  const tilefold_status status = problem.prepare();
  if (status == TILEFOLD_ERROR_UNSUPPORTED) {
    ++unserved_;
    return false;
  }
  ++served_;
  EXPECT_EQ(TILEFOLD_OK, status) << what << ": " << tilefold_last_error();
  if (status != TILEFOLD_OK) return true;
  const tilefold_status launched = problem.forward(nullptr);
  EXPECT_EQ(TILEFOLD_OK, launched) << what << ": " << tilefold_last_error();
  EXPECT_TRUE(problem.download(instance, nullptr))
      << what << ": memory beside the outputs or behind the workspace was written";
  return true;
}

bool RowTest::check(Instance* instance, const std::string& what, int64_t row_step) {
  if (!run(instance, what)) return false;
  const reference::Result& expected = reference_of(*instance, row_step);
  const reference::Comparison comparison =
      reference::compare(expected, *instance->o.dl(), instance->lse_dl());
  EXPECT_TRUE(comparison.ok) << what << ": " << comparison.message();
  return true;
}

bool RowTest::check(const Case& c) {
  Instance instance = reference::make_instance(c);
  return check(&instance, c.to_string());
}

std::string row_test_name(const testing::TestParamInfo<Row>& info) {
  // Rows of several dtypes appear once with each: the dtype tells them apart.
  std::string name = info.param.name;
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  for (const Row& other : gpu_rows()) {
    if (other.name == info.param.name && other.dtype != info.param.dtype) {
      return name + "_" + reference::dtype_name(info.param.dtype);
    }
  }
  return name;
}

}  // namespace tilefold::gpu_test
