// SPDX-License-Identifier: Apache-2.0
//
// Output through file descriptors (output_file.h). Every return value is checked, and there is no
// buffer whose final flush could fail unnoticed.

#include "io/output_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fovea/error.h"

#include "io/temporary_names.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_write(std::string_view name, int error) {
  throw OutputError(
      fmt::format("{}: cannot be written: {}", name, std::generic_category().message(error)));
}

/// Writes all bytes. Returns false if the reading end of a pipe has been closed.
bool write_all(int fd, std::span<const std::byte> bytes, std::string_view name) {
  constexpr std::size_t kMax = std::size_t{1} << 30;  // Linux writes at most 2 GB per call
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min(bytes.size(), kMax));
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      // Another process that shares the open file description has made it non-blocking.
      pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      fail_to_write(name, errno);
    }
  }
  return true;
}

// Returns the descriptor of the standard stream that refers to this file, or -1. Reopening a
// redirected stream by its name (/dev/stdout) would overwrite the file from its start.
int standard_stream(const struct stat& file) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream {};
    if (::fstat(fd, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) {
      return fd;
    }
  }
  return -1;
}

// Resolves the symbolic links of `path`. The target need not exist yet.
fs::path follow_links(const std::string& path) {
  constexpr int kMaxLinks = 40;  // the limit of Linux
  fs::path target = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(target, error))) return target;
    const fs::path next = fs::read_symlink(target, error);
    if (error) fail_to_write(path, error.value());
    target = target.parent_path() / next;
  }
  fail_to_write(path, ELOOP);
}

}  // namespace

/// RAII owner of a file descriptor. `close` returns whether closing succeeded.
class OutputFile::Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool close() {
    if (fd_ < 0) return true;
    const int fd = std::exchange(fd_, -1);
    return ::close(fd) == 0 || errno == EINTR;
  }

 private:
  int fd_;
};

/// Temporary file in the directory of `target`. Unless it has been renamed to the target, it is
/// deleted by the destructor or on a signal.
class OutputFile::Temporary {
 public:
  Temporary(const fs::path& target, std::string_view name) : target_(target.string()) {
    constexpr int kMaxTries = 100;
    int fd = -1;
    int error = EEXIST;
    for (int attempt = 0; error == EEXIST && attempt < kMaxTries; ++attempt) {
      const std::string file = fmt::format(".fovea-{}-{}.tmp", ::getpid(), attempt);
      path_ = (target.parent_path() / file).string();
      kept_.keep(path_);
      // The umask reduces these permissions.
      fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      error = fd < 0 ? errno : 0;
    }
    if (fd < 0) fail_to_write(name, error);
    fd_ = fd;
  }

  ~Temporary() {
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
  }

  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  int get() const { return fd_; }

  void take_name(std::string_view name) {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) fail_to_write(name, errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail_to_write(name, errno);
    renamed_ = true;
  }

 private:
  std::string target_;
  std::string path_;
  TemporaryName kept_;
  int fd_ = -1;
  bool renamed_ = false;
};

OutputFile::OutputFile() = default;
OutputFile::OutputFile(OutputFile&& other) noexcept = default;
OutputFile::~OutputFile() = default;

OutputFile OutputFile::standard_output() {
  OutputFile output;
  output.name_ = "standard output";
  output.fd_ = STDOUT_FILENO;
  return output;
}

OutputFile::OutputFile(const std::string& path) : name_(path) {
  struct stat existing {};
  if (::stat(path.c_str(), &existing) != 0) {
    if (errno != ENOENT) fail_to_write(path, errno);
    replace(std::nullopt);
  } else if (const int stream = standard_stream(existing); stream >= 0) {
    fd_ = stream;
  } else if (S_ISDIR(existing.st_mode)) {
    fail_to_write(path, EISDIR);
  } else if (S_ISREG(existing.st_mode)) {
    replace(existing.st_mode & 07777);
  } else {
    opened_ = std::make_unique<Descriptor>(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (opened_->get() < 0) fail_to_write(path, errno);
    fd_ = opened_->get();
  }
}

void OutputFile::replace(std::optional<unsigned> permissions) {
  const fs::path target = follow_links(name_);
  // A rename would succeed even if the existing file is write-protected.
  if (permissions && ::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) {
    fail_to_write(name_, errno);
  }
  temporary_ = std::make_unique<Temporary>(target, name_);
  fd_ = temporary_->get();
  if (permissions && ::fchmod(fd_, *permissions) != 0) fail_to_write(name_, errno);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (!reader_left_) reader_left_ = !write_all(fd_, bytes, name_);
}

void OutputFile::write_at(std::uint64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(fd_, text.data(), text.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR) fail_to_write(name_, errno);
    if (written < 0) continue;
    text.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

FileBytes OutputFile::map() const { return map_descriptor(fd_, name_); }

void OutputFile::finish() {
  if (temporary_) temporary_->take_name(name_);
  if (opened_ && !opened_->close()) fail_to_write(name_, errno);
}

}  // namespace fovea
