// SPDX-License-Identifier: Apache-2.0
//
// Files as memory: read when looked at, not before, and never copied.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "fovea/export.h"

namespace fovea {

/// The bytes of a file, and what keeps them there.
struct FileBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Maps a regular file. Throws IoError for one that cannot be opened and for what is no regular
/// file; a FIFO is not waited for.
FOVEA_API FileBytes map_file(const std::string& path);

/// Maps the regular file behind an open descriptor, which may be closed afterwards.
FileBytes map_descriptor(int fd, const std::string& name);

}  // namespace fovea
