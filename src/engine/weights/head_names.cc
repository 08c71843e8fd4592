// SPDX-License-Identifier: Apache-2.0
//
// Classification of heads (head_names.h).

#include "engine/weights/head_names.h"

#include <algorithm>
#include <limits>

namespace fovea::engine {
namespace {

// Thresholds for the names. The help page of `fovea heads` documents them too.
constexpr double kHalf = 0.5;
constexpr std::int64_t kFewRepeated = 4;
constexpr double kEven = 0.95;
constexpr double kMaxEven = 1.01;  // exceeded only with a sink, when weights sum to less than 1
// Equal shares may differ by rounding, because they are computed in different ways.
constexpr double kSameShare = 1e-5;
constexpr double kOneKey = 0.8;

}  // namespace

double HeadTold::evenness() const {
  if (!(numbers[kEvenEntropy] > 0.0)) return std::numeric_limits<double>::quiet_NaN();
  return numbers[kEntropy] / numbers[kEvenEntropy];
}

double HeadTold::largest_share() const {
  return std::max({numbers[kFirstKey], numbers[kPreviousKey], numbers[kOwnKey], numbers[kNextKey]});
}

std::string_view HeadTold::name() const {
  if (evenness() >= kEven && evenness() <= kMaxEven) return "uniform";
  const double largest = largest_share();
  if (largest >= kHalf) {
    // Names of positions relative to the query take precedence over "sink": with few visible keys,
    // the first key may be the query's own.
    const double least = largest - kSameShare;
    if (numbers[kOwnKey] >= least) return "own token";
    if (numbers[kPreviousKey] >= least) return "previous token";
    if (numbers[kNextKey] >= least) return "next token";
    return "sink";
  }
  if (numbers[kBlockDiagonal] >= kHalf) return "local blocks";
  // Before "one key", which says less. Both scores are NaN without tokens.
  if (repeated >= kFewRepeated && std::max(induction, duplicate) >= kHalf) {
    return induction >= duplicate ? "induction" : "duplicate token";
  }
  if (numbers[kMaximum] >= kOneKey) return "one key";
  return {};
}

}  // namespace fovea::engine
