// What the binding uses of DLPack 1.x beyond the tensor itself: managed tensors as capsules carry
// them, and the table of C functions that a library's array type may publish. Declared here, with
// names of our own, because the system's <dlpack/dlpack.h> may predate them; the layouts are
// DLPack's binary interface (DLPack 1.3, "Python specification").
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>

namespace tilefold::python {

struct DlpackVersion {
  uint32_t major;
  uint32_t minor;
};

// Capsule "dltensor": versions before 1.0.
struct ManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(ManagedTensor* self);
};

// Capsule "dltensor_versioned".
struct ManagedTensorVersioned {
  DlpackVersion version;
  void* context;
  void (*deleter)(ManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor tensor;
};

constexpr uint64_t kDlpackReadOnly = 1;  // bit 0 of flags

// type(array).__dlpack_c_exchange_api__, a capsule of this name. None of the functions waits for a
// stream.
constexpr char kExchangeCapsule[] = "dlpack_exchange_api";

struct ExchangeApi {
  struct Header {
    DlpackVersion version;
    Header* previous;
  } header;
  int (*allocate)(DLTensor* prototype, ManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensorVersioned** out);
  int (*object_from_managed)(ManagedTensorVersioned* tensor, void** out);
  // Fills `out` with pointers that live as long as the object; may be null.
  int (*view_object)(void* object, DLTensor* out);
  int (*current_stream)(DLDeviceType type, int32_t id, void** out);
};

}  // namespace tilefold::python
