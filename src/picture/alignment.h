// SPDX-License-Identifier: Apache-2.0
//
// Alignment of a translation, rendered as text for a terminal and as an HTML page.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::train {

/// A translation and its weights, [target tokens, source tokens]. The tokens of a text are its
/// characters and an end token. `number` identifies the picture in a page.
struct Picture {
  std::int64_t number;
  std::string caption;
  std::string source, target;
  Tensor weights;
};

/// Renders a heat map as text: rows are target characters, columns are source characters, and
/// larger weights are darker. Every line ends with a line break.
std::string picture_as_text(const Picture& picture);

/// A picture as an element of an HTML page.
struct Figure {
  std::int64_t number;
  std::string html;
};

/// Renders a heat map as HTML. Hovering over a cell shows its weight.
Figure picture_as_figure(const Picture& picture);

/// Returns a self-contained HTML page with all figures side by side for comparison.
std::string figures_as_html(const std::string& title, const std::vector<Figure>& figures);

/// Returns the figures of such a page, none if it is another text.
std::vector<Figure> figures_of_html(std::string_view page);

}  // namespace fovea::train
