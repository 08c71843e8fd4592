// SPDX-License-Identifier: Apache-2.0
//
// Alignment of a translation, rendered as text for a terminal and as an HTML page.

#pragma once

#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::train {

/// A translation and its weights, [target tokens, source tokens]. The tokens of a text are its
/// characters and an end token.
struct Picture {
  std::string caption;
  std::string source, target;
  Tensor weights;
};

/// Renders a heat map as text: rows are target characters, columns are source characters, and
/// larger weights are darker. Every line ends with a line break.
std::string picture_as_text(const Picture& picture);

/// Renders a self-contained HTML page with all pictures side by side for comparison. Hovering over
/// a cell shows its weight.
std::string pictures_as_html(const std::string& title, const std::vector<Picture>& pictures);

}  // namespace fovea::train
