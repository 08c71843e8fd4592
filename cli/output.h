// SPDX-License-Identifier: Apache-2.0
//
// Writing text, to standard output or to a file, in one step (core/output_file.h).

#pragma once

#include <string>
#include <string_view>

namespace fovea::cli {

/// Writes all of `text`, unbuffered. Throws OutputError.
void write_stdout(std::string_view text);

/// Makes `text` the content of the file `path`. Throws OutputError; the file is then what it was
/// before.
void write_file(const std::string& path, std::string_view text);

}  // namespace fovea::cli
