// What the CPU back end asks of the machine: instruction sets, cache sizes, a name.
#pragma once

#include <cstdint>

namespace tilefold::cpu {

struct Processor {
  char name[128] = "";
  int64_t l1d_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t last_level_bytes = 0;

  // x86 instruction sets, as Highway groups them; each also means that the system saves the
  // registers. All false elsewhere.
  bool sse4 = false;      // SSE 4.2, PCLMUL, AES
  bool avx2 = false;      // AVX2, FMA, BMI1/2, F16C, LZCNT
  bool avx512 = false;    // AVX-512 F, CD, BW, DQ, VL
  bool amx_bf16 = false;  // AMX tiles and TDPBF16PS, with AVX512-BF16, granted to this process
};

// Read once, on the first call.
const Processor& processor();

}  // namespace tilefold::cpu
