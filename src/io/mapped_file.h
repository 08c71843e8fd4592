// SPDX-License-Identifier: Apache-2.0
//
// Memory-mapped files: pages are read on first access, and nothing is copied.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "fovea/export.h"

namespace fovea {

/// The bytes of a file, and the owner of their memory.
struct FileBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Maps a regular file. Throws IoError if the path cannot be opened or is not a regular file. Does
/// not block on a FIFO.
FOVEA_API FileBytes map_file(const std::string& path);

/// Maps the regular file behind an open descriptor, which may be closed afterwards.
FileBytes map_descriptor(int fd, const std::string& name);

}  // namespace fovea
