// Random problems on every GPU row. TILEFOLD_GPU_FUZZ=<n> draws n problems a row instead of the
// ordinary few, TILEFOLD_GPU_FUZZ_SEED=<s> others, and TILEFOLD_GPU_CASE="<case>" runs one case, as
// a failure prints it.
#include <cstdlib>
#include <string>

#include "gpu_test.h"

namespace tilefold::gpu_test {
namespace {

class FuzzTest : public RowTest {};
TILEFOLD_GPU_ROWS(FuzzTest);

int64_t environment_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && text[0] != '\0' ? std::atoll(text) : otherwise;
}

TEST_P(FuzzTest, RandomProblems) {
  if (const char* text = std::getenv("TILEFOLD_GPU_CASE"); text != nullptr && text[0] != '\0') {
    Case c;
    std::string error;
    ASSERT_TRUE(reference::from_string(text, &c, &error)) << error;
    check(c);
    return;
  }
  constexpr int64_t kOrdinaryCount = 60;
  const int64_t count = environment_number("TILEFOLD_GPU_FUZZ", kOrdinaryCount);
  const auto first = static_cast<uint64_t>(environment_number("TILEFOLD_GPU_FUZZ_SEED", 1000));
  reference::CaseLimits limits;
  limits.dtypes = {GetParam().dtype};
  limits.max_seqlen = 400;
  if (GetParam().head_dim > 0) {
    for (int64_t d = GetParam().head_dim; d > 0 && d > GetParam().head_dim - 32; d -= 8) {
      limits.head_dims.push_back(d);
    }
    limits.different_dv = GetParam().head_dim != GetParam().head_dim_v;
  }
  for (int64_t n = 0; n < count; ++n) {
    // Two of three with contiguous or [B, N, H, D] storage: not every row takes any strides.
    limits.any_strides = n % 3 == 0;
    Case c = reference::random_case(first + static_cast<uint64_t>(n), limits);
    if (GetParam().head_dim != GetParam().head_dim_v && n % 2 == 0) {
      c.head_dim_v = GetParam().head_dim_v;
      c.v.strides.clear();
      c.o.strides.clear();
    }
    check(c);
  }
}

}  // namespace
}  // namespace tilefold::gpu_test
