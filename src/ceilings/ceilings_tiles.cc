// SPDX-License-Identifier: Apache-2.0
//
// Products of tiles in registers, with operands that change (ceilings_tiles.h).

#include "ceilings/ceilings_tiles.h"

#include <cstddef>
#include <random>

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ceilings/ceilings_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/amx_target-inl.h"

#if FOVEA_AMX_TARGET
#include "kernels/simd/tile_unit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

double multiply_tiles(std::int64_t rounds, float& used) {
  struct alignas(64) Tile {
    std::uint32_t words[kUnitFloats];
  };
  Tile operands[4];
  std::mt19937 random(1);
  for (Tile& tile : operands) {
    // Signs and mantissas are random; exponents give numbers from 1 to 2.
    for (std::uint32_t& word : tile.words) word = (random() & 0x807f807fu) | 0x3f803f80u;
  }
  const TileUnitSession session;
  Tile sum = {};
  TileUnit::load<0>(sum.words, kUnitRowBytes);
  TileUnit::load<1>(sum.words, kUnitRowBytes);
  TileUnit::load<2>(sum.words, kUnitRowBytes);
  TileUnit::load<3>(sum.words, kUnitRowBytes);
  const auto four_products = [&](std::size_t first) HWY_ATTR {
    TileUnit::load<4>(operands[first].words, kUnitRowBytes);
    TileUnit::load<5>(operands[(first + 1) % 4].words, kUnitRowBytes);
    TileUnit::load<6>(operands[(first + 2) % 4].words, kUnitRowBytes);
    TileUnit::load<7>(operands[(first + 3) % 4].words, kUnitRowBytes);
    TileUnit::multiply<0, 4, 6>();
    TileUnit::multiply<1, 4, 7>();
    TileUnit::multiply<2, 5, 6>();
    TileUnit::multiply<3, 5, 7>();
  };
  for (std::int64_t round = 0; round < rounds; ++round) {
    four_products(static_cast<std::size_t>(round) % 4);
  }
  TileUnit::store<0>(sum.words, kUnitRowBytes);
  used += static_cast<float>(sum.words[0]);
  constexpr double kFlop = 2.0 * kUnitRows * kUnitRows * kUnitDepth;
  return 4.0 * kFlop * static_cast<double>(rounds);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_TILE_CEILING
#endif

#if HWY_ONCE
namespace fovea::kernels {

double multiply_add_tiles(std::int64_t rounds, float& used) {
#ifdef FOVEA_HAS_TILE_CEILING
  return N_AMX::multiply_tiles(rounds, used);
#else
  static_cast<void>(rounds);
  static_cast<void>(used);
  return 0.0;
#endif
}

}  // namespace fovea::kernels
#endif
