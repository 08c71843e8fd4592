// SPDX-License-Identifier: Apache-2.0
//
// A cache of frames, bounded in bytes; the least recently used ones are dropped first.

#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <tuple>
#include <utility>

#include "view/explorer/explorer.h"

namespace fovea::view {

/// A tile of a head.
struct TileKey {
  HeadPlace head;
  TilePlace tile;

  friend bool operator<(const TileKey& a, const TileKey& b) { return a.order() < b.order(); }

 private:
  std::tuple<std::size_t, std::size_t, std::int64_t, Pool, int, std::int64_t, std::int64_t> order()
      const {
    return {head.input, head.layer, head.head, tile.reduce, tile.level, tile.x, tile.y};
  }
};

/// Not thread-safe.
class FrameCache {
 public:
  explicit FrameCache(std::int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Returns the frame, which becomes the most recently used one; null if it is not here.
  FrameBytes find(const TileKey& key);
  /// Frames larger than the cache are not stored.
  void store(const TileKey& key, FrameBytes frame);
  std::int64_t bytes() const { return bytes_; }

 private:
  using Entry = std::pair<TileKey, FrameBytes>;
  static std::int64_t size_of(const FrameBytes& frame);

  std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  std::list<Entry> entries_;  // the most recently used one first
  std::map<TileKey, std::list<Entry>::iterator> places_;
};

}  // namespace fovea::view
