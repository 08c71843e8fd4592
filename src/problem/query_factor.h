// SPDX-License-Identifier: Apache-2.0
//
// The factor that kernels apply to queries, or to scores right after the first product.

#pragma once

#include <numbers>

#include "fovea/attention_options.h"

namespace fovea {

/// Returns the product of all factors before the first stage. With a softcap: scale / softcap. With
/// a custom function, which needs scores without log2(e): the scale. Otherwise: scale * log2(e),
/// because the softmax uses 2^x.
inline float query_factor(const ScoreOptions& score, double scale) {
  constexpr double kLog2E = std::numbers::log2e_v<double>;
  if (score.softcap > 0) return static_cast<float>(scale / score.softcap);
  const bool custom = score.custom.tile != nullptr;
  return static_cast<float>(scale * (custom ? 1.0 : kLog2E));
}

}  // namespace fovea
