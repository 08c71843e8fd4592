// SPDX-License-Identifier: Apache-2.0
//
// Writing text, to standard output or to a file, in one step (io/output_file.h).

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

/// Writes all of `text`, unbuffered. Throws OutputError.
void write_stdout(std::string_view text);

/// Makes `text` the content of the file `path`. Throws OutputError; the file is then what it was
/// before.
void write_file(const std::string& path, std::string_view text);

/// Fails before the work rather than after it where a file cannot be written. Throws OutputError.
void require_writable(const std::string& path);

/// Whether two names lead to one file, which need not exist yet.
bool same_file(const std::string& a, const std::string& b);

/// ".png", in small letters.
std::string ending_of(const std::string& path);
/// Throws UsageError for another ending; `words` lists them.
void require_ending(const char* option, const std::string& path,
                    const std::vector<std::string>& endings, const char* words);

}  // namespace fovea::cli
