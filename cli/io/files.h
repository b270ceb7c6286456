// Files as commands use them: read whole, written under a temporary name and renamed when complete.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tilefold::cli {

/// A file's bytes, aligned to 64 so that tensors in it mostly lie where their type wants them.
class FileBytes {
 public:
  explicit FileBytes(size_t size);
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_;
};

/// Reads a whole file. \throws Failure (bad input: missing, not a file; I/O: reading failed)
FileBytes read_file(const std::string& path);

/// Whether what is written to `a` replaces what is at `b`, or would be: their resolved names are
/// the same, and are of no device or pipe, to which several may write.
bool same_target(const std::string& a, const std::string& b);

/// An output file that appears under its name only when it is complete.
///
/// The constructor creates `<path>.tilefold-<pid>-<n>` beside it, so that an unwritable place is
/// known before any work; commit() renames it; without commit(), or on SIGINT, SIGTERM or SIGHUP,
/// it is removed. A path that exists and is no regular file (a pipe, a device), or is what stdout
/// or stderr goes to, is written to directly.
class OutputFile {
 public:
  /// \throws Failure (I/O)
  explicit OutputFile(std::string path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Makes the file appear. \throws Failure (I/O)
  void commit();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string target_;     // path_, symbolic links followed
  std::string temporary_;  // empty: written to directly
  int descriptor_ = -1;
  int cleanup_slot_ = -1;
};

}  // namespace tilefold::cli
