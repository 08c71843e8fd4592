// SPDX-License-Identifier: Apache-2.0
//
// When which name fits (head_names.h).

#include "engine/weights/head_names.h"

#include <algorithm>
#include <limits>

namespace fovea::engine {
namespace {

// When a name fits; the page of `fovea heads` says so too.
constexpr double kHalf = 0.5;
constexpr double kEven = 0.95;
constexpr double kMaxEven = 1.01;  // more comes of a sink, beside which weights add up to less
// Shares that are the same differ by rounding: they were found in different ways.
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
    // Where rows see few keys the first may be the query's own.
    const double least = largest - kSameShare;
    if (numbers[kOwnKey] >= least) return "own token";
    if (numbers[kPreviousKey] >= least) return "previous token";
    if (numbers[kNextKey] >= least) return "next token";
    return "sink";
  }
  if (numbers[kBlockDiagonal] >= kHalf) return "local blocks";
  if (numbers[kMaximum] >= kOneKey) return "one key";
  return {};
}

}  // namespace fovea::engine
