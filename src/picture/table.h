// SPDX-License-Identifier: Apache-2.0
//
// A PNG of a map with labelled rows and columns, such as numbers of layers and heads.

#pragma once

#include <string>
#include <vector>

#include "picture/colors.h"
#include "picture/png.h"

namespace fovea {

/// Texts of the axes. Letters other than a-z and 0-9 are left out (letters.h).
struct TableLabels {
  std::string down;
  std::string across;
  std::vector<std::string> rows;
  std::vector<std::string> columns;
};

/// Returns a PNG on a white ground, in which each cell is a square of several pixels. A long side
/// has cells of down to one pixel.
std::string table_as_png(const MapCells& map, const MapLook& look, const TableLabels& labels,
                         const std::vector<ImageText>& texts);

}  // namespace fovea
