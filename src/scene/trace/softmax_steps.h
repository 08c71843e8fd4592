// SPDX-License-Identifier: Apache-2.0
//
// The parts of softmax: shifted scores, exponentials and their sums.

#pragma once

#include <span>

#include "fovea/reference.h"
#include "fovea/tensor.h"

namespace fovea::scene {

/// The parts of a normalization with an exponential, in the type of the scores. Scores and
/// exponentials are [batch, heads, queries, keys], sums are [batch, heads, queries].
struct SoftmaxSteps {
  Tensor shifted;       ///< score - row maximum, -inf where masked; undefined for the naive softmax
  Tensor exponentials;  ///< exp(shifted), or exp(score) for the naive softmax; 0 where masked
  Tensor sums;          ///< the sum of each row of exponentials
};

/// Returns the parts of a row's weights, which equal exponential / sum bit for bit. The row maximum
/// and the sum include the head's sink, if there is one. A fully masked row without a sink has the
/// sum 0; its weights are 0.
///
/// scores   the final scores, float32 or float64
/// visible  bool, of the same shape: false where the key is masked
/// sinks    one per head, or empty
///
/// Requires kind != Normalization::kSum.
SoftmaxSteps softmax_steps(const Tensor& scores, const Tensor& visible,
                           std::span<const double> sinks, reference::Normalization kind);

}  // namespace fovea::scene
