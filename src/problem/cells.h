// SPDX-License-Identifier: Apache-2.0
//
// The cells of a pooled map. With `cells` cells over `count` positions, cell c covers the positions
// in [floor(c count / cells), floor((c + 1) count / cells)).

#pragma once

#include <cstdint>

namespace fovea {

/// Returns the first position of cell `cell`. `cell` may equal `cells`.
constexpr std::int64_t cell_begin(std::int64_t cell, std::int64_t count, std::int64_t cells) {
  return cell * count / cells;
}

/// Returns the cell that contains position `number`.
constexpr std::int64_t cell_of(std::int64_t number, std::int64_t count, std::int64_t cells) {
  return ((number + 1) * cells - 1) / count;
}

}  // namespace fovea
