// SPDX-License-Identifier: Apache-2.0
//
// Reading whole files, with errors that say which file and why.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/export.h"

namespace fovea {

/// The bytes of a file. Throws IoError when it cannot be read, is a directory, or holds more than
/// `most` bytes.
FOVEA_API std::string read_file(const std::string& path, std::int64_t most);

}  // namespace fovea
