// SPDX-License-Identifier: Apache-2.0
//
// Packing of tensor rows into tiles of A (amx_numbers-inl.h).

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/simd/rows_of.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The 32-bit words of a tile with all its parts.
template <class Numbers>
constexpr std::int64_t kTileWords = kUnitFloats* Numbers::kParts;

/// Returns the number of tiles over `dim` dimensions: of 32 dimensions in rows, at least one; of 16
/// in columns, an even number.
constexpr std::int64_t row_tiles(std::int64_t dim) {
  return std::max<std::int64_t>((dim + kUnitDepth - 1) / kUnitDepth, 1);
}
constexpr std::int64_t column_tiles(std::int64_t dim) { return (dim + 31) / 32 * 2; }

/// Packs `count` rows, from row `first` on, into tiles of 16 rows and 32 dimensions,
/// [rows / 16][row_tiles(dim)], for a multiple of 32 rows, the last ones zero.
template <class Numbers>
void pack_as_rows(const InputRows& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
                  float* to, Magnitudes& sizes) {
  using Element = typename Numbers::Element;
  const Element* const from = rows.row_as<Element>(first);
  const std::int64_t kept = whole_units(count, 32);
  for (std::int64_t r = 0; r < kept; r += kUnitRows) {
    for (std::int64_t s = 0; s < row_tiles(dim); ++s, to += kTileWords<Numbers>) {
      const Element* const at = from + r * rows.stride + s * kUnitDepth;
      const std::int64_t dims = dim - s * kUnitDepth;
      if (count - r >= kUnitRows && dims >= kUnitDepth) {
        Numbers::template pack_keys<true>(at, rows.stride, kUnitRows, kUnitDepth, to, sizes);
      } else {
        Numbers::template pack_keys<false>(at, rows.stride, count - r, dims, to, sizes);
      }
    }
  }
}

/// Packs `count` rows, from row `first` on, into tiles of 16 dimensions and 32 rows,
/// [rows / 32][column_tiles(dim)], the last rows zero.
template <class Numbers>
void pack_as_columns(const InputRows& rows, std::int64_t first, std::int64_t count,
                     std::int64_t dim, float* to, Magnitudes& sizes) {
  using Element = typename Numbers::Element;
  const Element* const from = rows.row_as<Element>(first);
  for (std::int64_t r = 0; r < count; r += kUnitDepth) {
    for (std::int64_t t = 0; t < column_tiles(dim); t += 2, to += 2 * kTileWords<Numbers>) {
      const Element* const at = from + r * rows.stride + t * kUnitRows;
      const std::int64_t dims = dim - t * kUnitRows;
      if (count - r >= kUnitDepth && dims >= 32) {
        Numbers::template pack_values<true>(at, rows.stride, kUnitDepth, 32, to, sizes);
      } else {
        Numbers::template pack_values<false>(at, rows.stride, count - r, dims, to, sizes);
      }
    }
  }
}

/// Sets one of the rows that pack_as_rows() packed to zero.
template <class Numbers>
void clear_row(float* packed, std::int64_t row, std::int64_t dim) {
  float* const tiles = packed + row / kUnitRows * row_tiles(dim) * kTileWords<Numbers>;
  for (std::int64_t i = 0; i < row_tiles(dim) * Numbers::kParts; ++i) {
    std::fill_n(tiles + i * kUnitFloats + row % kUnitRows * 16, 16, 0.0f);
  }
}

/// Sets one of the rows that pack_as_columns() packed to zero.
template <class Numbers>
void clear_column(float* packed, std::int64_t row, std::int64_t dim) {
  auto* const halves = reinterpret_cast<std::uint16_t*>(
      packed + row / kUnitDepth * column_tiles(dim) * kTileWords<Numbers>);
  const std::int64_t tile_rows = column_tiles(dim) * Numbers::kParts * kUnitRows;
  for (std::int64_t r = 0; r < tile_rows; ++r) halves[r * kUnitDepth + row % kUnitDepth] = 0;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
