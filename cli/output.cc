// SPDX-License-Identifier: Apache-2.0
//
// Writing (output.h), on file descriptors: every result is checked, and there is no buffer whose
// last flush could fail unseen.

#include "output.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interrupt.h"

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view name, int error) {
  throw OutputError(fmt::format("{}: cannot be written: {}", name, std::strerror(error)));
}

/// A file descriptor that closes itself; `close` tells whether that worked.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool close() {
    if (fd_ < 0) return true;
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0 || errno == EINTR;
  }

 private:
  int fd_;
};

void write_all(int fd, std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      // Whoever shares the other end has made it non-blocking.
      pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      fail(name, errno);
    }
  }
}

// The standard stream that is this very file, or -1. Opened again by its name (/dev/stdout) a
// redirected file would be overwritten from its start.
int standard_stream(const struct stat& file) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream {};
    if (::fstat(fd, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) {
      return fd;
    }
  }
  return -1;
}

// The file that `path` leads to through symbolic links, which need not exist yet.
fs::path follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  fs::path target = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(target, error))) return target;
    const fs::path next = fs::read_symlink(target, error);
    if (error) fail(path, error.value());
    target = target.parent_path() / next;
  }
  fail(path, ELOOP);
}

/// A new file beside `target` that vanishes, at a signal too, unless it takes the target's name.
class Temporary {
 public:
  Temporary(const fs::path& target, std::string_view name) : target_(target.string()) {
    constexpr int kMostTries = 100;
    const SignalsHeld held;
    int fd = -1;
    int error = EEXIST;
    for (int attempt = 0; error == EEXIST && attempt < kMostTries; ++attempt) {
      const std::string file = fmt::format(".fovea-{}-{}.tmp", ::getpid(), attempt);
      path_ = (target.parent_path() / file).string();
      // Opened with these permissions the file gets what the umask leaves of them.
      fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      error = fd < 0 ? errno : 0;
    }
    if (fd < 0) fail(name, error);
    fd_ = fd;
    remove_on_signal(path_);
  }

  ~Temporary() {
    const SignalsHeld held;
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
    remove_on_signal("");
  }

  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  int get() const { return fd_; }

  void take_name(std::string_view name) {
    const SignalsHeld held;
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail(name, errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail(name, errno);
    renamed_ = true;
    remove_on_signal("");
  }

 private:
  std::string target_;
  std::string path_;
  int fd_ = -1;
  bool renamed_ = false;
};

void replace_file(const std::string& path, const struct stat* existing, std::string_view text) {
  const fs::path target = follow_links(path);
  // Renaming would get round the write protection of the file itself.
  if (existing != nullptr && ::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) {
    fail(path, errno);
  }
  Temporary temporary(target, path);
  if (existing != nullptr && ::fchmod(temporary.get(), existing->st_mode & 07777) != 0) {
    fail(path, errno);
  }
  write_all(temporary.get(), text, path);
  temporary.take_name(path);
}

}  // namespace

void write_stdout(std::string_view text) { write_all(STDOUT_FILENO, text, "standard output"); }

void write_file(const std::string& path, std::string_view text) {
  struct stat existing {};
  if (::stat(path.c_str(), &existing) != 0) {
    if (errno != ENOENT) fail(path, errno);
    replace_file(path, nullptr, text);
  } else if (const int stream = standard_stream(existing); stream >= 0) {
    write_all(stream, text, path);
  } else if (S_ISDIR(existing.st_mode)) {
    fail(path, EISDIR);
  } else if (S_ISREG(existing.st_mode)) {
    replace_file(path, &existing, text);
  } else {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail(path, errno);
    write_all(file.get(), text, path);
    if (!file.close()) fail(path, errno);
  }
}

}  // namespace fovea::cli
