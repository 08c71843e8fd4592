// SPDX-License-Identifier: Apache-2.0
//
// A map as a PNG: a pixel for each cell.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "picture/colors.h"

namespace fovea {

/// What a PNG says of itself: a keyword of ASCII and a text of UTF-8.
using ImageText = std::pair<std::string, std::string>;

/// The bytes of a PNG with a palette of 256 colours, masked cells transparent.
std::string map_as_png(const MapCells& map, const MapLook& look,
                       const std::vector<ImageText>& texts);

}  // namespace fovea
