// SPDX-License-Identifier: Apache-2.0
//
// Incremental output to standard output or to a file that appears only when it is complete. A
// closed pipe (`| head`) is not an error: the remaining output is dropped.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fovea/export.h"

#include "io/mapped_file.h"

namespace fovea {

/// File that is replaced atomically: output goes to a temporary file in the same directory, which
/// `finish` renames. Symbolic links are followed, and an existing file keeps its permissions. A
/// path that is not a regular file (a FIFO, /dev/stdout) is written to directly. There is no fsync:
/// after a power failure the file may be truncated.
///
/// Errors   throws OutputError. If an error occurs or `finish` is not called, an existing file is
///          unchanged and the temporary file is deleted. On a signal, remove_temporary_files()
///          (fovea/files.h) deletes the temporary file.
class FOVEA_API OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  /// Standard output, unbuffered.
  static OutputFile standard_output();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Returns whether the output is a temporary file of its own, so that the following functions can
  /// be used.
  bool is_temporary() const { return temporary_ != nullptr; }
  /// Replaces bytes that have been written.
  void write_at(std::uint64_t offset, std::string_view text);
  /// Maps what has been written so far.
  FileBytes map() const;

  /// Completes the file and gives it its final name.
  void finish();

 private:
  class Temporary;
  class Descriptor;

  OutputFile();
  /// Opens a temporary file next to `name_`. `permissions` are the permissions of the existing
  /// file, if there is one; the new file gets the same.
  void replace(std::optional<unsigned> permissions);

  std::string name_;  // for messages
  std::unique_ptr<Temporary> temporary_;
  std::unique_ptr<Descriptor> opened_;
  int fd_ = -1;
  bool reader_left_ = false;
};

}  // namespace fovea
