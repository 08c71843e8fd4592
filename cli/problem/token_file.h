// SPDX-License-Identifier: Apache-2.0
//
// Names of queries and keys from a text file, one per line.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::cli {

/// Returns the lines of a file without line breaks; empty lines count. Throws IoError, or
/// InvalidArgument if the file is not UTF-8. Messages begin with the option.
std::vector<std::string> read_tokens(const std::string& option, const std::string& path);

/// Throws InvalidArgument unless there is one token per key.
void require_tokens(const std::string& option, const std::string& path,
                    const std::vector<std::string>& tokens, std::int64_t keys);

}  // namespace fovea::cli
