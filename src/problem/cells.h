// SPDX-License-Identifier: Apache-2.0
//
// The cells of a map: of `cells` over `count` things, cell c has those from floor(c count / cells)
// to before floor((c + 1) count / cells).

#pragma once

#include <cstdint>

namespace fovea {

/// The first of cell `cell`, which may be one beyond the last.
constexpr std::int64_t cell_begin(std::int64_t cell, std::int64_t count, std::int64_t cells) {
  return cell * count / cells;
}

/// The cell that has `number`.
constexpr std::int64_t cell_of(std::int64_t number, std::int64_t count, std::int64_t cells) {
  return ((number + 1) * cells - 1) / count;
}

}  // namespace fovea
