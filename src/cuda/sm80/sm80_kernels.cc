// The sm80 rows of the kernel table.
#include "core/kernel.h"

namespace tilefold {

std::span<const KernelRow> sm80_kernels() { return {}; }

}  // namespace tilefold
