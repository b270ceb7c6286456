// What the host versions of src/cuda/ptx/ are made of: each call is one lane executing one
// instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lane_machine/machine.h"

namespace tilefold::lane_machine::device {

// Warp-wide instructions: the lane waits until all lanes of the warp have come to the same one.
void mma_m16n8k16(bool bfloat, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  const Site& site);
void ldmatrix(uint32_t* r, int num_matrices, bool transpose, uint32_t address, const Site& site);
void stmatrix(const uint32_t* r, int num_matrices, bool transpose, uint32_t address,
              const Site& site);
uint32_t shuffle(uint32_t value, int source_lane, const Site& site);  // of this lane's choosing
uint32_t ballot(bool predicate, const Site& site);
void sync_warp(const Site& site);
int lane_in_warp();

// One lane's accesses.
unsigned char* shared_memory();
uint32_t shared_address(const void* pointer);
void load_shared(void* value, uint32_t address, int bytes, const Site& site);
void store_shared(uint32_t address, const void* value, int bytes, const Site& site);
void load_global(void* value, const void* address, int bytes, const Site& site);
void store_global(void* address, const void* value, int bytes, const Site& site);

void cp_async(uint32_t shared, const void* global, int bytes, int source_bytes, const Site& site);
void cp_async_commit(const Site& site);
void cp_async_wait(int pending, const Site& site);

// Barriers of the CTA. `num_threads` 0 = all of the CTA. Returns the OR of the predicates.
bool barrier(int id, int num_threads, bool predicate, const Site& site);
void barrier_arrive(int id, int num_threads, const Site& site);

// Hopper. Barriers are named by shared address.
void mbarrier_init(uint32_t barrier, uint32_t count, const Site& site);
void mbarrier_arrive(uint32_t barrier, uint32_t expect_bytes, const Site& site);
void mbarrier_wait(uint32_t barrier, uint32_t parity, const Site& site);
void fence_proxy_async(const Site& site);
void fence_mbarrier_init(const Site& site);
// Coordinates: as many as the map has dimensions, `rank`.
void tma_load(uint32_t destination, const void* map, uint32_t barrier, int rank, const BoxPlace& at,
              const Site& site);
void tma_store(const void* map, uint32_t source, int rank, const BoxPlace& at, const Site& site);
void tma_store_commit(const Site& site);
void tma_store_wait_read(int pending, const Site& site);
void tma_store_wait(const Site& site);
void wgmma_fence(const Site& site);
void wgmma_commit(const Site& site);
void wgmma_wait(int pending, const Site& site);
// D (64 x n) = A B + (accumulate ? D : 0); A from `a_registers`, or where that is null from
// `a_descriptor`, K-major; B K-major, or MN-major where b_transposed.
void wgmma(int n, bool bfloat, float* d, const uint32_t* a_registers, uint64_t a_descriptor,
           uint64_t b_descriptor, bool b_transposed, bool accumulate, const Site& site);
void setmaxnreg(int registers, bool increase, const Site& site);
bool elect_one(const Site& site);
uint32_t atomic_add(uint32_t* address, uint32_t value, const Site& site);
void atomic_store(void* address, const void* value, int bytes, const Site& site);
[[noreturn]] void wait_forever(const Site& site);  // for what no lane of this CTA will bring

void count_op(Op op);  // lane-level bookkeeping of arithmetic

}  // namespace tilefold::lane_machine::device
