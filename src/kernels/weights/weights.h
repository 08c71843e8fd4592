// SPDX-License-Identifier: Apache-2.0
//
// Weights found again from lse (fovea/weights.h), as the engine asks for them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "fovea/lenses.h"

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// What is done with the weights of some queries and keys of a head. Null where it is not asked
/// for.
struct WeightsItem {
  ForwardHead head;            // its query, key, bias and places
  const float* lse = nullptr;  // of query 0 of the head
  std::int64_t lse_stride = 0;
  std::int64_t q_begin = 0, q_end = 0;
  std::int64_t k_begin = 0, k_end = 0;

  /// A row for each query from q_begin on, with a number for each key from k_begin on: its weight,
  /// or its score.
  float* numbers = nullptr;
  std::int64_t stride = 0;
  bool scores = false;

  /// For each panel of queries, each of `columns` runs of keys, from column_begin[c] to before
  /// column_begin[c + 1], and each lane of the panel: the sum of its weights, or the largest. All
  /// keys are of one block.
  float* cells = nullptr;  // [panels][columns][panel_lanes()]
  const std::int64_t* column_begin = nullptr;
  std::int64_t columns = 0;
  Pool pool = Pool::kSum;

  /// For each key from k_begin on, over all of the queries: the sum of its weights, the largest,
  /// and the sum over queries from recent_begin on.
  float* sums = nullptr;
  float* maxima = nullptr;
  float* recent = nullptr;
  std::int64_t recent_begin = 0;
  /// To be added to: bin b counts visible pairs with 2^-(b + 1) < weight <= 2^-b, the last one all
  /// that are smaller.
  std::int64_t* histogram = nullptr;
  std::int64_t bins = 0;

  /// Whether weights, or scores, are needed beyond their tile.
  bool keeps() const { return numbers != nullptr || cells != nullptr; }
  bool of_columns() const {
    return sums != nullptr || maxima != nullptr || recent != nullptr || histogram != nullptr;
  }
};

/// The setup of a forward pass without values, with one panel per item.
using WeightsSetup = ForwardSetup;

/// The bytes of scratch that one thread needs, a multiple of 64.
std::size_t weights_scratch_bytes(const WeightsSetup& setup);

/// Computes an item. `scratch` is aligned to 64 bytes. Returns early, with results unspecified,
/// when `stop` asks. Bits of a weight or score depend on its query and key alone; those of columns
/// on where their blocks lie: k_begin should be a multiple of block_keys for them.
void weights_item(const WeightsSetup& setup, const WeightsItem& item, std::byte* scratch,
                  const std::stop_token& stop);

}  // namespace fovea::kernels
