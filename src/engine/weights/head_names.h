// SPDX-License-Identifier: Apache-2.0
//
// Names of heads derived from their statistics (fovea/heads.h) and token scores (fovea/analysis.h),
// for example "previous token" or "induction".

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "fovea/export.h"
#include "fovea/heads.h"

namespace fovea::engine {

/// Indices into kHeadNumbers.
enum HeadPlace : std::size_t {
  kEntropy,
  kEvenEntropy,
  kMaximum,
  kMeanDistance,
  kFirstKey,
  kPreviousKey,
  kOwnKey,
  kNextKey,
  kBlockDiagonal
};

/// The statistics of one head.
struct HeadTold {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::array<double, kHeadNumbers.size()> numbers{};
  /// TokenScores; NaN without tokens, or if none is repeated.
  double duplicate = std::numeric_limits<double>::quiet_NaN();
  double induction = std::numeric_limits<double>::quiet_NaN();
  std::int64_t repeated = 0;  ///< the number of queries that the scores are means of

  double operator[](HeadPlace place) const { return numbers[place]; }
  /// Returns the entropy relative to that of equal weights; NaN if every row sees a single key.
  double evenness() const;
  /// Returns the largest mean weight among the first, previous, own and next key.
  double largest_share() const;
  /// Returns a name such as "previous token", or an empty string if no name applies. "induction"
  /// and "duplicate token" need scores of 4 or more repeated tokens: a single one says little.
  FOVEA_API std::string_view name() const;
};

}  // namespace fovea::engine
