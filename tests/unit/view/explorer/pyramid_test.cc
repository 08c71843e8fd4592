// SPDX-License-Identifier: Apache-2.0
//
// The levels of a head, and cells that nest.

#include "view/explorer/pyramid.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/random.h"

namespace fovea::view {
namespace {

constexpr std::int64_t kHalfGibibyte = std::int64_t{1} << 29;
constexpr std::int64_t kMillion = std::int64_t{1} << 20;

Pyramid pyramid_of(const Mask& mask, std::int64_t queries, std::int64_t keys,
                   std::int64_t bytes = kHalfGibibyte) {
  return {mask, {.offset = keys - queries}, queries, keys, bytes};
}

TEST(ViewPyramid, TheCoarsestLevelFitsOneTile) {
  EXPECT_EQ(pyramid_of({}, 1, 1).levels(), 1);
  EXPECT_EQ(pyramid_of({}, 256, 1).levels(), 1);
  EXPECT_EQ(pyramid_of({}, 1, 257).levels(), 2);
  EXPECT_EQ(pyramid_of({}, 4096, 4096).levels(), 5);
  EXPECT_EQ(pyramid_of({}, 4097, 4096).levels(), 6);
  EXPECT_EQ(pyramid_of(window(4096, 0), kMillion, kMillion).levels(), 13);
}

TEST(ViewPyramid, BaseLevelsOfTheSpecification) {
  EXPECT_EQ(pyramid_of(causal(), kMillion, kMillion).base_level(), 7);
  EXPECT_EQ(pyramid_of(causal(), 131'072, 131'072).base_level(), 4);
  EXPECT_EQ(pyramid_of({}, 131'072, 131'072).base_level(), 4);
  EXPECT_EQ(pyramid_of(window(4096, 0), kMillion, kMillion).base_level(), 4);
  EXPECT_EQ(pyramid_of({}, 131'072, 131'072, kHalfGibibyte / 16).base_level(), 6);
  EXPECT_FALSE(pyramid_of({}, 2048, 2048).stores());
  EXPECT_TRUE(pyramid_of({}, 2049, 2048).stores());
}

TEST(ViewPyramid, BlocksKnowTheKeysThatTheySee) {
  const Pyramid pyramid = pyramid_of(window(100, 0), 5000, 5000);
  ASSERT_EQ(pyramid.blocks(), 5);
  EXPECT_EQ(pyramid.queries_of(4).begin, 4096);
  EXPECT_EQ(pyramid.queries_of(4).end, 5000);
  EXPECT_EQ(pyramid.keys_of(1).begin, 924);
  EXPECT_EQ(pyramid.keys_of(1).end, 2048);
  EXPECT_EQ(pyramid.cell_keys_of(1).begin, 912);
  // More queries than keys: the first rows see nothing.
  const Pyramid masked = pyramid_of(causal(), 5000, 1000);
  EXPECT_EQ(masked.keys_of(0).size(), 0);
  EXPECT_EQ(masked.keys_of(3).size(), 96);
  EXPECT_FALSE(masked.meets(0, {.level = 4}));
  EXPECT_TRUE(masked.meets(3, {.level = 4}));
}

TEST(ViewPyramid, TilesOutsideAreRejected) {
  const Pyramid pyramid = pyramid_of({}, 4099, 4001);
  EXPECT_NO_THROW(pyramid.check({.level = 0, .x = 15, .y = 16}));
  EXPECT_THROW(pyramid.check({.level = 0, .x = 16, .y = 16}), InvalidArgument);
  EXPECT_THROW(pyramid.check({.level = 0, .x = 15, .y = 17}), InvalidArgument);
  EXPECT_THROW(pyramid.check({.level = 6}), InvalidArgument);
  EXPECT_THROW(pyramid.check({.level = -1}), InvalidArgument);
  EXPECT_THROW(pyramid.check({.level = 0, .x = -1}), InvalidArgument);
}

/// Tiles of all stored levels equal the maxima of the base level's cells.
void expect_maxima(const Mask& mask, std::int64_t queries, std::int64_t keys,
                   std::int64_t bytes = kHalfGibibyte) {
  const Pyramid pyramid = pyramid_of(mask, queries, keys, bytes);
  const int base_level = pyramid.base_level();
  const std::int64_t columns = cells_of(keys, base_level);
  std::vector<Code> all(static_cast<std::size_t>(cells_of(queries, base_level) * columns));
  BlockList blocks;
  RandomState random(3);
  for (std::int64_t block = 0; block < pyramid.blocks(); ++block) {
    const IndexRange seen = pyramid.cell_keys_of(block);
    const std::int64_t first = seen.begin >> base_level;
    const std::int64_t own = cells_of(seen.end, base_level) - first;
    const std::int64_t rows = cells_of(pyramid.queries_of(block).size(), base_level);
    const std::int64_t first_row = pyramid.queries_of(block).begin >> base_level;
    std::vector<Code> base;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < own; ++c) {
        base.push_back(static_cast<Code>(random.randint(0, 1000)));
        all[static_cast<std::size_t>((first_row + r) * columns + first + c)] = base.back();
      }
    }
    blocks.push_back(std::make_shared<const BlockCells>(pyramid, block, std::move(base)));
    EXPECT_LE(blocks.back()->bytes(), pyramid.bytes_of(block));
  }
  for (int level = base_level; level < pyramid.levels(); ++level) {
    const int coarser = level - base_level;
    const std::int64_t tiles_x = (cells_of(keys, level) + kTileSide - 1) / kTileSide;
    const std::int64_t tiles_y = (cells_of(queries, level) + kTileSide - 1) / kTileSide;
    for (std::int64_t y = 0; y < tiles_y; ++y) {
      for (std::int64_t x = 0; x < tiles_x; ++x) {
        const TilePlace tile = {.level = level, .x = x, .y = y};
        const TileCells cells = tile_of_blocks(pyramid, tile, blocks);
        EXPECT_TRUE(cells.rows.empty());
        const std::vector<Code>& found = cells.codes;
        const std::int64_t width = cells_of(pyramid.keys_of(tile).size(), level);
        std::vector<Code> expected(found.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
          const std::int64_t r =
              (static_cast<std::int64_t>(i) / columns >> coarser) - y * kTileSide;
          const std::int64_t c =
              (static_cast<std::int64_t>(i) % columns >> coarser) - x * kTileSide;
          if (r < 0 || c < 0 || r >= kTileSide || c >= kTileSide) continue;
          Code& cell = expected[static_cast<std::size_t>(r * width + c)];
          cell = larger_code(cell, all[i]);
        }
        ASSERT_EQ(found, expected) << "level " << level << ", tile " << x << ", " << y;
      }
    }
  }
}

TEST(ViewPyramid, CoarseCellsAreMaximaOfBaseCells) {
  expect_maxima({}, 4099, 4001);
  expect_maxima(causal(), 4099, 9001);
  expect_maxima(causal(), 9001, 4099);
  expect_maxima(window(300, 0), 20'000, 20'000);
  expect_maxima({}, 1, 10'000);
  expect_maxima({}, 10'000, 1);
}

TEST(ViewPyramid, LevelsCoarserThanARowBlock) {
  // The coarsest level has cells of 4,096 x 4,096 pairs.
  expect_maxima({}, 600'000, 3000, 1 << 16);
  expect_maxima({}, 3000, 600'000, 1 << 16);
}

/// The cells of a row block, all with one code.
std::shared_ptr<const BlockCells> block_of(const Pyramid& pyramid, std::int64_t block, Code code,
                                           bool preview = false) {
  const int level = pyramid.base_level();
  const std::int64_t columns = cells_of(pyramid.cell_keys_of(block).size(), level);
  const std::int64_t rows = preview ? 1 : cells_of(pyramid.queries_of(block).size(), level);
  return std::make_shared<const BlockCells>(
      pyramid, block, std::vector<Code>(static_cast<std::size_t>(rows * columns), code), preview);
}

TEST(ViewPyramid, TilesOfBlocksThatAreNotKnown) {
  const Pyramid pyramid = pyramid_of(causal(), 8192, 8192);
  ASSERT_EQ(pyramid.base_level(), 4);
  BlockList blocks(8);
  blocks[0] = block_of(pyramid, 0, 100);
  blocks[2] = block_of(pyramid, 2, 200, true);
  EXPECT_LE(blocks[2]->bytes(), pyramid.bytes_of(2));
  const TileCells fine = tile_of_blocks(pyramid, {.level = 4}, blocks);
  ASSERT_EQ(fine.rows.size(), 256U);
  const auto fine_at = [&](std::size_t row, std::size_t column) {
    return fine.codes[row * 256 + column];
  };
  // 64 rows of cells per block.
  for (const std::size_t row : {0U, 31U, 63U}) {
    EXPECT_EQ(fine.rows[row], RowState::kFinal);
    EXPECT_EQ(fine_at(row, 0), 100);
    EXPECT_EQ(fine_at(row, 64), kHiddenCode);
  }
  for (const std::size_t row : {64U, 127U, 192U, 255U}) {
    EXPECT_EQ(fine.rows[row], RowState::kUnknown);
    EXPECT_EQ(fine_at(row, 0), kUnknownCode);
    EXPECT_EQ(fine_at(row, 255), row < 192 ? kHiddenCode : kUnknownCode);
  }
  for (const std::size_t row : {128U, 191U}) {
    EXPECT_EQ(fine.rows[row], RowState::kPreview);
    EXPECT_EQ(fine_at(row, 0), 200);
    EXPECT_EQ(fine_at(row, 192), kHiddenCode);
  }
  // Above the diagonal nothing is ever known.
  EXPECT_TRUE(tile_of_blocks(pyramid, {.level = 4, .x = 1}, blocks).rows.empty());
}

TEST(ViewPyramid, RowsOfSeveralBlocksAreFinalOnceAllAre) {
  // Level 12 has cells of four row blocks.
  const Pyramid pyramid = pyramid_of({}, std::int64_t{1} << 20, 3000, 1 << 16);
  ASSERT_EQ(pyramid.levels(), 13);
  BlockList blocks(1024);
  for (std::int64_t block = 0; block < 7; ++block) {
    blocks[static_cast<std::size_t>(block)] =
        block_of(pyramid, block, static_cast<Code>(100 + block), block == 5);
  }
  const TileCells tile = tile_of_blocks(pyramid, {.level = 12}, blocks);
  EXPECT_EQ(tile.rows[0], RowState::kFinal);
  EXPECT_EQ(tile.codes[0], 103);
  EXPECT_EQ(tile.rows[1], RowState::kPreview);
  EXPECT_EQ(tile.codes[1], 106);
  EXPECT_EQ(tile.rows[2], RowState::kUnknown);
  EXPECT_EQ(tile.codes[2], kUnknownCode);
  blocks[7] = block_of(pyramid, 7, 50);
  blocks[5] = block_of(pyramid, 5, kNanCode);
  EXPECT_EQ(tile_of_blocks(pyramid, {.level = 12}, blocks).rows[1], RowState::kFinal);
  EXPECT_EQ(tile_of_blocks(pyramid, {.level = 12}, blocks).codes[1], kNanCode);
}

}  // namespace
}  // namespace fovea::view
