// SPDX-License-Identifier: Apache-2.0
//
// The cells of a pooled map. Without a given size, cell c of `cells` over `count` positions covers
// [floor(c count / cells), floor((c + 1) count / cells)). Cells of a given size cover
// [c size, (c + 1) size), the last one perhaps less.

#pragma once

#include <algorithm>
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

/// The division of positions into cells, of either kind.
class CellDivision {
 public:
  CellDivision() = default;
  /// With a cell_size of 0, cells are nearly equal parts of the positions. Otherwise
  /// (cells - 1) cell_size < count <= cells cell_size.
  constexpr CellDivision(std::int64_t count, std::int64_t cells, std::int64_t cell_size)
      : count_(count), cells_(cells), padded_(cell_size > 0 ? cells * cell_size : count) {}

  constexpr std::int64_t cells() const { return cells_; }
  /// Returns the first position of cell `cell`. `cell` may equal cells().
  constexpr std::int64_t begin(std::int64_t cell) const {
    return std::min(cell_begin(cell, padded_, cells_), count_);
  }
  /// Returns the cell that contains position `number`.
  constexpr std::int64_t of(std::int64_t number) const { return cell_of(number, padded_, cells_); }

 private:
  std::int64_t count_ = 0, cells_ = 0;
  std::int64_t padded_ = 0;  ///< of which all cells have an equal part
};

}  // namespace fovea
