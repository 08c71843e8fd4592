// SPDX-License-Identifier: Apache-2.0
//
// Renders a map with axes, labels and a colour bar, as an SVG or as an HTML page that shows the
// values of the cell under the pointer. Both are self-contained and follow the viewer's light or
// dark theme.

#pragma once

#include <cstdint>
#include <string>

#include "picture/colors.h"
#include "picture/words.h"

namespace fovea {

/// Maximum number of cells of a page, which contains the value of each cell.
inline constexpr std::int64_t kMaxPageCells = std::int64_t{1} << 22;

std::string map_as_svg(const MapCells& map, const MapLook& look, const MapWords& words);
std::string map_as_html(const MapCells& map, const MapLook& look, const MapWords& words);

}  // namespace fovea
