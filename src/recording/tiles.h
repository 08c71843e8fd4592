// SPDX-License-Identifier: Apache-2.0
//
// Weights of recorded attentions, part by part: common code of the analyses (fovea/analysis.h).

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/execution.h"
#include "fovea/map.h"
#include "fovea/recording.h"
#include "fovea/weights.h"

namespace fovea::recording {

// The extents of a part. Its weights fit the L2 cache, and the packing of its keys is amortised
// over the queries. Queries are a multiple of the panels of all SIMD targets.
inline constexpr std::int64_t kPartQueries = 192;
inline constexpr std::int64_t kPartKeys = 512;

/// Throws InvalidArgument unless the attention has the tensors of weights, and its options fit.
void require_recorded(const RecordedAttention& attention);

/// The weights of one attention, of one part at a time. Each thread needs an object of its own.
class PartWeights {
 public:
  /// `execution` provides the stop token. The attention must outlive this object.
  PartWeights(const RecordedAttention& attention, const Execution& execution);

  /// Computes the weights of a part, of at most kPartQueries x kPartKeys.
  void compute(const WeightTile& part);
  /// Returns the weights of a query of the part, counted from its first.
  const float* row(std::int64_t query) const { return weights_.data() + query * kPartKeys; }

 private:
  const RecordedAttention& attention_;
  AttentionOptions options_;
  std::vector<float> weights_;
};

/// Returns a range that contains all keys that some queries of a head see.
IndexRange keys_of_queries(const RecordedAttention& attention, const WeightTile& queries);

/// Calls visit(part) for the parts of the keys in `keys`, at multiples of kPartKeys.
template <class Visit>
void for_each_part(WeightTile queries, IndexRange keys, const Visit& visit) {
  for (std::int64_t begin = keys.begin; begin < keys.end;) {
    const std::int64_t end = std::min((begin / kPartKeys + 1) * kPartKeys, keys.end);
    queries.first_key = begin;
    queries.keys = end - begin;
    visit(queries);
    begin = end;
  }
}

}  // namespace fovea::recording
