// SPDX-License-Identifier: Apache-2.0
//
// Read-only mappings through mmap (mapped_file.h).

#include "io/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fovea/error.h"

namespace fovea {
namespace {

[[noreturn]] void fail_to_read(const std::string& name, int error) {
  throw IoError(
      fmt::format("{}: cannot be read: {}", name, std::generic_category().message(error)));
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO (\"-\" reads from standard input)";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

FileBytes map_descriptor(int fd, const std::string& name) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_to_read(name, errno);
  if (!S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: expected a file, got {}", name, kind_of(status.st_mode)));
  }
  if (static_cast<std::uintmax_t>(status.st_size) > SIZE_MAX) fail_to_read(name, EFBIG);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) fail_to_read(name, errno);
  std::shared_ptr<const void> owner(
      memory, [size](const void* start) { ::munmap(const_cast<void*>(start), size); });
  return {{static_cast<const std::byte*>(memory), size}, std::move(owner)};
}

FileBytes map_file(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO blocks until there is a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_to_read(path, errno);
  try {
    FileBytes result = map_descriptor(fd, path);
    ::close(fd);
    return result;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

}  // namespace fovea
