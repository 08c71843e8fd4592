// SPDX-License-Identifier: Apache-2.0
//
// The levels of a head, and cells that nest.

#include "view/pyramid.h"

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
  std::vector<std::unique_ptr<const BlockCells>> blocks;
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
    blocks.push_back(std::make_unique<const BlockCells>(pyramid, block, std::move(base)));
    EXPECT_LE(blocks.back()->bytes(), pyramid.bytes_of(block));
  }
  for (int level = base_level; level < pyramid.levels(); ++level) {
    const int coarser = level - base_level;
    const std::int64_t tiles_x = (cells_of(keys, level) + kTileSide - 1) / kTileSide;
    const std::int64_t tiles_y = (cells_of(queries, level) + kTileSide - 1) / kTileSide;
    for (std::int64_t y = 0; y < tiles_y; ++y) {
      for (std::int64_t x = 0; x < tiles_x; ++x) {
        const TilePlace tile = {.level = level, .x = x, .y = y};
        const std::vector<Code> found = tile_of_blocks(pyramid, tile, blocks);
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

}  // namespace
}  // namespace fovea::view
