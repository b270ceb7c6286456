// Global memory: vector loads and stores of kernel data.
#pragma once

#include <cstdint>

namespace tilefold::ptx {

// PTX ISA, "Data movement and conversion instructions: ld, st". Addresses are aligned to the
// access.
__device__ __forceinline__ void ld_global_v4(uint32_t (&value)[4], const void* address) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "l"(address)
               : "memory");
}

__device__ __forceinline__ float ld_global_f32(const void* address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void ld_global_f32_v4(float (&value)[4], const void* address) {
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
               : "l"(address)
               : "memory");
}

__device__ __forceinline__ void st_global_v4(void* address, const uint32_t (&value)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3])
               : "memory");
}

__device__ __forceinline__ void st_global_f32(void* address, float value) {
  asm volatile("st.global.f32 [%0], %1;" : : "l"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void st_global_f32_v2(void* address, float value0, float value1) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};"
               :
               : "l"(address), "f"(value0), "f"(value1)
               : "memory");
}

}  // namespace tilefold::ptx
