// SPDX-License-Identifier: Apache-2.0
//
// The numbers of `fovea map` and `fovea tile`: attention_map() and attention_weights() of what was
// asked for, with progress and errors as the command line has them.

#pragma once

#include <cstdint>

#include "fovea/map.h"

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// From `begin` to before `end`.
using Span = IndexRange;

struct MapResult : AttentionMap {
  int threads = 1;
  double seconds = 0.0;
};

/// What a tile shows: weights, or the scores that softmax makes them of.
enum class TileOf : std::uint8_t { kWeights, kScores };

/// The rectangle of the request's queries and keys, [queries, keys], float32 or float64. Throws as
/// compute_map.
Tensor compute_tile(const AttendInputs& inputs, const AttendRules& rules, const MapRequest& request,
                    TileOf what, int threads, Progress& progress);

/// Computes, with rules that fit the problem. Throws InvalidArgument, in words of options.
MapResult compute_map(const AttendInputs& inputs, const AttendRules& rules,
                      const MapRequest& request, int threads, Progress& progress);

}  // namespace fovea::cli
