// SPDX-License-Identifier: Apache-2.0
//
// Examples in groups of similar length, in an order that follows from a seed alone.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::train {

/// A pair as tokens.
struct Example {
  std::vector<std::int64_t> source;  ///< kEnd behind it
  std::vector<std::int64_t> target;  ///< likewise
};

/// Some examples, filled up with kPadding.
struct Batch {
  Tensor source;                             ///< int64 [batch, source length]
  std::vector<std::int64_t> source_lengths;  ///< of each, with kEnd
  Tensor target;                             ///< int64 [batch, length]: kBegin, then its tokens
  Tensor next;              ///< int64 [batch, length]: its tokens, kEnd behind them
  std::int64_t tokens = 0;  ///< of source and target that are no padding
};

/// Throws nothing; numbers are places in `examples`.
Batch make_batch(std::span<const Example> examples, std::span<const std::int64_t> numbers);

/// All examples once, as batches of `size`, in an order of this epoch: shuffled, sorted by length
/// within windows of some batches, so that little is padding, and these shuffled again.
std::vector<std::vector<std::int64_t>> batches_of_epoch(std::span<const Example> examples,
                                                        std::int64_t size, std::uint64_t seed,
                                                        std::int64_t epoch);

}  // namespace fovea::train
