// SPDX-License-Identifier: Apache-2.0
//
// Small multiples of attention heads: a row for each layer, a column for each head, and in each
// cell the head's map in its own scale, with a coloured bar and caption for its name. As a PNG, an
// SVG, or an HTML page that enlarges the head under the pointer.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "picture/colors.h"
#include "picture/png.h"

namespace fovea {

/// A map as an image of palette entries.
struct HeadImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels = {};
};

/// Returns the image of a map, in a scale of its own: square roots of the weights, relative to the
/// quantile of 99.5 % of the visible cells, because the few largest cells (a causal head's first
/// queries have large weights) would leave all others dark.
HeadImage head_image(const MapCells& map);

/// One head.
struct GridHead {
  std::int64_t column = 0;
  std::string name;                ///< such as "previous token"; empty if no name fits
  std::vector<std::string> facts;  ///< lines for the page: title and statistics
  HeadImage image;
};

/// The heads of an attention.
struct GridRow {
  std::string label;  ///< such as "3"
  std::vector<GridHead> heads;
};

struct HeadGrid {
  std::string title;
  std::vector<std::string> lines;
  std::vector<std::string> columns;  ///< labels, such as "0"
  std::vector<GridRow> rows;
};

/// Returns the number of pixels along a side of a head, the resolution that maps should have.
std::int64_t grid_side(std::int64_t rows, std::int64_t columns);

/// Returns the bytes of a PNG on a white ground.
std::string heads_as_png(const HeadGrid& grid, const std::vector<ImageText>& texts);
/// Both are self-contained and follow the viewer's light or dark theme.
std::string heads_as_svg(const HeadGrid& grid);
std::string heads_as_html(const HeadGrid& grid);

}  // namespace fovea
