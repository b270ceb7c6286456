// Memory on the host for a call's scratch.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace tilefold::python {

constexpr size_t kWorkspaceAlignment = 256;

constexpr size_t workspace_size(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

struct FreeDeleter {
  void operator()(void* pointer) const { std::free(pointer); }
};
using HostMemory = std::unique_ptr<void, FreeDeleter>;

// `bytes` is a workspace_size(); null where there is no memory.
inline HostMemory allocate_on_host(size_t bytes) {
  return HostMemory(std::aligned_alloc(kWorkspaceAlignment, bytes));
}

}  // namespace tilefold::python
