// Status names and the per-thread error sentence.
#include "core/status.h"

#include <cstdarg>
#include <cstdio>

namespace tilefold {
namespace {

thread_local char last_error_text[1024] = "";

}  // namespace

tilefold_status fail(tilefold_status status, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::vsnprintf(last_error_text, sizeof(last_error_text), format, args);
  va_end(args);
  return status;
}

const char* last_error() { return last_error_text; }

void Reason::set(const char* format, ...) {
  if (!wanted) return;
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
}

}  // namespace tilefold

extern "C" {

const char* tilefold_version(void) { return TILEFOLD_VERSION_STRING; }

const char* tilefold_status_string(tilefold_status status) {
  switch (status) {
    case TILEFOLD_OK: return "ok";
    case TILEFOLD_ERROR_INVALID_ARGUMENT: return "invalid argument";
    case TILEFOLD_ERROR_UNSUPPORTED: return "unsupported";
    case TILEFOLD_ERROR_WORKSPACE: return "workspace";
    case TILEFOLD_ERROR_DEVICE: return "device not usable";
    case TILEFOLD_ERROR_CUDA: return "CUDA error";
    case TILEFOLD_ERROR_OUT_OF_MEMORY: return "out of memory";
    case TILEFOLD_ERROR_INTERNAL: return "internal error";
  }
  return "unknown status";
}

const char* tilefold_last_error(void) { return tilefold::last_error(); }

}  // extern "C"
