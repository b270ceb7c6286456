// Forward problems on the lane machine: tensors with gaps, the reference, tensor maps.
#include "forward_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "attention.h"
#include "lane_machine/tensor_map.h"

namespace tilefold::lane_machine {
namespace {

// A gap of 16 bytes after each row, of three rows after each head.
void pad(reference::Layout& layout, int64_t heads, int64_t rows, int64_t columns) {
  if (!layout.strides.empty()) return;
  const int64_t row = (columns + 7) / 8 * 8 + 8;
  const int64_t head = (rows + 3) * row;
  layout.strides = {heads * head, head, row, 1};
}

std::vector<uint8_t> used_bytes(const reference::HostTensor& tensor) {
  std::vector<uint8_t> used(tensor.memory().size(), 0);
  const int64_t bytes = reference::dtype_bytes(tensor.dtype());
  reference::for_each_index(tensor.shape(), [&](std::span<const int64_t> index) {
    int64_t offset = tensor.data_offset_bytes();
    for (size_t axis = 0; axis < index.size(); ++axis)
      offset += index[axis] * tensor.strides()[axis] * bytes;
    std::fill_n(used.begin() + offset, bytes, uint8_t{1});
  });
  return used;
}

// What validate.cc would make of the case; the mask's diagonals are read off the reference's.
ForwardProblem problem_of(const reference::Case& c, reference::Instance& instance) {
  ForwardProblem problem;
  problem.dtype = c.dtype == reference::DType::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
  problem.batch = c.batch;
  problem.num_heads = c.heads;
  problem.num_heads_kv = c.heads_kv;
  problem.seqlen_q = c.seqlen_q;
  problem.seqlen_k = c.seqlen_k;
  problem.head_dim = c.head_dim;
  problem.head_dim_v = c.head_dim_v;
  const auto data = [](const reference::HostTensor& tensor) {
    return const_cast<std::byte*>(tensor.memory().data()) + tensor.data_offset_bytes();
  };
  const auto strides = [](const reference::HostTensor& tensor) {
    Strides result;
    int64_t* const to[] = {&result.batch, &result.head, &result.row, &result.column};
    for (size_t axis = 0; axis < tensor.shape().size(); ++axis)
      *to[axis] = tensor.shape()[axis] > 1 ? tensor.strides()[axis] : 0;
    return result;
  };
  problem.q = data(instance.q);
  problem.k = data(instance.k);
  problem.v = data(instance.v);
  problem.o = data(instance.o);
  problem.lse = c.want_lse ? reinterpret_cast<float*>(data(instance.lse)) : nullptr;
  problem.q_strides = strides(instance.q);
  problem.k_strides = strides(instance.k);
  problem.v_strides = strides(instance.v);
  problem.o_strides = strides(instance.o);
  problem.lse_strides = strides(instance.lse);
  const reference::Parameters parameters = reference::parameters_of(&instance.options);
  problem.scale = parameters.has_scale ? parameters.scale
                                       : static_cast<float>(1.0 / std::sqrt(double(c.head_dim)));
  problem.empty_row_lse = parameters.empty_row_lse_negative ? -INFINITY : INFINITY;
  problem.diagonal_left = c.seqlen_k;  // no pair is visible
  problem.diagonal_right = -c.seqlen_q;
  for (int64_t i = 0; i < c.seqlen_q; ++i) {
    for (int64_t j = 0; j < c.seqlen_k; ++j) {
      if (!parameters.sees(i, j, c.seqlen_q, c.seqlen_k)) continue;
      problem.diagonal_left = std::min(problem.diagonal_left, j - i);
      problem.diagonal_right = std::max(problem.diagonal_right, j - i);
    }
  }
  if (problem.diagonal_left == 1 - c.seqlen_q) problem.diagonal_left = -c.seqlen_q;
  if (problem.diagonal_right == c.seqlen_k - 1) problem.diagonal_right = c.seqlen_k;
  return problem;
}

}  // namespace

ForwardSetup::ForwardSetup(const reference::Case& wanted) : c(wanted) {
  pad(c.q, c.heads, c.seqlen_q, c.head_dim);
  pad(c.k, c.heads_kv, c.seqlen_k, c.head_dim);
  pad(c.v, c.heads_kv, c.seqlen_k, c.head_dim_v);
  pad(c.o, c.heads, c.seqlen_q, c.head_dim_v);
  instance = reference::make_instance(c);
  problem = problem_of(c, instance);
  const auto add = [&](const char* name, const reference::HostTensor& tensor, bool writable) {
    if (!tensor.memory().empty())
      memory.add(name, tensor.memory().data(), tensor.memory().size(), writable,
                 used_bytes(tensor));
  };
  add("Q", instance.q, false);
  add("K", instance.k, false);
  add("V", instance.v, false);
  add("O", instance.o, true);
  if (c.want_lse) add("LSE", instance.lse, true);
}

void ForwardSetup::hide_non_finite() {
  const int64_t last = c.seqlen_k - 1;
  instance.v.put(INFINITY, 0, 0, last * 7 / 10, 3);
  instance.v.put(NAN, 0, 0, last * 9 / 10, 5);
  instance.k.put(NAN, 0, 0, last * 8 / 10, 1);
}

void ForwardSetup::poison_outputs() {
  instance.o.poison();
  instance.lse.poison();
}

reference::Comparison ForwardSetup::compare() {
  if (!have_expected_) {
    expected_ = reference::attention(*instance.q.dl(), *instance.k.dl(), *instance.v.dl(),
                                     &instance.options);
    have_expected_ = true;
  }
  reference::Comparison comparison =
      reference::compare(expected_, *instance.o.dl(), instance.lse_dl());
  comparison.ok = comparison.ok && instance.o.surroundings_intact() &&
                  (!c.want_lse || instance.lse.surroundings_intact());
  return comparison;
}

std::string ForwardOutcome::message() const {
  std::string text = report.summary();
  if (!comparison.ok) text += "[wrong result] " + comparison.message() + "\n";
  if (report.bank_conflicts != 0)
    text += "[bank conflicts] " + std::to_string(report.bank_conflicts) + " wavefronts too many\n";
  if (expected_mma != 0 && report.count(Op::kMma) != expected_mma)
    text += "[mma count] " + std::to_string(report.count(Op::kMma)) +
            " mma where the tiles imply " + std::to_string(expected_mma) + "\n";
  return text;
}

namespace {
std::vector<ForwardKernel>& registry() {
  static std::vector<ForwardKernel> kernels;
  return kernels;
}
}  // namespace

const std::vector<ForwardKernel>& forward_kernels() { return registry(); }

bool register_kernel(ForwardKernel kernel) {
  auto& kernels = registry();
  const auto place = std::find_if(kernels.begin(), kernels.end(), [&](const ForwardKernel& other) {
    return other.name > kernel.name;
  });
  kernels.insert(place, std::move(kernel));
  return true;
}

const ForwardKernel* find_kernel(const std::string& name) {
  for (const ForwardKernel& kernel : registry()) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

ForwardSetup setup_for(const ForwardKernel& kernel, const std::string& text) {
  const std::string prefix = "nonfinite ";
  const bool non_finite = text.compare(0, prefix.size(), prefix) == 0;
  // Of two words with one key the last one counts.
  const std::string all =
      std::string("dtype=") + (kernel.dtype == DType::kFloat16 ? "float16" : "bfloat16") +
      " d=" + std::to_string(kernel.head_dim) + " dv=" + std::to_string(kernel.head_dim_v) + " " +
      (non_finite ? text.substr(prefix.size()) : text);
  reference::Case c;
  std::string error;
  if (!reference::from_string(all, &c, &error)) {
    std::fprintf(stderr, "%s: %s\n", all.c_str(), error.c_str());
    std::exit(2);
  }
  ForwardSetup setup(c);
  if (non_finite) setup.hide_non_finite();
  return setup;
}

TensorMap host_tensor_map(const TensorMapOperand& operand) {
  HostTensorMap map;
  const int64_t bytes = dtype_bytes(operand.dtype);
  map.data = static_cast<std::byte*>(const_cast<void*>(operand.data));
  map.dims[0] = operand.columns;
  map.dims[1] = operand.rows;
  map.dims[2] = operand.heads;
  map.dims[3] = operand.batch;
  map.strides[0] = bytes;
  map.strides[1] = operand.strides.row * bytes;
  map.strides[2] = operand.strides.head * bytes;
  map.strides[3] = operand.strides.batch * bytes;
  map.box_rows = operand.box_rows;
  map.box_columns = operand.box_columns;
  if (operand.group > 0) {
    map.rank = 5;
    map.dims[2] = operand.group;
    map.dims[3] = operand.heads / operand.group;
    map.dims[4] = operand.batch;
    map.strides[3] = operand.group * operand.strides.head * bytes;
    map.strides[4] = operand.strides.batch * bytes;
    map.box_heads = operand.box_heads;
  }
  TensorMap opaque{};
  std::memcpy(&opaque, &map, sizeof map);
  return opaque;
}

}  // namespace tilefold::lane_machine
