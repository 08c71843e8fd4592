// SPDX-License-Identifier: Apache-2.0
//
// The computations of `fovea map` and `fovea tile`: calls of attention_map() and
// attention_weights() with a progress line and errors that name options.

#pragma once

#include <cstdint>

#include "fovea/map.h"
#include "fovea/recording.h"

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

using Span = IndexRange;

struct MapResult : AttentionMap {
  int threads = 1;
  double seconds = 0.0;
};

/// The content of a tile: weights, or the scores before softmax.
enum class TileOf : std::uint8_t { kWeights, kScores };

/// Computes the rectangle of the request's queries and keys, [queries, keys], float32 or float64.
/// Throws like compute_map.
Tensor compute_tile(const AttendInputs& inputs, const AttendRules& rules, const MapRequest& request,
                    TileOf what, int threads, Progress& progress);

/// Computes a map. `rules` must be valid for the inputs. Throws InvalidArgument with a message that
/// names the option.
MapResult compute_map(const AttendInputs& inputs, const AttendRules& rules,
                      const MapRequest& request, int threads, Progress& progress);

/// Computes a map of the weights multiplied by the norms of their values. Throws InvalidArgument if
/// the attention was recorded without values.
MapResult compute_value_map(const RecordedAttention& attention, const MapRequest& request,
                            int threads, Progress& progress);

}  // namespace fovea::cli
