// SPDX-License-Identifier: Apache-2.0
//
// Groups examples of similar length into batches, in an order that depends only on a seed.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::train {

/// A pair of texts as tokens.
struct Example {
  std::vector<std::int64_t> source;  ///< ends with kEnd
  std::vector<std::int64_t> target;  ///< ends with kEnd
};

/// Several examples, padded with kPadding.
struct Batch {
  Tensor source;                             ///< int64 [batch, source length]
  std::vector<std::int64_t> source_lengths;  ///< per example, including kEnd
  Tensor target;            ///< int64 [batch, length]: kBegin, then the target without kEnd
  Tensor next;              ///< int64 [batch, length]: the target with kEnd
  std::int64_t tokens = 0;  ///< number of source and target tokens, without padding
};

/// Returns the examples at the indices `numbers` as one batch. The indices are not checked.
Batch make_batch(std::span<const Example> examples, std::span<const std::int64_t> numbers);

/// Returns this epoch's batches of `size` indices, in order. Each example is in exactly one batch.
/// The examples are shuffled and then sorted by length within windows of several batches,
/// which keeps padding low; the batches are shuffled again.
std::vector<std::vector<std::int64_t>> batches_of_epoch(std::span<const Example> examples,
                                                        std::int64_t size, std::uint64_t seed,
                                                        std::int64_t epoch);

}  // namespace fovea::train
