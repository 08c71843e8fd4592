// SPDX-License-Identifier: Apache-2.0
//
// Names of queries and keys in a file of text, one on each line.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::cli {

/// The lines of a file, without their ends; an empty line is a name too. Throws IoError, with the
/// option in front.
std::vector<std::string> read_tokens(const std::string& option, const std::string& path);

/// Throws InvalidArgument unless they are as many as the keys.
void require_tokens(const std::string& option, const std::string& path,
                    const std::vector<std::string>& tokens, std::int64_t keys);

}  // namespace fovea::cli
