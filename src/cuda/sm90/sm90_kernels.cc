// The sm90 rows of the kernel table.
#include "core/kernel.h"

namespace tilefold {

std::span<const KernelRow> sm90_kernels() { return {}; }

}  // namespace tilefold
