// SPDX-License-Identifier: Apache-2.0
//
// The cache of frames (cache.h).

#include "view/explorer/cache.h"

#include <utility>

namespace fovea::view {
namespace {

// The list, the map, the string and its owner.
constexpr std::int64_t kEntryBytes = 320;

}  // namespace

std::int64_t FrameCache::size_of(const FrameBytes& frame) {
  return static_cast<std::int64_t>(frame->capacity()) + kEntryBytes;
}

FrameBytes FrameCache::find(const TileKey& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().second;
}

void FrameCache::store(const TileKey& key, FrameBytes frame) {
  if (const auto old = places_.find(key); old != places_.end()) {
    bytes_ -= size_of(old->second->second);
    entries_.erase(old->second);
    places_.erase(old);
  }
  const std::int64_t bytes = size_of(frame);
  if (bytes > most_bytes_) return;
  while (bytes_ + bytes > most_bytes_) {
    bytes_ -= size_of(entries_.back().second);
    places_.erase(entries_.back().first);
    entries_.pop_back();
  }
  entries_.emplace_front(key, std::move(frame));
  places_.emplace(key, entries_.begin());
  bytes_ += bytes;
}

}  // namespace fovea::view
