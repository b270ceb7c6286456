// The generic rows of the kernel table.
#include "core/kernel.h"

namespace tilefold {

std::span<const KernelRow> generic_kernels() { return {}; }

}  // namespace tilefold
