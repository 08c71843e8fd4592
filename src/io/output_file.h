// SPDX-License-Identifier: Apache-2.0
//
// Writing, in as many pieces as one likes: to standard output, or to a file that is either complete
// or not there at all. A reader that has gone away (`| head`) is no failure: what is left is
// dropped.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

/// What is written becomes the content of a file in one step: a temporary file beside it takes its
/// name when all is there. A symbolic link stays and its target is written; an existing file keeps
/// its permissions; what is not a regular file (a FIFO, /dev/stdout) is written to directly. The
/// disk is not waited for: after a power failure the file may be short.
///
/// Errors   throws OutputError; the file is then what it was before, and so it is when `finish` was
///          not called. The temporary file is gone, and remove_temporary_files() (fovea/files.h)
///          removes it on a signal.
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
  /// Ends the file; afterwards it is there.
  void finish();

 private:
  class Temporary;
  class Descriptor;

  OutputFile();
  /// Writes beside the file `name_`, whose permissions are kept where it exists.
  void replace(std::optional<unsigned> permissions);

  std::string name_;  // for messages
  std::unique_ptr<Temporary> temporary_;
  std::unique_ptr<Descriptor> opened_;
  int fd_ = -1;
  bool reader_left_ = false;
};

}  // namespace fovea
