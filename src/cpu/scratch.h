// Memory that a thread keeps between calls, so that repeated calls allocate nothing.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace tilefold::cpu {

class ScratchBuffer {
 public:
  ScratchBuffer() = default;
  ~ScratchBuffer() { std::free(data_); }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;

  // At least `bytes` bytes, aligned to kAlignment, contents undefined; null if memory ran out.
  // Valid until the next call.
  std::byte* reserve(size_t bytes) {
    if (bytes <= bytes_) return data_;
    std::free(data_);
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    bytes_ = data_ != nullptr ? rounded : 0;
    return data_;
  }

 private:
  static constexpr size_t kAlignment = 4096;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tilefold::cpu
