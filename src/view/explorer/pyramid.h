// SPDX-License-Identifier: Apache-2.0
//
// The pyramid of a head: its levels, and the cells that the pass stores. Level z has cells of
// 2^z x 2^z pairs; the last row and column may have fewer.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/map.h"
#include "fovea/mask.h"

#include "view/explorer/explorer.h"
#include "view/explorer/frame.h"

namespace fovea::view {

/// Queries of a row block, the unit of the pass: one cell of level kBlockLevel.
inline constexpr int kBlockLevel = 10;
inline constexpr std::int64_t kRowBlock = std::int64_t{1} << kBlockLevel;
/// The finest base level. Tiles of finer levels take up to 25 ms on one thread.
inline constexpr int kMinBaseLevel = 4;

/// Returns the number of cells over `length` positions.
constexpr std::int64_t cells_of(std::int64_t length, int level) {
  return (length + (std::int64_t{1} << level) - 1) >> level;
}

/// The levels of a head, and the keys that each of its row blocks sees.
class Pyramid {
 public:
  /// Chooses the smallest base level from kMinBaseLevel on whose cells, with those of all coarser
  /// levels, fit `most_bytes`: 4 bytes per cell, of which the codes take 2, so that the cells of
  /// two heads fit at once. Cells outside the keys that a row block sees are not stored. `row` is
  /// the place of query 0 and key 0.
  Pyramid(const Mask& mask, const ScorePosition& row, std::int64_t queries, std::int64_t keys,
          std::int64_t most_bytes);

  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }
  int levels() const { return levels_; }
  int base_level() const { return base_level_; }
  /// Returns whether tiles of the level are made of stored cells.
  bool stored(int level) const { return level >= base_level_; }
  /// Returns whether any tile is.
  bool stores() const { return stored(levels_ - 1); }

  std::int64_t blocks() const { return static_cast<std::int64_t>(seen_.size()); }
  IndexRange queries_of(std::int64_t block) const;
  /// Returns a range with all keys that queries of the block see.
  const IndexRange& keys_of(std::int64_t block) const {
    return seen_[static_cast<std::size_t>(block)];
  }
  /// As above, extended to whole cells of the base level.
  IndexRange cell_keys_of(std::int64_t block) const;

  /// Returns at least as many bytes as the cells of the block take.
  std::int64_t bytes_of(std::int64_t block) const;

  /// Return the queries and keys of a tile, which must exist.
  IndexRange queries_of(const TilePlace& tile) const;
  IndexRange keys_of(const TilePlace& tile) const;
  /// Returns whether a row block and a tile have a pair in common that may be visible.
  bool meets(std::int64_t block, const TilePlace& tile) const;
  /// Throws InvalidArgument if the tile does not exist.
  void check(const TilePlace& tile) const;

  /// Returns the base level's bytes if every pair is visible, for the coarsest base level.
  static std::int64_t least_bytes(std::int64_t queries, std::int64_t keys);

 private:
  /// Returns the number of cells of a row block that are stored with this base level.
  std::int64_t stored_cells(std::int64_t block, int base_level) const;

  std::int64_t queries_, keys_;
  int levels_ = 1;
  int base_level_ = kMinBaseLevel;
  std::vector<IndexRange> seen_;  // of each row block
};

/// The largest weights of the cells of a row block, from the base level to kBlockLevel. A preview
/// has one row of cells per level, which stands for all rows of the block.
class BlockCells {
 public:
  /// `base` has the block's cells of the base level, row-major, for the keys of cell_keys_of().
  BlockCells(const Pyramid& pyramid, std::int64_t block, std::vector<Code> base,
             bool preview = false);

  /// The cells of one level; columns outside the range are hidden.
  struct Level {
    std::int64_t first_column = 0, columns = 0, rows = 0;
    std::vector<Code> codes = {};
  };
  const Level& level(int level) const {
    return levels_[static_cast<std::size_t>(level - base_level_)];
  }
  int coarsest() const { return base_level_ + static_cast<int>(levels_.size()) - 1; }
  bool preview() const { return preview_; }
  std::int64_t bytes() const;

 private:
  int base_level_;
  bool preview_;
  std::vector<Level> levels_;
};

/// The cells of row blocks; null where nothing is known.
using BlockList = std::vector<std::shared_ptr<const BlockCells>>;

/// The cells of a tile, as in a Frame.
struct TileCells {
  std::vector<Code> codes;
  std::vector<RowState> rows;  ///< empty if all are final
};

/// Returns a tile of a stored level, as far as the row blocks are known. A row of cells of several
/// blocks, of which some are unknown or previews, is a preview of the others.
TileCells tile_of_blocks(const Pyramid& pyramid, const TilePlace& tile, const BlockList& blocks);

}  // namespace fovea::view
