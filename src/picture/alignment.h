// SPDX-License-Identifier: Apache-2.0
//
// Where a translation looked, drawn: as characters for a terminal, and as a page.

#pragma once

#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::train {

/// One translation and its weights, [target tokens, source tokens]: each text's characters, and a
/// last token that ends it.
struct Picture {
  std::string caption;
  std::string source, target;
  Tensor weights;
};

/// A row for each character written, a column for each character read, the darker the more it was
/// looked at. Lines end with a line break.
std::string picture_as_text(const Picture& picture);

/// A page of its own that needs nothing else: all pictures in a row, to be compared; numbers on
/// hovering.
std::string pictures_as_html(const std::string& title, const std::vector<Picture>& pictures);

}  // namespace fovea::train
