// SPDX-License-Identifier: Apache-2.0
//
// The number that queries, or scores right after the first product, are multiplied by.

#pragma once

#include <numbers>

#include "fovea/attention_options.h"

namespace fovea::kernels {

/// All that is linear in the scores before the first stage: the scale; the softcap's own division;
/// and log2(e), for 2^x serves as the exponential, unless a custom function is to see the score
/// itself.
inline float query_factor(const ScoreOptions& score, double scale) {
  if (score.softcap > 0) return static_cast<float>(scale / score.softcap);
  const bool custom = score.custom.tile != nullptr;
  return static_cast<float>(scale * (custom ? 1.0 : std::numbers::log2e_v<double>));
}

}  // namespace fovea::kernels
