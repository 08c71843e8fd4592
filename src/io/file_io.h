// SPDX-License-Identifier: Apache-2.0
//
// Reading whole files, with errors that say which file and why.

#pragma once

#include <cstdint>
#include <string>

namespace fovea {

/// The bytes of a file. Throws IoError when it cannot be read, is a directory, or holds more than
/// `most` bytes.
std::string read_file(const std::string& path, std::int64_t most);

}  // namespace fovea
