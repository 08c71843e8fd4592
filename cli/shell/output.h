// SPDX-License-Identifier: Apache-2.0
//
// Writes text to standard output, or atomically to a file (io/output_file.h).

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

/// Writes all of `text`, unbuffered. Throws OutputError.
void write_stdout(std::string_view text);

/// Replaces the content of the file `path` with `text`. Throws OutputError and leaves the file
/// unchanged on failure.
void write_file(const std::string& path, std::string_view text);

/// Throws OutputError if the file cannot be written, so that the error precedes the computation.
void require_writable(const std::string& path);

/// Throws UsageError if the value of the option is empty or "-", which elsewhere means standard
/// output.
void require_file_name(const char* option, const std::string& path);

/// Returns whether two paths name the same file, which need not exist yet.
bool same_file(const std::string& a, const std::string& b);

/// Returns the extension in lower case: ".png".
std::string ending_of(const std::string& path);
/// Throws UsageError if the extension is not in `endings`; `words` lists them for the message.
void require_ending(const char* option, const std::string& path,
                    const std::vector<std::string>& endings, const char* words);

}  // namespace fovea::cli
