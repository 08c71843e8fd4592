// SPDX-License-Identifier: Apache-2.0
//
// Names of heads by their numbers (fovea/heads.h): "previous token", "sink" and the like.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/heads.h"

namespace fovea::engine {

/// Places in kHeadNumbers.
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

/// A head's numbers.
struct HeadTold {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::array<double, kHeadNumbers.size()> numbers{};

  double operator[](HeadPlace place) const { return numbers[place]; }
  /// The entropy as a share of that of equal weights; nan where every row sees a single key.
  double evenness() const;
  /// The largest of the shares of single places: first, previous, own and next key.
  double largest_share() const;
  /// "previous token", or nothing where no name fits.
  std::string_view name() const;
};

}  // namespace fovea::engine
