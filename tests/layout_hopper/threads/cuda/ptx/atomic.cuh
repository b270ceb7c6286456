// src/cuda/ptx/atomic.cuh for threads of the host, each of which stands for a CTA.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#define __device__
#define __forceinline__ inline

namespace tilefold::ptx {

inline uint32_t atomic_add_relaxed(uint32_t* address, uint32_t value) {
  return std::atomic_ref(*address).fetch_add(value, std::memory_order_relaxed);
}

inline void atomic_store_relaxed(uint32_t* address, uint32_t value) {
  std::atomic_ref(*address).store(value, std::memory_order_relaxed);
}

inline void atomic_store_relaxed(uint64_t* address, uint64_t value) {
  std::atomic_ref(*address).store(value, std::memory_order_relaxed);
}

inline void atomic_store_release(uint64_t* address, uint64_t value) {
  std::atomic_ref(*address).store(value, std::memory_order_release);
}

inline uint64_t atomic_load_acquire(const uint64_t* address) {
  return std::atomic_ref(*const_cast<uint64_t*>(address)).load(std::memory_order_acquire);
}

inline uint64_t atomic_compare_and_swap_relaxed(uint64_t* address, uint64_t expected,
                                                uint64_t desired) {
  std::atomic_ref(*address).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
  return expected;
}

inline void atomic_wait_acquire(const uint64_t* address, uint64_t value) {
  while (atomic_load_acquire(address) != value) std::this_thread::yield();
}

}  // namespace tilefold::ptx
