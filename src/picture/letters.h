// SPDX-License-Identifier: Apache-2.0
//
// Small letters and digits of 5 x 7 pixels, for labels in images without fonts.

#pragma once

#include <cstdint>
#include <string_view>

#include "picture/png.h"

namespace fovea {

/// The distance from one letter to the next, and the height of a line, in pixels.
inline constexpr std::int64_t kLetterWidth = 6;
inline constexpr std::int64_t kLetterHeight = 7;

/// Returns the width of text in pixels.
constexpr std::int64_t letters_width(std::string_view text) {
  return text.empty() ? 0 : static_cast<std::int64_t>(text.size()) * kLetterWidth - 1;
}

/// Draws text of a-z, 0-9 and spaces with its top left corner at (left, top), in a palette entry,
/// each pixel as a square of `size` pixels. Other characters are left out as spaces are; what is
/// outside the image is cut off.
void draw_letters(IndexedImage& image, std::int64_t left, std::int64_t top, std::string_view text,
                  std::uint8_t entry, std::int64_t size = 1);

}  // namespace fovea
