// SPDX-License-Identifier: Apache-2.0
//
// Reads whole files. Errors name the file and the cause.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/export.h"

namespace fovea {

/// Returns the contents of a file. Throws IoError if it cannot be read, is a directory, or holds
/// more than `most` bytes.
FOVEA_API std::string read_file(const std::string& path, std::int64_t most);

}  // namespace fovea
