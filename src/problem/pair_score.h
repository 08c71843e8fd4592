// SPDX-License-Identifier: Apache-2.0
//
// Scores of single pairs in float64, for code that needs few of them.

#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/export.h"

namespace fovea {

/// Turns products of a query and a key into scores, as the reference does.
class PairScore {
 public:
  /// The options must be valid for `shape`, and outlive this object.
  FOVEA_API PairScore(const ScoreOptions& options, const ProblemShape& shape,
                      std::int64_t head_dim);

  /// Returns the score of a visible pair; -inf if a bias or score hides it.
  FOVEA_API double operator()(double product, const ScorePosition& at) const;

 private:
  const ScoreOptions& options_;
  double scale_;
  std::vector<double> slopes_;  // of ALiBi, by head
};

}  // namespace fovea
