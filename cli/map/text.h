// SPDX-License-Identifier: Apache-2.0
//
// A map for a terminal: in colours, two cells to a character where they are many; in shades where
// there are no colours.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/scene.h"

#include "picture/colors.h"
#include "picture/words.h"

namespace fovea::cli {

/// The cells, as columns and rows, of a terminal of this width for that many queries and keys.
struct TextSize {
  std::int64_t columns = 1;
  std::int64_t rows = 1;
};
TextSize text_size(std::int64_t queries, std::int64_t keys, int width, scene::Color color);

/// Lines end with a line break.
std::string map_as_text(const MapCells& map, const MapLook& look, const MapWords& words, int width,
                        scene::Color color);

}  // namespace fovea::cli
