// SPDX-License-Identifier: Apache-2.0
//
// Plan of the ring (ring.h).

#include "distributed/ring.h"

#include <algorithm>

namespace fovea::distributed {

std::vector<KeyPiece> RingPlan::ranges_of(const Sharding& keys, int owner) {
  std::vector<KeyPiece> pieces;
  std::int64_t first = 0;
  for (const PositionRange& range : keys.ranges(owner)) {
    pieces.push_back({owner, range, first});
    first += range.size();
  }
  return pieces;
}

std::vector<KeyPiece> RingPlan::ranges_of(const Sharding& keys) {
  std::vector<KeyPiece> pieces;
  for (int owner = 0; owner < keys.ranks(); ++owner) {
    const std::vector<KeyPiece> own = ranges_of(keys, owner);
    pieces.insert(pieces.end(), own.begin(), own.end());
  }
  return pieces;
}

RingPlan::RingPlan(Transport& transport, const Sharding& keys,
                   const std::vector<PositionRange>& needed)
    : pieces_(static_cast<std::size_t>(keys.ranks())) {
  const int ranks = transport.size();
  const std::size_t count = needed.size();
  std::vector<PositionRange> all(count * static_cast<std::size_t>(ranks));
  transport.all_gather(std::as_bytes(std::span(needed)), std::as_writable_bytes(std::span(all)));
  const std::vector<KeyPiece> ranges = ranges_of(keys);
  for (std::size_t i = 0; i < count; ++i) {
    const KeyPiece& range = ranges[i];
    const auto needed_at = [&](int step) {
      const int rank = (range.owner + step) % ranks;
      return all[static_cast<std::size_t>(rank) * count + i];
    };
    // The positions that other ranks need, from the first to the last.
    PositionRange travels{range.positions.end, range.positions.begin};
    for (int step = 1; step < ranks; ++step) {
      const PositionRange one = needed_at(step);
      if (one.size() <= 0) continue;
      travels = {std::min(travels.begin, one.begin), std::max(travels.end, one.end)};
    }
    if (travels.size() <= 0) travels = range.positions;
    const std::int64_t cuts[] = {range.positions.begin, travels.begin, travels.end,
                                 range.positions.end};
    for (int part = 0; part < 3; ++part) {
      KeyPiece piece = range;
      piece.positions = {cuts[part], cuts[part + 1]};
      if (piece.positions.size() == 0) continue;
      piece.first += piece.positions.begin - range.positions.begin;
      for (int step = 1; step < ranks; ++step) {
        const PositionRange one = needed_at(step);
        if (std::max(one.begin, piece.positions.begin) < std::min(one.end, piece.positions.end)) {
          piece.last_step = step;
        }
      }
      steps_ = std::max(steps_, piece.last_step);
      pieces_[static_cast<std::size_t>(piece.owner)].push_back(piece);
    }
  }
  for (auto& own : pieces_) {
    std::ranges::stable_sort(
        own, [](const KeyPiece& a, const KeyPiece& b) { return a.last_step > b.last_step; });
  }
}

std::vector<KeyPiece> RingPlan::circulating(int owner, int step) const {
  std::vector<KeyPiece> result;
  for (const KeyPiece& piece : pieces_[static_cast<std::size_t>(owner)]) {
    if (piece.last_step >= step) result.push_back(piece);
  }
  return result;
}

}  // namespace fovea::distributed
