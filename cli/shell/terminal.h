// SPDX-License-Identifier: Apache-2.0
//
// What the terminal at standard output can show: its width and its colours, as the environment and
// the user's options have it.

#pragma once

#include "fovea/scene.h"

namespace fovea::cli {

/// The answer to --color.
enum class ColorWish { kAuto, kAlways, kNever };

/// The colours to write with. `to_file` means that the text goes elsewhere than standard output.
/// COLORTERM tells truecolor from 256; NO_COLOR and TERM=dumb switch kAuto off.
scene::Color choose_color(ColorWish wish, bool to_file);

/// The columns to fill: COLUMNS, the terminal's width, or 100 where there is no terminal; held to
/// 60 to 160 where it was not asked for.
int choose_width(bool to_file);

}  // namespace fovea::cli
