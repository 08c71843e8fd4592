// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the backward pass for the tile unit.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backward/backward-inl.h"
#include "kernels/backward/backward_bf16.h"
#include "kernels/backward/tile_products-inl.h"
#include "kernels/simd/flush_to_zero.h"
#include "kernels/simd/tile_unit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

template <class Numbers>
std::size_t amx_backward_bytes(const BackwardSetup& setup) {
  return BackwardScratch().lay_out(nullptr, backward_scratch_sizes<TileProducts<Numbers>>(setup));
}

template <class Numbers>
void amx_backward_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                       const std::stop_token& stop) {
  const TileUnitSession session;
  const FlushToZero flush;
  BackwardPass<TileProducts<Numbers>>(setup, item, scratch).run(stop);
}

/// Returns whether the parts of all numbers of an item lose no digits (AmxFloat::accepts), and no
/// product of them overflows.
inline bool accepts_item(const BackwardSetup& setup, const BackwardItem& item) {
  constexpr float kMost = 0x1p30f, kMostDelta = 0x1p60f, kLeast = 0x1p-100f;
  constexpr float kLeastGradient = 0x1p-60f;  // of the greatest products of values and dO
  const ForwardSetup& forward = setup.forward;
  Magnitudes inputs, values, gradients, deltas;
  for (std::int64_t i = 0; i < item.group; ++i) {
    const BackwardHead head = item.head(item.heads_of, i);
    if (i == 0) {
      const std::int64_t keys = std::min(forward.block_keys, head.forward.kv_len - item.first_key);
      AmxFloat::add_rows(head.forward.key, item.first_key, keys, forward.head_dim, inputs);
      AmxFloat::add_rows(head.forward.value, item.first_key, keys, forward.value_dim, values);
    }
    AmxFloat::add_rows(head.forward.query, 0, head.q_len, forward.head_dim, inputs);
    AmxFloat::add_rows(head.grad_context, 0, head.q_len, forward.value_dim, gradients);
    AmxFloat::add_rows({head.delta, 0, DType::kFloat32}, 0, 1, head.q_len, deltas);
  }
  const auto fits = [&](const Magnitudes& sizes) {
    return sizes.below(kMost) && sizes.at_least(kLeast);
  };
  const float products = values.greatest() * gradients.greatest();
  return fits(inputs) && fits(values) && fits(gradients) && deltas.below(kMostDelta) &&
         (products == 0.0f || products >= kLeastGradient);
}

inline std::size_t amx_float_backward_bytes(const BackwardSetup& setup) {
  return std::max(amx_backward_bytes<AmxFloat>(setup), float_backward().scratch_bytes(setup));
}

inline void amx_float_backward_item(const BackwardSetup& setup, const BackwardItem& item,
                                    std::byte* scratch, const std::stop_token& stop) {
  if (!accepts_item(setup, item)) return float_backward().item(setup, item, scratch, stop);
  amx_backward_item<AmxFloat>(setup, item, scratch, stop);
}

inline const BackwardFunctions* amx_backward_functions(const BackwardSetup& setup) {
  static constexpr BackwardFunctions kBf16{
      .scratch_bytes = &amx_backward_bytes<AmxBf16>,
      .item = &amx_backward_item<AmxBf16>,
      .sizes = {.queries = HeadPass<TileProducts<AmxBf16>>::kQueries, .keys_multiple = kTileRows}};
  static constexpr BackwardFunctions kFloat{
      .scratch_bytes = &amx_float_backward_bytes,
      .item = &amx_float_backward_item,
      .sizes = {.queries = HeadPass<TileProducts<AmxFloat>>::kQueries, .keys_multiple = kTileRows}};
  if (setup.all_are(DType::kBFloat16)) return &kBf16;
  // A product of the tile unit has 32 dimensions, and the last panel of a head is not pipelined.
  const bool float_pays = setup.forward.head_dim >= 24 && setup.most_queries >= 128 &&
                          setup.forward.options->float32_by_tiles;
  return float_pays && setup.all_are(DType::kFloat32) ? &kFloat : nullptr;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
