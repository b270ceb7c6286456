// What a compiled row of the sm80 family hands to the host side.
#pragma once

#include "cuda/sm80/config.h"

namespace tilefold::sm80 {

struct CompiledRow {
  const char* name;
  ForwardConfig config;
  const void* kernel;  // as cudaLaunchKernel takes it; its one parameter is a ForwardParams
};

}  // namespace tilefold::sm80
