// A tensor in host memory with any strides, surrounded by poison.
#include "host_tensor.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

namespace tilefold::reference {
namespace {

constexpr size_t kAlignment = 64;

// Quiet NaNs whose payloads no arithmetic produces.
uint32_t poison_bits(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 0x7fe5b1adu;
    case DType::kFloat16: return 0x7ed5u;
    case DType::kBFloat16: return 0x7fd5u;
  }
  return 0;
}

struct Extent {
  int64_t lowest = 0;  // element offsets relative to index 0
  int64_t highest = -1;
};

// \throws std::bad_alloc where an offset does not fit 64 bits: no memory holds such a tensor
Extent extent_of(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  Extent extent{0, 0};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) return {0, -1};
    if (shape[axis] == 1) continue;
    int64_t reach;
    if (__builtin_mul_overflow(shape[axis] - 1, strides[axis], &reach)) throw std::bad_alloc();
    int64_t& end = reach < 0 ? extent.lowest : extent.highest;
    if (__builtin_add_overflow(end, reach, &end)) throw std::bad_alloc();
  }
  return extent;
}

}  // namespace

std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[axis], 1), &stride)) {
      throw std::bad_alloc();
    }
  }
  return strides;
}

void for_each_index(std::span<const int64_t> shape,
                    const std::function<void(std::span<const int64_t>)>& function) {
  for (int64_t extent : shape) {
    if (extent == 0) return;
  }
  std::vector<int64_t> index(shape.size(), 0);
  while (true) {
    function(index);
    size_t axis = shape.size();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

void HostTensor::Free::operator()(std::byte* pointer) const { std::free(pointer); }

HostTensor::HostTensor(DType dtype, std::vector<int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), strides_(contiguous_strides(shape_)) {
  allocate(0);
}

HostTensor::HostTensor(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                       int64_t offset_elems)
    : dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)) {
  allocate(offset_elems);
}

void HostTensor::allocate(int64_t offset_elems) {
  const Extent extent = extent_of(shape_, strides_);
  int64_t elements, bytes;
  if (__builtin_sub_overflow(extent.highest, extent.lowest, &elements) ||
      __builtin_add_overflow(elements, 1 + 2 * kGuardElements, &elements) ||
      __builtin_add_overflow(elements, offset_elems, &elements) ||
      __builtin_mul_overflow(elements, dtype_bytes(dtype_), &bytes) ||
      bytes > std::numeric_limits<int64_t>::max() - int64_t{kAlignment}) {
    throw std::bad_alloc();
  }
  memory_bytes_ = static_cast<size_t>(bytes + kAlignment - 1) / kAlignment * kAlignment;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, memory_bytes_)));
  if (memory_ == nullptr) throw std::bad_alloc();
  poison();
  dl_.data = memory_.get();
  dl_.byte_offset =
      static_cast<uint64_t>((kGuardElements + offset_elems - extent.lowest) * dtype_bytes(dtype_));
  // Half of the tensors in practice carry an offset in the pointer, half in byte_offset; the
  // pointer is the usual way.
  dl_.data = memory_.get() + dl_.byte_offset;
  dl_.byte_offset = 0;
  dl_.device = {kDLCPU, 0};
  dl_.dtype = to_dl(dtype_);
  dl_.ndim = static_cast<int32_t>(shape_.size());
  dl_.shape = shape_.data();
  dl_.strides = strides_.data();
}

HostTensor HostTensor::clone() const {
  HostTensor copy(dtype_, shape_, strides_,
                  (data_offset_bytes() / dtype_bytes(dtype_)) - kGuardElements +
                      extent_of(shape_, strides_).lowest);
  std::copy_n(memory_.get(), std::min(memory_bytes_, copy.memory_bytes_), copy.memory_.get());
  return copy;
}

int64_t HostTensor::data_offset_bytes() const {
  return static_cast<std::byte*>(dl_.data) - memory_.get();
}

int64_t HostTensor::num_elements() const {
  int64_t count = 1;
  for (int64_t extent : shape_) count *= extent;
  return count;
}

std::byte* HostTensor::address(std::span<const int64_t> index) const {
  int64_t offset = 0;
  for (size_t axis = 0; axis < index.size(); ++axis) {
    if (shape_[axis] > 1) offset += index[axis] * strides_[axis];
  }
  return static_cast<std::byte*>(dl_.data) + offset * dtype_bytes(dtype_);
}

float HostTensor::get(std::span<const int64_t> index) const {
  return load_element(dtype_, address(index));
}

void HostTensor::set(std::span<const int64_t> index, float value) {
  store_element(dtype_, address(index), value);
}

uint32_t HostTensor::bits_at(std::span<const int64_t> index) const {
  uint32_t bits = 0;
  std::memcpy(&bits, address(index), dtype_bytes(dtype_));
  return bits;
}

void HostTensor::fill(const std::function<float(std::span<const int64_t>)>& function) {
  for_each_index(shape_, [&](std::span<const int64_t> index) { set(index, function(index)); });
}

void HostTensor::fill(float value) {
  fill([value](std::span<const int64_t>) { return value; });
}

void HostTensor::poison() {
  const uint32_t bits = poison_bits(dtype_);
  const size_t step = static_cast<size_t>(dtype_bytes(dtype_));
  for (size_t at = 0; at + step <= memory_bytes_; at += step) {
    std::memcpy(memory_.get() + at, &bits, step);
  }
}

bool HostTensor::untouched() const {
  const uint32_t bits = poison_bits(dtype_);
  const size_t step = static_cast<size_t>(dtype_bytes(dtype_));
  for (size_t at = 0; at + step <= memory_bytes_; at += step) {
    if (std::memcmp(memory_.get() + at, &bits, step) != 0) return false;
  }
  return true;
}

bool HostTensor::surroundings_intact() const {
  const uint32_t bits = poison_bits(dtype_);
  const size_t step = static_cast<size_t>(dtype_bytes(dtype_));
  std::vector<bool> owned(memory_bytes_ / step, false);
  for_each_index(shape_, [&](std::span<const int64_t> index) {
    owned[static_cast<size_t>(address(index) - memory_.get()) / step] = true;
  });
  for (size_t slot = 0; slot < owned.size(); ++slot) {
    if (!owned[slot] && std::memcmp(memory_.get() + slot * step, &bits, step) != 0) return false;
  }
  return true;
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  bool same = true;
  for_each_index(a.shape(), [&](std::span<const int64_t> index) {
    same = same && a.bits_at(index) == b.bits_at(index);
  });
  return same;
}

}  // namespace tilefold::reference
