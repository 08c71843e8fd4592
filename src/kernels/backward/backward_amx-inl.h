// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the backward pass for the tile unit.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

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
/// product of them overflows. Keys and rows that are hidden do not count.
inline bool accepts_item(const BackwardSetup& setup, const BackwardItem& item) {
  constexpr float kMost = 0x1p30f, kMaxDelta = 0x1p60f, kLeast = 0x1p-100f;
  constexpr float kLeastGradient = 0x1p-60f;  // of the greatest products of values and dO
  const ForwardSetup& forward = setup.forward;
  Magnitudes inputs, values, gradients, deltas;
  KeyBounds seen{std::numeric_limits<std::int64_t>::max(), 0};
  for (std::int64_t i = 0; i < item.group; ++i) {
    const BackwardHead head = item.head(item.heads_of, i);
    for (std::int64_t q = 0; q < head.q_len; q += setup.queries_together) {
      const KeyBounds& bounds = head.bounds[q / setup.queries_together];
      seen.begin = std::min(seen.begin, bounds.begin);
      seen.end = std::max(seen.end, bounds.end);
    }
    for (std::int64_t q = 0; q < head.q_len; ++q) {
      const bool sees_nothing = head.log2_sum[q] == std::numeric_limits<float>::infinity();
      if (sees_nothing) continue;
      AmxFloat::add_rows(head.forward.query, q, 1, forward.head_dim, inputs);
      AmxFloat::add_rows(head.grad_context, q, 1, forward.value_dim, gradients);
    }
    AmxFloat::add_rows({head.delta, 0, DType::kFloat32}, 0, 1, head.q_len, deltas);
  }
  if (item.group == 0) return true;
  const ForwardHead first = item.head(item.heads_of, 0).forward;
  const std::int64_t begin = std::max(item.first_key, seen.begin);
  const std::int64_t end = std::min({item.first_key + forward.block_keys, first.kv_len, seen.end});
  if (begin < end) {
    AmxFloat::add_rows(first.key, begin, end - begin, forward.head_dim, inputs);
    AmxFloat::add_rows(first.value, begin, end - begin, forward.value_dim, values);
  }
  const auto fits = [&](const Magnitudes& sizes) {
    return sizes.below(kMost) && sizes.at_least(kLeast);
  };
  const float products = values.greatest() * gradients.greatest();
  return fits(inputs) && fits(values) && fits(gradients) && deltas.below(kMaxDelta) &&
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
