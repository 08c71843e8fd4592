// SPDX-License-Identifier: Apache-2.0
//
// Query heads with the same keys that are computed together. A panel has one query per lane, and
// the few queries of one head would leave many lanes idle: 8 queries of each of two heads fill a
// vector of 16.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"

#include "engine/call/problem.h"
#include "kernels/forward/forward.h"

namespace fovea::engine {

/// The maximum number of rows, queries times heads, for which keys and values are read in place:
/// with few rows, packing them takes longer than the faster products save (docs/benchmarks.md has
/// the crossovers).
inline constexpr std::int64_t kMaxRowsInPlace = 96;

/// Decoding divides the keys of a head into parts of about this size, which threads share. They are
/// long enough to make merging negligible, and short enough to keep many threads busy.
inline constexpr std::int64_t kPartBytes = 2 << 20;

/// Returns the sizes of a call's pass over tiles.
kernels::ForwardSizes forward_sizes(const Problem& problem, const kernels::LensSetup& lenses = {});

/// Returns a / b without a division instruction if b is 1, the usual case in the smallest calls,
/// where divisions took 5 % of the time. Without [[likely]], GCC removes the branch.
inline std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (b == 1) [[likely]]
    return a;
  return a / b;
}

/// Returns how many query heads share each key head; 0 without heads.
inline std::int64_t heads_of_a_key_head(const ProblemShape& shape) {
  return shape.kv_heads > 0 ? quotient(shape.q_heads, shape.kv_heads) : 0;
}

/// Returns whether a score depends on nothing but the query, the key and the mask. Otherwise each
/// head is computed alone.
bool scores_are_plain(const AttentionOptions& options);

/// Returns into how many parts the query heads of one key head are divided. An item has the heads
/// of one part, which are computed together. Each head is a part of its own unless larger parts
/// take clearly less time and leave enough items, or if scores depend on the head. `vector` is
/// ForwardSizes::in_place_vector.
std::int64_t parts_of_heads(const Problem& problem, const SequenceSpan& span, std::int64_t vector);

/// Returns whether tiles are faster than decoding because several heads fill most lanes. False if
/// decoding would have more items for the threads to share.
bool heads_fill_vectors(const Problem& problem, const SequenceSpan& span);

}  // namespace fovea::engine
