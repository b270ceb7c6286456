// A forward problem on the device that a command runs on: inputs there, outputs of its own.
#pragma once

#include <cstddef>
#include <tilefold/tilefold.hpp>
#include <vector>

#include "cli/device_memory.h"
#include "cli/inputs.h"

namespace tilefold::cli {

/// Memory as a tensor on a device, with what owns it.
struct OwnedTensor {
  DeviceMemory memory;
  Tensor tensor;
};

/// Copies of host inputs on `device` (on the CPU the inputs themselves), and O and LSE.
class DeviceProblem {
 public:
  /// \param q, k, v Host tensors [B, H, N, D]; on the CPU they must outlive this.
  /// \param order   How O lies in memory: [B, H, N, Dv] or [B, N, H, Dv].
  DeviceProblem(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v, Device device,
                AxisOrder order = AxisOrder::kBhnd);

  void forward(const Options& options) {
    tilefold::forward(q_, k_, v_, o_.tensor, lse_.tensor, options, &workspace_);
  }
  Explanation explain(const Options& options) const {
    return tilefold::explain(q_, k_, v_, o_.tensor, lse_.tensor, options);
  }
  Device device() const { return device_; }
  const Tensor& o() const { return o_.tensor; }
  const Tensor& lse() const { return lse_.tensor; }

  /// O's and LSE's bytes on the host, in storage order.
  std::vector<std::byte> o_bytes() const { return bytes_of(o_); }
  std::vector<std::byte> lse_bytes() const { return bytes_of(lse_); }

  /// Times of `repetitions` calls, ms, after `warm_ups` untimed ones.
  std::vector<double> time_ms(const Options& options, int warm_ups, int repetitions);

 private:
  ConstTensor place(const ConstTensor& tensor);
  static std::vector<std::byte> bytes_of(const OwnedTensor& owned);

  Device device_;
  std::vector<DeviceMemory> inputs_;
  ConstTensor q_, k_, v_;
  OwnedTensor o_, lse_;
  Workspace workspace_;
};

/// The middle of the times (the mean of the two middle ones); there must be one.
double median(std::vector<double> values);

/// Floating-point operations of a call: 2 (D + Dv) for each visible (query, key) pair.
double forward_flops(const ConstTensor& q, const ConstTensor& v, const Options& options);

/// Bytes that q, k, v and o take, each counted once.
double forward_bytes(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v);

}  // namespace tilefold::cli
