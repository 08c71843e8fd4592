// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the backward pass for the tile unit.

#pragma once

#include "kernels/backward/backward-inl.h"
#include "kernels/backward/backward_bf16.h"
#include "kernels/backward/tile_products-inl.h"
#include "kernels/simd/flush_to_zero.h"
#include "kernels/simd/tile_unit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

inline const BackwardFunctions* amx_backward_functions(const BackwardSetup& setup) {
  static constexpr BackwardFunctions kFunctions{
      .scratch_bytes =
          [](const BackwardSetup& s) {
            return BackwardScratch().lay_out(nullptr, backward_scratch_sizes<TileProducts>(s));
          },
      .item =
          [](const BackwardSetup& s, const BackwardItem& item, std::byte* scratch,
             const std::stop_token& stop) {
            const TileUnitSession session;
            const FlushToZero flush;
            BackwardPass<TileProducts>(s, item, scratch).run(stop);
          },
      .sizes = {.queries = HeadPass<TileProducts>::kQueries, .keys_multiple = kTileRows}};
  return setup.all_are(DType::kBFloat16) ? &kFunctions : nullptr;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
