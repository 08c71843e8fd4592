// SPDX-License-Identifier: Apache-2.0
//
// PNG images of 256 colours: of a map with one pixel per cell, or of any pixels.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "picture/colors.h"
#include "picture/words.h"

namespace fovea {

/// Text entry of a PNG: an ASCII keyword and UTF-8 text.
using ImageText = std::pair<std::string, std::string>;

/// An image with a palette. Entry 0 of the palette is transparent if `transparent` is set.
struct IndexedImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::array<Rgb, 256> palette{};
  bool transparent = true;
  std::vector<std::uint8_t> pixels = {};  ///< palette entries, row by row
};

/// Returns the bytes of a PNG.
std::string image_as_png(IndexedImage image, const std::vector<ImageText>& texts);

/// Returns the text entries that describe a map.
std::vector<ImageText> map_texts(const MapCells& map, const MapLook& look, const MapWords& words);

/// Returns the bytes of a PNG with a palette of 256 colours. Masked cells are transparent.
std::string map_as_png(const MapCells& map, const MapLook& look,
                       const std::vector<ImageText>& texts);

}  // namespace fovea
