// SPDX-License-Identifier: Apache-2.0
//
// Writing: to standard output, or to a file that is either complete or not there at all. A reader
// that has gone away (`| head`) is no failure: what is left is dropped.

#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace fovea::cli {

/// What was to be written could not be. The message names the file and the reason.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes all of `text`, unbuffered. Throws OutputError.
void write_stdout(std::string_view text);

/// Makes `text` the content of the file `path` in one step: a temporary file beside it takes its
/// name once it is complete. A symbolic link stays and its target is written; an existing file
/// keeps its permissions; what is not a regular file (a FIFO, /dev/stdout) is written to directly.
/// Throws OutputError; the file is then what it was before.
void write_file(const std::string& path, std::string_view text);

}  // namespace fovea::cli
