// Calls after the first allocate nothing, and scratch does not grow with the problem.
#include <dlfcn.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>

#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TILEFOLD_COUNTS_ALLOCATIONS 0
#else
#define TILEFOLD_COUNTS_ALLOCATIONS 1
#endif

#if TILEFOLD_COUNTS_ALLOCATIONS
// Every allocation of the program passes through here.
namespace {
std::atomic<long> num_allocations{0};
std::atomic<size_t> largest_allocation{0};

void note_allocation(size_t bytes) {
  ++num_allocations;
  size_t largest = largest_allocation;
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  note_allocation(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note_allocation(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  note_allocation(bytes);
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note_allocation(bytes);
  return __libc_memalign(alignment, bytes);
}
}
#endif

namespace tilefold::cpu_test {
namespace {

using reference::Case;
using reference::DType;

TEST(CpuMemoryTest, NoAllocationAfterTheFirstCall) {
#if TILEFOLD_COUNTS_ALLOCATIONS
  for (const int num_threads : {1, 2, 4}) {
    for (const DType dtype : kDTypes) {
      const Case cases[] = {make_case(dtype, 2, 1, 300, 300, 64, 64, 1),
                            make_case(dtype, 2, 1, 2, 5000, 64, 64, 0),
                            make_case(dtype, 1, 1, 33, 65, 59, 111, 2)};
      for (const Case& c : cases) {
        reference::Instance instance = reference::make_instance(c);
        ASSERT_EQ(run(instance, num_threads), TILEFOLD_OK);
        const long before = num_allocations;
        for (int repeat = 0; repeat < 3; ++repeat) {
          ASSERT_EQ(run(instance, num_threads), TILEFOLD_OK);
        }
        EXPECT_EQ(num_allocations - before, 0) << c.to_string() << " threads " << num_threads;
      }
    }
  }
#else
  GTEST_SKIP() << "a sanitizer owns malloc";
#endif
}

TEST(CpuMemoryTest, ScratchDoesNotGrowWithTheProblem) {
#if TILEFOLD_COUNTS_ALLOCATIONS
  Case c = make_case(DType::kFloat32, 1, 1, 1024, 1024, 128, 128, 1);
  reference::Instance small = reference::make_instance(c);
  c.seqlen_q = c.seqlen_k = 4096;
  reference::Instance large = reference::make_instance(c);
  ASSERT_EQ(run(small, 2), TILEFOLD_OK);
  largest_allocation = 0;
  ASSERT_EQ(run(large, 2), TILEFOLD_OK);
  EXPECT_LE(largest_allocation, size_t{4} << 20);
#else
  GTEST_SKIP() << "a sanitizer owns malloc";
#endif
}

}  // namespace
}  // namespace tilefold::cpu_test
