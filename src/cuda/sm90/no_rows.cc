// The sm90 rows of a build without an architecture that runs them: none.
#include "core/kernel.h"

namespace tilefold {

std::span<const KernelRow> sm90_kernels() { return {}; }

}  // namespace tilefold
