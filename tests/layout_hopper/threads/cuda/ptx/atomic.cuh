// src/cuda/ptx/atomic.cuh for threads of the host, each of which stands for a CTA. Before an
// operation a thread may sleep or let others run: what lies between two of them is nanoseconds
// otherwise, and CTAs would in effect come one after another.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <thread>

#define __device__
#define __forceinline__ inline

namespace tilefold::ptx {

inline void others_may_come_first() {
  static thread_local std::minstd_rand random(
      static_cast<unsigned>(std::hash<std::thread::id>{}(std::this_thread::get_id())));
  const unsigned choice = static_cast<unsigned>(random() >> 8) % 4;
  if (choice == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
  if (choice == 1) std::this_thread::yield();
}

inline uint32_t atomic_add_relaxed(uint32_t* address, uint32_t value) {
  others_may_come_first();
  return std::atomic_ref(*address).fetch_add(value, std::memory_order_relaxed);
}

inline void atomic_store_relaxed(uint32_t* address, uint32_t value) {
  others_may_come_first();
  std::atomic_ref(*address).store(value, std::memory_order_relaxed);
}

inline void atomic_store_relaxed(uint64_t* address, uint64_t value) {
  others_may_come_first();
  std::atomic_ref(*address).store(value, std::memory_order_relaxed);
}

inline void atomic_store_release(uint64_t* address, uint64_t value) {
  others_may_come_first();
  std::atomic_ref(*address).store(value, std::memory_order_release);
}

inline uint64_t atomic_load_acquire(const uint64_t* address) {
  others_may_come_first();
  return std::atomic_ref(*const_cast<uint64_t*>(address)).load(std::memory_order_acquire);
}

inline uint64_t atomic_compare_and_swap_relaxed(uint64_t* address, uint64_t expected,
                                                uint64_t desired) {
  others_may_come_first();
  std::atomic_ref(*address).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
  return expected;
}

inline void atomic_wait_acquire(const uint64_t* address, uint64_t value) {
  while (atomic_load_acquire(address) != value) std::this_thread::yield();
}

}  // namespace tilefold::ptx
