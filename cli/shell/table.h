// SPDX-License-Identifier: Apache-2.0
//
// Text in columns.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

using Cells = std::vector<std::string>;

/// Rows as lines whose columns are as wide as they need and two spaces apart. `sides` has '<' for
/// each column that stands to the left and '>' for each to the right; the last of them holds for
/// all further columns. There are no spaces at the end of a line, unless a cell to the left has
/// them.
std::string text_table(const std::vector<Cells>& rows, std::string_view sides);

}  // namespace fovea::cli
