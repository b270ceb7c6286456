// The XLA foreign function interface, as far as the handler uses it: the C layouts that XLA calls
// with. Declared here, with names of our own, so that the build needs no jaxlib; they are XLA's
// binary interface, version 0.x ("XLA FFI C API").
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilefold::python::xla {

struct Error;    // opaque
struct Context;  // opaque

struct Extension {
  size_t struct_bytes;
  int32_t type;
  Extension* next;
};
constexpr int32_t kMetadataExtension = 1;

struct Version {
  size_t struct_bytes;
  Extension* extensions;
  int major;
  int minor;
};

struct Metadata {
  size_t struct_bytes;
  Version api_version;
  uint32_t traits;
  int64_t state_type_id;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum class DataType : int32_t { kS32 = 4, kS64 = 5, kF16 = 10, kF32 = 11, kBF16 = 16 };

struct Buffer {
  size_t struct_bytes;
  Extension* extensions;
  DataType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct ByteSpan {
  const char* data;
  size_t size;
};

enum class AttributeType : int32_t { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

struct Scalar {
  DataType dtype;
  void* value;
};

struct Buffers {
  size_t struct_bytes;
  Extension* extensions;
  int64_t size;
  int32_t* types;  // all 1: a Buffer
  Buffer** buffers;
};

struct Attributes {
  size_t struct_bytes;
  Extension* extensions;
  int64_t size;
  AttributeType* types;
  ByteSpan** names;
  void** values;
};

enum class ErrorCode : int32_t {
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13
};

struct ErrorCreate {
  size_t struct_bytes;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};

struct StreamGet {
  size_t struct_bytes;
  Extension* extensions;
  Context* context;
  void* stream;
};

struct DeviceOrdinalGet {
  size_t struct_bytes;
  Extension* extensions;
  Context* context;
  int32_t ordinal;
};

struct DeviceMemoryAllocate {
  size_t struct_bytes;
  Extension* extensions;
  Context* context;
  size_t size;
  size_t alignment;
  void* data;
};

struct DeviceMemoryFree {
  size_t struct_bytes;
  Extension* extensions;
  Context* context;
  size_t size;
  void* data;
};

struct Api {
  size_t struct_bytes;
  Extension* extensions;
  Version api_version;
  const void* internal;
  Error* (*error_create)(ErrorCreate*);
  void (*error_get_details)(void*);
  void (*error_destroy)(void*);
  Error* (*handler_register)(void*);
  Error* (*stream_get)(StreamGet*);
  Error* (*type_register)(void*);
  Error* (*context_get)(void*);
  Error* (*state_set)(void*);
  Error* (*state_get)(void*);
  Error* (*device_memory_allocate)(DeviceMemoryAllocate*);
  Error* (*device_memory_free)(DeviceMemoryFree*);
  Error* (*thread_pool_schedule)(void*);
  Error* (*thread_pool_num_threads)(void*);
  Error* (*future_create)(void*);
  Error* (*future_set_available)(void*);
  Error* (*future_set_error)(void*);
  Error* (*run_id_get)(void*);
  Error* (*device_ordinal_get)(DeviceOrdinalGet*);
};

struct CallFrame {
  size_t struct_bytes;
  Extension* extensions;
  const Api* api;
  Context* context;
  int32_t stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};

}  // namespace tilefold::python::xla
