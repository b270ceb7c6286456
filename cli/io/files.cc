// Files as commands use them.
#include "cli/io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

#include "cli/failure.h"

namespace tilefold::cli {
namespace {

constexpr size_t kAlignment = 64;

// Temporary files to remove when a signal ends the program. Slots are claimed under a mutex and
// read by the handler, which may only unlink and re-raise.
constexpr int kMaxCleanups = 16;
constexpr size_t kMaxPathBytes = 4096;
char cleanup_paths[kMaxCleanups][kMaxPathBytes];
std::atomic<bool> cleanup_used[kMaxCleanups];
std::mutex cleanup_mutex;

extern "C" void remove_temporaries(int signal_number) {
  for (int slot = 0; slot < kMaxCleanups; ++slot) {
    if (cleanup_used[slot].load()) unlink(cleanup_paths[slot]);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

int claim_cleanup(const std::string& path) {
  static const bool installed = [] {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, remove_temporaries);
    return true;
  }();
  (void)installed;
  if (path.size() >= kMaxPathBytes) return -1;
  const std::lock_guard lock(cleanup_mutex);
  for (int slot = 0; slot < kMaxCleanups; ++slot) {
    if (cleanup_used[slot].load()) continue;
    std::memcpy(cleanup_paths[slot], path.c_str(), path.size() + 1);
    cleanup_used[slot].store(true);
    return slot;
  }
  return -1;
}

void release_cleanup(int slot) {
  if (slot >= 0) cleanup_used[slot].store(false);
}

}  // namespace

FileBytes::FileBytes(size_t size) : size_(size) {
  const size_t rounded = (size + kAlignment) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (data_ == nullptr) throw std::bad_alloc();
}

void FileBytes::Free::operator()(std::byte* data) const { std::free(data); }

FileBytes read_file(const std::string& path) {
  // O_NONBLOCK: a pipe must not wait here for somebody to write to it.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    fail(ExitCode::kBadInput, "{}: cannot be opened: {}", path, std::strerror(errno));
  }
  struct Closer {
    int descriptor;
    ~Closer() { close(descriptor); }
  } closer{descriptor};
  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    fail(ExitCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    fail(ExitCode::kBadInput, "{}: is {}; a regular file is needed", path,
         S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
  }
  FileBytes bytes(static_cast<size_t>(info.st_size));
  for (size_t at = 0; at < bytes.span().size();) {
    const ssize_t count = ::read(descriptor, bytes.span().data() + at, bytes.span().size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ExitCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
    if (count == 0) fail(ExitCode::kIo, "{}: became shorter while it was read", path);
    at += static_cast<size_t>(count);
  }
  return bytes;
}

bool same_target(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(a, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return false;
  const auto resolved = [&error](const std::string& path) {
    const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
    return error ? fs::path(path) : whole;
  };
  return resolved(a) == resolved(b);
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)), target_(path_) {
  const auto cannot = [&] {
    fail(ExitCode::kIo, "{}: cannot be written: {}", path_, std::strerror(errno));
  };
  struct stat info;
  const bool exists = stat(path_.c_str(), &info) == 0;
  if (exists) {
    if (S_ISDIR(info.st_mode)) {
      fail(ExitCode::kIo, "{}: cannot be written: it is a directory", path_);
    }
    // /dev/stdout, even where the shell has sent that to a file: what was printed stays before it.
    for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
      struct stat other;
      if (fstat(standard, &other) != 0 || other.st_dev != info.st_dev ||
          other.st_ino != info.st_ino) {
        continue;
      }
      descriptor_ = fcntl(standard, F_DUPFD_CLOEXEC, 0);
      if (descriptor_ < 0) cannot();
      return;
    }
    if (!S_ISREG(info.st_mode)) {
      descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
      if (descriptor_ < 0) cannot();
      return;
    }
    if (access(path_.c_str(), W_OK) != 0) cannot();
    // Through a symbolic link, the file that it leads to is replaced, not the link.
    char* resolved = realpath(path_.c_str(), nullptr);
    if (resolved == nullptr) cannot();
    target_ = resolved;
    std::free(resolved);
  }
  static std::atomic<int> counter = 0;
  temporary_ = fmt::format("{}.tilefold-{}-{}", target_, getpid(), counter++);
  cleanup_slot_ = claim_cleanup(temporary_);
  const mode_t mode = exists ? info.st_mode & 0777 : 0666;
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (descriptor_ < 0) {
    release_cleanup(cleanup_slot_);
    cannot();
  }
  // The umask has no say in the mode that a file already has.
  if (exists) (void)fchmod(descriptor_, mode);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      cleanup_slot_(std::exchange(other.cleanup_slot_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  release_cleanup(cleanup_slot_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (temporary_.empty()) std::fflush(stdout);
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ExitCode::kIo, "{}: cannot be written: {}", path_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::commit() {
  // Some file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    fail(ExitCode::kIo, "{}: cannot be written: {}", path_, std::strerror(errno));
  }
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail(ExitCode::kIo, "{}: cannot be written: {}", path_, std::strerror(errno));
  }
  temporary_.clear();
  release_cleanup(std::exchange(cleanup_slot_, -1));
}

}  // namespace tilefold::cli
