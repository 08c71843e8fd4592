// SPDX-License-Identifier: Apache-2.0
//
// Interface of the kernel that recomputes weights from the lse (fovea/weights.h), for the engine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "fovea/lenses.h"

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// A range of queries and keys of a head, and the outputs derived from their weights. Outputs that
/// are not requested are null.
struct WeightsItem {
  ForwardHead head;            // its query, key, bias and positions
  const float* lse = nullptr;  // of query 0 of the head
  std::int64_t lse_stride = 0;
  std::int64_t q_begin = 0, q_end = 0;
  std::int64_t k_begin = 0, k_end = 0;

  /// One row per query, starting at query q_begin, with one element per key, starting at key
  /// k_begin: the weight, or the score if `scores` is set.
  float* numbers = nullptr;
  std::int64_t stride = 0;
  bool scores = false;

  /// For each panel of queries, column c and lane: the sum or maximum (`pool`) of the weights of
  /// keys [column_begin[c], column_begin[c + 1]). All keys are in one block.
  float* cells = nullptr;  // [panels][columns][panel_lanes()]
  const std::int64_t* column_begin = nullptr;
  std::int64_t columns = 0;
  Pool pool = Pool::kSum;

  /// For each key, starting at k_begin: the sum and maximum of its weights over all queries, and
  /// the sum over the queries at or after recent_begin.
  float* sums = nullptr;
  float* maxima = nullptr;
  float* recent = nullptr;
  std::int64_t recent_begin = 0;
  /// Accumulated into. Bin b counts visible pairs with 2^-(b + 1) < weight <= 2^-b; the last bin
  /// also counts all smaller weights.
  std::int64_t* histogram = nullptr;
  std::int64_t bins = 0;

  /// Returns whether weights or scores are needed after their tile is finished.
  bool keeps() const { return numbers != nullptr || cells != nullptr; }
  bool of_columns() const {
    return sums != nullptr || maxima != nullptr || recent != nullptr || histogram != nullptr;
  }
};

/// Setup of a forward pass without values, with one panel per item.
using WeightsSetup = ForwardSetup;

/// Returns the scratch bytes that one thread needs, a multiple of 64.
std::size_t weights_scratch_bytes(const WeightsSetup& setup);

/// Computes an item. `scratch` is aligned to 64 bytes. If a stop is requested, returns early and
/// leaves the results unspecified. The weight and score of a query and key have exactly the same
/// bits, whichever item computes them. Rounding of per-key results also depends on block
/// boundaries, so k_begin should be a multiple of block_keys.
void weights_item(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
                  const std::stop_token& stop);

}  // namespace fovea::kernels
