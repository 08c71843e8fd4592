// SPDX-License-Identifier: Apache-2.0
//
// The ring in which keys and values circulate: each rank sends what it has to the next rank and
// receives from the one before it, as long as a rank further on sees it.

#pragma once

#include <cstdint>
#include <vector>

#include "fovea/distributed.h"

namespace fovea::distributed {

/// Consecutive keys of a rank.
struct KeyPiece {
  int owner = 0;
  PositionRange positions;
  std::int64_t first = 0;  ///< the index of its first key in the owner's part
  int last_step = 0;       ///< the last step at which a rank needs it; 0: only the owner
};

/// The keys that each rank needs. At step t, the pieces of rank r are at rank r + t (modulo the
/// ranks). Each range of a rank is one piece, or is cut so that keys that no other rank needs do
/// not travel.
class RingPlan {
 public:
  /// `needed` has the positions that this rank needs of each range of `ranges_of(keys)`.
  /// Collective.
  RingPlan(Transport& transport, const Sharding& keys, const std::vector<PositionRange>& needed);

  /// Returns the ranges of all ranks as pieces, in the order of ranks and positions.
  static std::vector<KeyPiece> ranges_of(const Sharding& keys);
  /// Returns the ranges of one rank.
  static std::vector<KeyPiece> ranges_of(const Sharding& keys, int owner);

  /// Returns the last step at which a piece of any rank is needed by another.
  int steps() const { return steps_; }
  /// Returns the pieces of a rank that circulate at `step`: those needed longest come first, so
  /// that the pieces of each step are the first of those of the step before.
  std::vector<KeyPiece> circulating(int owner, int step) const;

 private:
  std::vector<std::vector<KeyPiece>> pieces_;  // by owner
  int steps_ = 0;
};

}  // namespace fovea::distributed
