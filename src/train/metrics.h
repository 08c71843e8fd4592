// SPDX-License-Identifier: Apache-2.0
//
// Metrics of translations: text similarity, and the accuracy of alignments.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "train/pairs.h"
#include "train/search.h"

namespace fovea::train {

/// Returns the chrF2 score (Popović 2015) of the whole corpus, 0 to 100: the F-score (beta = 2) of
/// the mean precision and mean recall of character n-grams, n = 1 to 6, ignoring white space. The
/// definition is that of sacreBLEU.
double chrf(std::span<const std::string> texts, std::span<const std::string> references);

/// Accuracy of alignments, over the target characters with a known origin. A character counts as
/// correct if the largest weight of the step that wrote it is on its origin.
struct Aligned {
  std::int64_t right = 0;
  std::int64_t counted = 0;

  void add(const Translation& translation, const Pair& pair);
  double share() const {
    return counted == 0 ? 0.0 : static_cast<double>(right) / static_cast<double>(counted);
  }
};

}  // namespace fovea::train
