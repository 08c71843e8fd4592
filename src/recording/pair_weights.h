// SPDX-License-Identifier: Apache-2.0
//
// Single weights of one head of a recorded attention, for analyses that need few of them
// (fovea/analysis.h).

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/recording.h"

#include "problem/pair_score.h"

namespace fovea::recording {

/// Queries and keys of one head in float32, O(N) memory.
class PairWeights {
 public:
  /// The attention must outlive this object.
  PairWeights(const RecordedAttention& attention, std::int64_t batch, std::int64_t head);

  /// Returns the sum of the weights of a query on some keys, in their order. Each may be hidden.
  double sum(std::int64_t query, std::span<const std::int64_t> keys) const;

 private:
  const RecordedAttention& attention_;
  ProblemShape shape_;
  ScorePosition origin_;  // of query 0 and key 0
  std::int64_t head_dim_ = 0;
  PairScore score_;
  std::vector<float> query_, key_;
};

}  // namespace fovea::recording
