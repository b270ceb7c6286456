// What the device tests share: the rows of the kernel table as test parameters, tensors on a
// device, and a run of one problem on one row compared with the float64 reference.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reference.h"
#include "tilefold/tilefold.h"

namespace tilefold::gpu_test {

using reference::Case;
using reference::DType;
using reference::HostTensor;
using reference::Instance;
using reference::Values;

// A kernel row that runs on CUDA devices.
struct Row {
  std::string name;
  std::string backend;
  DType dtype = DType::kFloat32;
  int64_t head_dim = 0;    // of its tile; 0: any
  int64_t head_dim_v = 0;  // of its tile; 0: any
  int64_t block_m = 0;     // 0: chosen at run time
  int64_t block_n = 0;
};

// Every row of this build that is not the CPU's.
std::vector<Row> gpu_rows();

// Why no test can run here; "" where one can.
const std::string& no_gpu_reason();

// A problem on a row's own tile: D and Dv of the tile (64 where any will do), two query heads on
// one key head.
Case base_case(const Row& row, int64_t seqlen_q, int64_t seqlen_k,
               int causal = TILEFOLD_CAUSAL_NONE);

// Memory on the current device. Given back to a pool with the object: cudaMalloc and cudaFree wait
// for the whole GPU. TILEFOLD_GPU_EXACT_MEMORY=1 allocates and frees each piece instead, so that a
// memory checker sees its end.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t bytes);
  char* data() const { return static_cast<char*>(memory_.get()); }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> memory_;
  size_t bytes_ = 0;
};

// The copy of a host tensor on the current device: guards, gaps and poison included.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  // In memory of its own, uploaded.
  explicit DeviceTensor(const HostTensor& host);
  // At `offset` of `buffer`, not yet uploaded.
  DeviceTensor(const HostTensor& host, const DeviceBuffer& buffer, size_t offset);
  void upload(const HostTensor& host, cudaStream_t stream = nullptr);
  void download(HostTensor* host, cudaStream_t stream = nullptr) const;
  char* memory() const { return buffer_.data() + offset_; }
  const DLTensor* dl() const { return dl_.get(); }
  DLTensor* dl() { return dl_.get(); }

 private:
  DeviceBuffer buffer_;
  size_t offset_ = 0;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  std::unique_ptr<DLTensor> dl_;
};

// A problem on the device: its tensors, options and a workspace, NaN wherever nothing was put.
class DeviceProblem {
 public:
  // Takes the options of the instance with `kernel` forced (null: the library's choice). The
  // instance outlives prepare().
  DeviceProblem(const Instance& instance, const char* kernel);

  // What the library says of the problem without running it. If it can be served, makes the
  // workspace and uploads the tensors on the default stream.
  tilefold_status prepare();
  void upload();
  tilefold_status forward(cudaStream_t stream);
  // Outputs as they are on the device now, into the instance; false if a byte changed that belongs
  // to no element, or one behind the workspace.
  bool download(Instance* instance, cudaStream_t stream);
  void upload_inputs(const Instance& instance, cudaStream_t stream);
  void poison_outputs(const Instance& instance, cudaStream_t stream);

  DeviceTensor q, k, v, o, lse;
  tilefold_options options = {};
  bool want_lse = true;
  size_t workspace_bytes = 0;
  DeviceBuffer workspace;
  const DLTensor* lse_dl() const { return want_lse ? lse.dl() : nullptr; }
  void* workspace_data() const { return workspace_bytes > 0 ? workspace.data() : nullptr; }

 private:
  const Instance* instance_;
  DeviceBuffer tensors_;
  size_t outputs_begin_ = 0;  // in tensors_: o and lse lie at its end
};

// Normal values from a table, for tensors too large for the reference's generator; contiguous only.
void fill_fast(HostTensor* tensor, uint64_t seed);
// The instance of a case with contiguous tensors, filled by fill_fast.
Instance make_fast_instance(const Case& c);

// A test of one row. Problems that the row does not serve are counted, and a test none of whose
// problems it serves is skipped by name.
class RowTest : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Runs the instance on the row and compares with the reference, which computes every
  // `row_step`-th query row. Outputs are left in the instance. False if the row does not serve it.
  bool check(Instance* instance, const std::string& what, int64_t row_step = 1);
  bool check(const Case& c);
  // Runs it and leaves the outputs in the instance, without comparing.
  bool run(Instance* instance, const std::string& what);

  // `causal` if the row serves such a mask, else none: for tests that a row without masks can pass
  // too.
  int causal_if_served(int causal) const;

  // `queries` if the row serves as many of a head, else some that every row does: for tests that a
  // row which packs heads can pass too.
  int64_t queries_if_served(int64_t queries) const;
  // base_case() of such a number of queries.
  Case served_case(int64_t queries, int64_t seqlen_k, int causal = TILEFOLD_CAUSAL_NONE) const;

  int64_t served_ = 0;
  int64_t unserved_ = 0;

 private:
  // Whether the row serves the problem; counted nowhere.
  bool serves(const Case& c) const;
};

std::string row_test_name(const testing::TestParamInfo<Row>& info);

}  // namespace tilefold::gpu_test

// A suite of RowTest on every row of the build.
#define TILEFOLD_GPU_ROWS(Suite)                                                            \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Suite);                                     \
  INSTANTIATE_TEST_SUITE_P(Gpu, Suite, testing::ValuesIn(::tilefold::gpu_test::gpu_rows()), \
                           ::tilefold::gpu_test::row_test_name)

#define ASSERT_CUDA(expression) ASSERT_EQ(cudaSuccess, (expression))
