// SPDX-License-Identifier: Apache-2.0
//
// A map with axes, labels and a colour bar: as an SVG, and as a page that tells the numbers of the
// cell under the pointer. Both need nothing else, and are light or dark as who looks wishes.

#pragma once

#include <cstdint>
#include <string>

#include "picture/colors.h"
#include "picture/words.h"

namespace fovea {

/// The most cells of a page, which carries the number of each.
inline constexpr std::int64_t kMaxPageCells = std::int64_t{1} << 22;

std::string map_as_svg(const MapCells& map, const MapLook& look, const MapWords& words);
std::string map_as_html(const MapCells& map, const MapLook& look, const MapWords& words);

}  // namespace fovea
