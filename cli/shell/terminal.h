// SPDX-License-Identifier: Apache-2.0
//
// Width and colours of text on standard output, from the terminal, the environment and options.

#pragma once

#include "fovea/scene.h"

namespace fovea::cli {

/// The value of --color.
enum class ColorWish { kAuto, kAlways, kNever };

/// Returns the colours to use. `to_file` is true if the text does not go to standard output.
/// COLORTERM selects between truecolor and 256 colours; NO_COLOR and TERM=dumb disable kAuto.
scene::Color choose_color(ColorWish wish, bool to_file);

/// Returns the text width: COLUMNS, else the terminal's width, else 100; clamped to 60 .. 160.
int choose_width(bool to_file);

}  // namespace fovea::cli
