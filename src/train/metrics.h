// SPDX-License-Identifier: Apache-2.0
//
// How good translations are, and whether they looked where they should.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "train/pairs.h"
#include "train/search.h"

namespace fovea::train {

/// chrF2 (Popović 2015) of all texts together, 0 to 100: the mean precision and recall of runs of 1
/// to 6 characters, without white space, recall counted twice as much. As sacreBLEU has it.
double chrf(std::span<const std::string> texts, std::span<const std::string> references);

/// Characters of the target that have an origin, and those of which the step that wrote them looked
/// at it more than at any other token.
struct Aligned {
  std::int64_t right = 0;
  std::int64_t counted = 0;

  void add(const Translation& translation, const Pair& pair);
  double share() const {
    return counted == 0 ? 0.0 : static_cast<double>(right) / static_cast<double>(counted);
  }
};

}  // namespace fovea::train
