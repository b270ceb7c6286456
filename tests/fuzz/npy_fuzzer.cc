// libFuzzer on the .npy reader: any bytes are read or refused with BadFile, and what is read lies
// in the file.
#include <cstdlib>

#include "cli/io/tensor_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const tilefold::cli::FileTensor tensor = tilefold::cli::parse_npy(file);
    if (!tensor.bytes.empty() && (tensor.bytes.data() < file.data() ||
                                  tensor.bytes.data() + tensor.bytes.size() > file.data() + size)) {
      std::abort();
    }
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) {
      if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) std::abort();
    }
    if (tensor.type.has_value() && elements * tilefold::size_in_bytes(*tensor.type) !=
                                       static_cast<int64_t>(tensor.bytes.size())) {
      std::abort();
    }
    if (tensor.strides().size() != tensor.shape.size()) std::abort();
  } catch (const tilefold::cli::BadFile& error) {
    for (const char* c = error.what(); *c != '\0'; ++c) {
      if (*c == '\n') std::abort();
    }
  }
  return 0;
}
