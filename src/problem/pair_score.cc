// SPDX-License-Identifier: Apache-2.0
//
// Scores of single pairs (pair_score.h).

#include "problem/pair_score.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "problem/broadcast.h"
#include "problem/problem_shape.h"

namespace fovea {

PairScore::PairScore(const ScoreOptions& options, const ProblemShape& shape, std::int64_t head_dim)
    : options_(options), scale_(score_scale(options, head_dim)) {
  if (!options.alibi) return;
  slopes_ = options.alibi->slopes;
  if (slopes_.empty()) slopes_ = default_alibi_slopes(shape.q_heads);
}

double PairScore::operator()(double product, const ScorePosition& at) const {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  double score = scale_ * product;
  if (options_.softcap > 0.0) score = options_.softcap * std::tanh(score / options_.softcap);
  if (options_.custom.one != nullptr) {
    score = options_.custom.one(options_.custom.state.get(), score, at);
  }
  if (score == kHidden) return score;
  const std::int64_t distance = at.key - (at.query + at.offset);
  if (options_.bias.defined()) {
    const double bias = broadcast_value(options_.bias, at);
    if (bias == kHidden) return bias;
    score += bias;
  }
  if (!slopes_.empty()) {
    score -= slopes_[static_cast<std::size_t>(at.head)] * static_cast<double>(std::abs(distance));
  }
  if (options_.relative) {
    const std::int64_t bucket = relative_bucket(distance, *options_.relative);
    const double bias = options_.relative->table->value({bucket, at.head});
    if (bias == kHidden) return bias;
    score += bias;
  }
  return score;
}

}  // namespace fovea
