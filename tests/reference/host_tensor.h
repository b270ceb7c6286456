// A tensor in host memory with any strides, surrounded and interleaved by poison that tells stray
// reads and writes.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "number_formats.h"

namespace tilefold::reference {

// Owns its memory: every byte starts as a NaN of a payload of its own ("poison"), and
// kGuardElements of them lie before the lowest and after the highest element. Strides may be
// negative, 0 or padded. Movable; copy with clone().
class HostTensor {
 public:
  static constexpr int64_t kGuardElements = 256;

  HostTensor() = default;
  // Contiguous.
  HostTensor(DType dtype, std::vector<int64_t> shape);
  // With strides in elements. The lowest element's address is a multiple of 64 bytes plus
  // `offset_elems` elements.
  HostTensor(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
             int64_t offset_elems = 0);
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;

  HostTensor clone() const;

  // What the C interface takes. Pointers in it live as long as this tensor, moves included.
  const DLTensor* dl() const { return &dl_; }
  DLTensor* dl() { return &dl_; }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  int64_t num_elements() const;

  // Element access by index, one per axis.
  float get(std::span<const int64_t> index) const;
  void set(std::span<const int64_t> index, float value);
  template <typename... I>
  float at(I... index) const {
    const int64_t indices[] = {static_cast<int64_t>(index)...};
    return get(indices);
  }
  template <typename... I>
  void put(float value, I... index) {
    const int64_t indices[] = {static_cast<int64_t>(index)...};
    set(indices, value);
  }
  uint32_t bits_at(std::span<const int64_t> index) const;

  // Sets every element to function(index). With stride 0 the last index in row-major order stands.
  void fill(const std::function<float(std::span<const int64_t>)>& function);
  void fill(float value);
  // Sets all bytes, elements, gaps and guards, back to poison.
  void poison();

  // Whether every byte that belongs to no element is still poison.
  bool surroundings_intact() const;
  // Whether every byte, elements too, is still poison: nothing was written.
  bool untouched() const;

  // Memory as a whole (guards included), for bit comparisons and copies to a device:
  // `data_offset_bytes()` is where the element of index (0, 0, ...) lies in it.
  std::span<const std::byte> memory() const { return {memory_.get(), memory_bytes_}; }
  std::span<std::byte> memory() { return {memory_.get(), memory_bytes_}; }
  int64_t data_offset_bytes() const;

 private:
  struct Free {
    void operator()(std::byte* pointer) const;
  };
  std::byte* address(std::span<const int64_t> index) const;
  void allocate(int64_t offset_elems);

  DType dtype_ = DType::kFloat32;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  std::unique_ptr<std::byte[], Free> memory_;
  size_t memory_bytes_ = 0;
  DLTensor dl_ = {};
};

// Row-major strides of a shape.
std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape);

// Calls function(index) for every index of `shape` in row-major order.
void for_each_index(std::span<const int64_t> shape,
                    const std::function<void(std::span<const int64_t>)>& function);

// Whether two tensors of one shape and dtype hold the same bits in every element (any strides).
bool same_bits(const HostTensor& a, const HostTensor& b);

}  // namespace tilefold::reference
