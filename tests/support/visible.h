// SPDX-License-Identifier: Apache-2.0
//
// The visible pairs of a problem, one at a time.

#pragma once

#include <limits>

#include "fovea/attention_options.h"

#include "problem/broadcast.h"

namespace fovea::test {

/// Returns whether neither the mask nor a bias of -inf hides a pair.
inline bool is_visible(const AttentionOptions& options, const ScorePosition& at) {
  const TensorRef& bias = options.score.bias;
  const bool hidden =
      bias.defined() && broadcast_value(bias, at) == -std::numeric_limits<double>::infinity();
  return options.mask.visible(at) && !hidden;
}

}  // namespace fovea::test
