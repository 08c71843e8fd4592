// SPDX-License-Identifier: Apache-2.0
//
// A map for a terminal: in colours, with two cells per character if there are many, or in shades
// without colours.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/scene.h"

#include "picture/colors.h"
#include "picture/words.h"

namespace fovea::cli {

/// The number of cells of a map in a terminal.
struct TextSize {
  std::int64_t columns = 1;
  std::int64_t rows = 1;
};
/// Returns the number of cells for a terminal of `width` columns.
TextSize text_size(std::int64_t queries, std::int64_t keys, int width, scene::Color color);

/// Returns the map as lines, each with a line break.
std::string map_as_text(const MapCells& map, const MapLook& look, const MapWords& words, int width,
                        scene::Color color);

}  // namespace fovea::cli
