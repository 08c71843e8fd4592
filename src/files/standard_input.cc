// SPDX-License-Identifier: Apache-2.0
//
// Reads one .npy file from standard input. The claimed size is not trusted: the buffer doubles as
// bytes arrive, up to the required size.

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fovea/error.h"

#include "files/content.h"
#include "files/npy_header.h"

namespace fovea::files {
namespace {

constexpr std::size_t kFirst = std::size_t{1} << 16;

/// Growing byte buffer, based on realloc, which on Linux can move large blocks without copying.
class Arrived {
 public:
  explicit Arrived(const std::string& name) : name_(name) { reserve(kFirst); }
  ~Arrived() { std::free(bytes_); }
  Arrived(const Arrived&) = delete;
  Arrived& operator=(const Arrived&) = delete;

  std::span<const std::byte> bytes() const { return {bytes_, size_}; }

  /// Reads until the buffer has `wanted` bytes or the input ends.
  void read_until(std::size_t wanted) {
    while (size_ < wanted) {
      if (size_ == capacity_) reserve(std::min(wanted, 2 * capacity_));
      const std::size_t room = std::min(wanted, capacity_) - size_;
      const ssize_t count = ::read(STDIN_FILENO, bytes_ + size_, room);
      if (count == 0) return;
      if (count < 0 && errno != EINTR) {
        throw IoError(
            fmt::format("{}: cannot be read: {}", name_, std::generic_category().message(errno)));
      }
      if (count > 0) size_ += static_cast<std::size_t>(count);
    }
  }

  FileBytes release() {
    std::shared_ptr<const void> owner(bytes_,
                                      [](const void* p) { std::free(const_cast<void*>(p)); });
    const FileBytes result = {bytes(), owner};
    bytes_ = nullptr;
    return result;
  }

 private:
  void reserve(std::size_t capacity) {
    void* larger = std::realloc(bytes_, capacity);
    if (larger == nullptr) throw std::bad_alloc();
    bytes_ = static_cast<std::byte*>(larger);
    capacity_ = capacity;
  }

  const std::string& name_;
  std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// Returns whether standard input is a regular file at offset 0, which can be mapped.
bool is_whole_file() {
  struct stat status {};
  return ::fstat(STDIN_FILENO, &status) == 0 && S_ISREG(status.st_mode) &&
         ::lseek(STDIN_FILENO, 0, SEEK_CUR) == 0;
}

}  // namespace

FileBytes read_standard_input(const std::string& name) {
  if (is_whole_file()) return map_descriptor(STDIN_FILENO, name);
  Arrived arrived(name);
  arrived.read_until(kNpyPrefix);
  const std::size_t end = npy_header_end(arrived.bytes(), name);
  arrived.read_until(end);
  const NpyHeader header = parse_npy_header(arrived.bytes(), name);
  // One extra byte detects trailing data.
  const auto size = static_cast<std::size_t>(header.byte_count);
  if (header.unreadable.empty()) arrived.read_until(end + size + 1);
  return arrived.release();
}

}  // namespace fovea::files
