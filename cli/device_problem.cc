// A forward problem on the device that a command runs on.
#include "cli/device_problem.h"

#include <algorithm>

#include "cli/failure.h"
#include "cli/io/tensor_file.h"
#include "cli/mask.h"

namespace tilefold::cli {
namespace {

OwnedTensor make_output(DataType type, const Extents& storage_shape, bool swap_1_2, Device device) {
  int64_t bytes = size_in_bytes(type);
  for (const int64_t extent : storage_shape) {
    // The inputs' own sizes were checked; an output mixes their extents.
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      fail(ExitCode::kLibraryRefused,
           "an output of shape {} has more bytes than a signed 64-bit number can count",
           shape_text({storage_shape.data(), storage_shape.size()}));
    }
  }
  DeviceMemory memory(device, static_cast<size_t>(bytes));
  Tensor tensor(memory.data(), type, storage_shape, {}, device);
  if (swap_1_2) tensor = tensor.swap_axes(1, 2);
  return {std::move(memory), tensor};
}

OwnedTensor make_o(const ConstTensor& q, const ConstTensor& v, Device device, AxisOrder order) {
  const int64_t batch = q.shape()[0], heads = q.shape()[1], rows = q.shape()[2];
  const bool swapped = order == AxisOrder::kBnhd;
  return make_output(q.type(),
                     {batch, swapped ? rows : heads, swapped ? heads : rows, v.shape()[3]}, swapped,
                     device);
}

}  // namespace

DeviceProblem::DeviceProblem(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                             Device device, AxisOrder order)
    : device_(device),
      q_(place(q)),
      k_(place(k)),
      v_(place(v)),
      o_(make_o(q, v, device, order)),
      lse_(make_output(DataType::kFloat32, {q.shape()[0], q.shape()[1], q.shape()[2]}, false,
                       device)),
      workspace_(make_workspace(device)) {}

ConstTensor DeviceProblem::place(const ConstTensor& tensor) {
  if (device_.type == kDLCPU) return tensor;
  // Files and conversions hold tensors without gaps, in some order of the axes.
  const auto bytes = static_cast<size_t>(tensor.num_elems() * size_in_bytes(tensor.type()));
  inputs_.emplace_back(device_, bytes);
  inputs_.back().upload({static_cast<const std::byte*>(tensor.data()), bytes});
  return ConstTensor(inputs_.back().data(), tensor.type(), tensor.shape(), tensor.strides(),
                     device_);
}

std::vector<std::byte> DeviceProblem::bytes_of(const OwnedTensor& owned) {
  std::vector<std::byte> bytes(owned.memory.size_bytes());
  owned.memory.download(bytes);
  return bytes;
}

std::vector<double> DeviceProblem::time_ms(const Options& options, int warm_ups, int repetitions) {
  for (int i = 0; i < warm_ups; ++i) forward(options);
  synchronize(device_);
  Stopwatch stopwatch(device_);
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    stopwatch.start();
    forward(options);
    times.push_back(stopwatch.stop_ms());
  }
  return times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double forward_flops(const ConstTensor& q, const ConstTensor& v, const Options& options) {
  const double pairs = static_cast<double>(visible_pairs(options, q.shape()[2], v.shape()[2]));
  return 2.0 * static_cast<double>(q.shape()[3] + v.shape()[3]) * pairs *
         static_cast<double>(q.shape()[0] * q.shape()[1]);
}

double forward_bytes(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v) {
  const double o_elems = static_cast<double>(q.shape()[0] * q.shape()[1] * q.shape()[2]) *
                         static_cast<double>(v.shape()[3]);
  const double input_elems = static_cast<double>(q.num_elems() + k.num_elems() + v.num_elems());
  return (o_elems + input_elems) * static_cast<double>(size_in_bytes(q.type()));
}

}  // namespace tilefold::cli
