// SPDX-License-Identifier: Apache-2.0
//
// Formats by the ending of a file's name.

#pragma once

#include <optional>
#include <string_view>

#include "fovea/files.h"

namespace fovea::files {

/// ".npy", ".npz" or ".safetensors", in letters of either case.
std::optional<FileFormat> format_by_ending(std::string_view path);

}  // namespace fovea::files
