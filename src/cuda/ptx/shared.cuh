// Shared memory: its addresses, and loads and stores of kernel data.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

constexpr int kDynamicSharedAlignment = 1024;  // what TMA's 128-byte swizzle asks of a tile

// The first byte of the CTA's dynamic shared memory.
__device__ __forceinline__ unsigned char* dynamic_shared_memory() {
  extern __shared__ __align__(kDynamicSharedAlignment) unsigned char tilefold_dynamic_shared[];
  return tilefold_dynamic_shared;
}

// A generic pointer into shared memory as the 32-bit address that the instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// PTX ISA, "Data movement and conversion instructions: ld, st". Addresses are aligned to the
// access.
__device__ __forceinline__ uint32_t ld_shared_u32(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ void ld_shared_v4(uint32_t (&value)[4], uint32_t address) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ float ld_shared_f32(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ void st_shared_u32(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void st_shared_v4(uint32_t address, const uint32_t (&value)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3])
               : "memory");
}

__device__ __forceinline__ void st_shared_f32(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" : : "r"(address), "f"(value) : "memory");
}

}  // namespace tilefold::ptx
