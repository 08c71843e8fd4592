// SPDX-License-Identifier: Apache-2.0
//
// Renders a map as a PNG with one pixel per cell.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "picture/colors.h"

namespace fovea {

/// Text entry of a PNG: an ASCII keyword and UTF-8 text.
using ImageText = std::pair<std::string, std::string>;

/// Returns the bytes of a PNG with a palette of 256 colours. Masked cells are transparent.
std::string map_as_png(const MapCells& map, const MapLook& look,
                       const std::vector<ImageText>& texts);

}  // namespace fovea
