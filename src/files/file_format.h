// SPDX-License-Identifier: Apache-2.0
//
// File formats by file name extension.

#pragma once

#include <optional>
#include <string_view>

#include "fovea/export.h"
#include "fovea/files.h"

namespace fovea::files {

/// Returns the format for ".npy", ".npz" or ".safetensors" (case-insensitive).
FOVEA_API std::optional<FileFormat> format_by_ending(std::string_view path);

}  // namespace fovea::files
