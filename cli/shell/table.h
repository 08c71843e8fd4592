// SPDX-License-Identifier: Apache-2.0
//
// Text tables.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

using Cells = std::vector<std::string>;

/// Formats rows as lines. Columns are as wide as their widest cell and two spaces apart. `sides`
/// has
/// '<' for each left-aligned column and '>' for each right-aligned one; its last character applies
/// to all further columns. Lines have no trailing spaces, except those of a left-aligned cell.
std::string text_table(const std::vector<Cells>& rows, std::string_view sides);

}  // namespace fovea::cli
