// SPDX-License-Identifier: Apache-2.0
//
// The pyramid of a head (pyramid.h).

#include "view/explorer/pyramid.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/fail.h"

namespace fovea::view {
namespace {

constexpr std::int64_t kBytesPerCell = 4;

IndexRange range_of(std::int64_t number, int level, std::int64_t length) {
  const std::int64_t begin = (number * kTileSide) << level;
  return {begin, std::min(begin + (kTileSide << level), length)};
}

}  // namespace

Pyramid::Pyramid(const Mask& mask, const ScorePosition& row, std::int64_t queries,
                 std::int64_t keys, std::int64_t most_bytes)
    : queries_(queries), keys_(keys) {
  while (cells_of(std::max(queries, keys), levels_ - 1) > kTileSide) ++levels_;
  std::array<KeyRange, 256> ranges;
  ScorePosition place = row;
  for (std::int64_t block = 0; block < cells_of(queries, kBlockLevel); ++block) {
    IndexRange seen = {keys, 0};
    const std::int64_t end = std::min((block + 1) * kRowBlock, queries);
    for (std::int64_t query = block * kRowBlock; query < end;) {
      const std::int64_t count = std::min<std::int64_t>(std::ssize(ranges), end - query);
      place.query = row.query + query;
      const std::span<KeyRange> some(ranges.data(), static_cast<std::size_t>(count));
      mask.key_ranges(place, keys, some);
      for (const KeyRange& range : some) {
        if (range.begin >= range.end) continue;
        seen.begin = std::min(seen.begin, range.begin);
        seen.end = std::max(seen.end, range.end);
      }
      query += count;
    }
    seen_.push_back(seen.begin < seen.end ? seen : IndexRange{0, 0});
  }
  for (; base_level_ < kBlockLevel; ++base_level_) {
    std::int64_t cells = 0;
    for (std::int64_t block = 0; block < blocks(); ++block) {
      cells += stored_cells(block, base_level_);
    }
    if (cells * kBytesPerCell <= most_bytes) break;
  }
}

std::int64_t Pyramid::stored_cells(std::int64_t block, int base_level) const {
  const IndexRange& seen = keys_of(block);
  std::int64_t cells = 0;
  if (seen.size() == 0) return cells;
  for (int level = base_level; level <= std::min(kBlockLevel, levels_ - 1); ++level) {
    cells += cells_of(queries_of(block).size(), level) *
             (cells_of(seen.end, level) - (seen.begin >> level));
  }
  return cells;
}

std::int64_t Pyramid::bytes_of(std::int64_t block) const {
  constexpr std::int64_t kOwnBytes = 2048;  // of BlockCells and its levels
  return stored_cells(block, base_level_) * static_cast<std::int64_t>(sizeof(Code)) + kOwnBytes;
}

std::int64_t Pyramid::least_bytes(std::int64_t queries, std::int64_t keys) {
  return cells_of(queries, kBlockLevel) * cells_of(keys, kBlockLevel) * kBytesPerCell;
}

IndexRange Pyramid::queries_of(std::int64_t block) const {
  return {block * kRowBlock, std::min((block + 1) * kRowBlock, queries_)};
}

IndexRange Pyramid::cell_keys_of(std::int64_t block) const {
  const IndexRange& seen = keys_of(block);
  if (seen.size() == 0) return {0, 0};
  return {seen.begin >> base_level_ << base_level_,
          std::min(cells_of(seen.end, base_level_) << base_level_, keys_)};
}

IndexRange Pyramid::queries_of(const TilePlace& tile) const {
  return range_of(tile.y, tile.level, queries_);
}

IndexRange Pyramid::keys_of(const TilePlace& tile) const {
  return range_of(tile.x, tile.level, keys_);
}

bool Pyramid::meets(std::int64_t block, const TilePlace& tile) const {
  const IndexRange rows = queries_of(block), tile_rows = queries_of(tile);
  const IndexRange seen = keys_of(block), tile_keys = keys_of(tile);
  return rows.begin < tile_rows.end && tile_rows.begin < rows.end && seen.begin < tile_keys.end &&
         tile_keys.begin < seen.end;
}

void Pyramid::check(const TilePlace& tile) const {
  if (tile.level < 0 || tile.level >= levels_) {
    fail_argument("level", "expected 0 to {}, got {}", levels_ - 1, tile.level);
  }
  const auto check_place = [&](const char* name, std::int64_t number, std::int64_t length) {
    const std::int64_t tiles = (cells_of(length, tile.level) + kTileSide - 1) / kTileSide;
    if (number < 0 || number >= tiles) {
      fail_argument(name, "expected 0 to {}, got {}", tiles - 1, number);
    }
  };
  check_place("x", tile.x, keys_);
  check_place("y", tile.y, queries_);
}

BlockCells::BlockCells(const Pyramid& pyramid, std::int64_t block, std::vector<Code> base,
                       bool preview)
    : base_level_(pyramid.base_level()), preview_(preview) {
  const IndexRange keys = pyramid.cell_keys_of(block);
  const std::int64_t queries = preview ? 1 : pyramid.queries_of(block).size();
  levels_.push_back({.first_column = keys.begin >> base_level_,
                     .columns = cells_of(keys.end, base_level_) - (keys.begin >> base_level_),
                     .rows = cells_of(queries, base_level_),
                     .codes = std::move(base)});
  levels_.back().codes.shrink_to_fit();
  const int coarsest = std::min(kBlockLevel, pyramid.levels() - 1);
  for (int level = base_level_ + 1; level <= coarsest; ++level) {
    const Level& from = levels_.back();
    Level to = {.first_column = from.first_column >> 1,
                .columns = cells_of(keys.end, level) - (from.first_column >> 1),
                .rows = cells_of(queries, level)};
    if (from.columns == 0) to.columns = 0;
    to.codes.assign(static_cast<std::size_t>(to.rows * to.columns), kHiddenCode);
    for (std::int64_t row = 0; row < from.rows; ++row) {
      const Code* const in = from.codes.data() + row * from.columns;
      Code* const out = to.codes.data() + (row >> 1) * to.columns;
      for (std::int64_t c = 0; c < from.columns; ++c) {
        Code& cell = out[((from.first_column + c) >> 1) - to.first_column];
        cell = larger_code(cell, in[c]);
      }
    }
    levels_.push_back(std::move(to));
  }
}

std::int64_t BlockCells::bytes() const {
  std::int64_t bytes = static_cast<std::int64_t>(sizeof(BlockCells));
  for (const Level& level : levels_) {
    bytes += static_cast<std::int64_t>(sizeof(Level) + level.codes.capacity() * sizeof(Code));
  }
  return bytes;
}

TileCells tile_of_blocks(const Pyramid& pyramid, const TilePlace& tile, const BlockList& blocks) {
  const IndexRange queries = pyramid.queries_of(tile);
  const IndexRange keys = pyramid.keys_of(tile);
  const std::int64_t rows = cells_of(queries.size(), tile.level);
  const std::int64_t columns = cells_of(keys.size(), tile.level);
  const std::int64_t first_column = keys.begin >> tile.level;
  TileCells found;
  found.codes.assign(static_cast<std::size_t>(rows * columns), kHiddenCode);
  // Of each row, whether there are blocks that are not final, and some of which anything is known.
  std::vector<std::uint8_t> open(static_cast<std::size_t>(rows)), seen(open.size());
  for (std::int64_t block = queries.begin >> kBlockLevel;
       block < cells_of(queries.end, kBlockLevel); ++block) {
    if (!pyramid.meets(block, tile)) continue;
    const BlockCells* const cells = blocks[static_cast<std::size_t>(block)].get();
    // Levels coarser than those stored have several blocks per row of cells.
    const int level = std::min({tile.level, kBlockLevel, pyramid.levels() - 1});
    const int coarser = tile.level - level;
    const IndexRange cell_keys = pyramid.cell_keys_of(block);
    const std::int64_t from = cell_keys.begin >> level;
    const std::int64_t begin = std::max(first_column << coarser, from);
    const std::int64_t end =
        std::min((first_column + columns) << coarser, cells_of(cell_keys.end, level));
    const std::int64_t first_row = (block * kRowBlock) >> level;
    const std::int64_t own_rows = cells_of(pyramid.queries_of(block).size(), level);
    for (std::int64_t r = 0; r < own_rows; ++r) {
      const std::int64_t row = ((first_row + r) >> coarser) - (queries.begin >> tile.level);
      if (row < 0 || row >= rows) continue;
      Code* const out = found.codes.data() + row * columns;
      const auto at = static_cast<std::size_t>(row);
      if (cells == nullptr || cells->preview()) open[at] = 1;
      if (cells == nullptr) {
        for (std::int64_t c = begin; c < end; ++c) {
          Code& cell = out[(c >> coarser) - first_column];
          cell = larger_code(cell, kUnknownCode);
        }
        continue;
      }
      seen[at] = 1;
      const BlockCells::Level& own = cells->level(level);
      const Code* const in = own.codes.data() + (cells->preview() ? 0 : r) * own.columns;
      for (std::int64_t c = begin; c < end; ++c) {
        Code& cell = out[(c >> coarser) - first_column];
        cell = larger_code(cell, in[c - from]);
      }
    }
  }
  if (std::find(open.begin(), open.end(), 1) == open.end()) return found;
  for (std::size_t row = 0; row < open.size(); ++row) {
    found.rows.push_back(open[row] == 0   ? RowState::kFinal
                         : seen[row] == 0 ? RowState::kUnknown
                                          : RowState::kPreview);
  }
  return found;
}

}  // namespace fovea::view
