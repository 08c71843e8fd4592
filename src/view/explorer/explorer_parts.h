// SPDX-License-Identifier: Apache-2.0
//
// The state of an Explorer (explorer.h), which its requests and its tasks share.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <tuple>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "view/explorer/cache.h"
#include "view/explorer/explorer.h"
#include "view/explorer/head_store.h"
#include "view/explorer/scheduler.h"

namespace fovea::view {

/// Throws InvalidArgument unless 0 <= index < count.
inline void check_index(const char* name, std::int64_t index, std::int64_t count) {
  if (index < 0 || index >= count) {
    fail_argument(name, "expected 0 to {}, got {}", count - 1, index);
  }
}

/// Returns the place of a thumbnail in the cache, which no tile has.
inline TileKey thumbnail_key(const HeadPlace& head, Pool reduce) {
  return {head, {.reduce = reduce, .level = -1}};
}

/// The data that the requests of an Explorer share. Tensors, lse and cells of heads are touched by
/// the scheduler's thread alone; the lock protects heads, the cache, and tasks that further
/// requests may join.
struct ExplorerParts {
  using Clock = std::chrono::steady_clock;
  using HeadKey = std::tuple<std::size_t, std::size_t, std::int64_t>;
  using LayerKey = std::tuple<std::size_t, std::size_t>;
  using ThumbKey = std::tuple<std::size_t, std::size_t, Pool>;
  struct KnownHead {
    std::shared_ptr<HeadStore> store;
    Clock::time_point viewed;
    bool wants_pass = false;
    // The queries whose blocks come first: those of the last tile, or of start_pass().
    IndexRange asked = {};
  };
  ExplorerParts(std::vector<Input> given, const ExplorerOptions& with);
  ~ExplorerParts() { scheduler.close(); }

  const Layer& layer_of(const HeadPlace& head) const;
  std::int64_t cell_budget() const { return settings.memory / 2; }
  /// Returns the head, which counts as viewed now. Call with the lock.
  KnownHead& known(const HeadPlace& head);
  /// Forgets the heads viewed longest ago until the lse of the others fits. Call with the lock.
  void forget_heads(const HeadPlace& except);
  /// Starts the pass of a head, unless it is complete or was stopped by hand. Call with the lock.
  void want_pass(KnownHead& head);
  /// Returns a tile of a stored level, and keeps it if it is final. Call with the lock.
  FrameBytes stored_tile(KnownHead& head, const TilePlace& tile);
  /// Takes the head out of the pass. Call with the lock.
  void end_pass(HeadStore& head);
  static void require_memory(const std::vector<Input>& inputs, std::int64_t memory);
  /// Drops the cells of heads that were viewed longest ago until those of the row block fit; spares
  /// heads that were viewed a moment ago. Returns whether the cells fit. Called from the
  /// scheduler's thread.
  bool make_room(const HeadStore& head, std::int64_t block);

  /// Returns the frames of all heads of a layer if the cache has them. Call with the lock.
  std::optional<std::vector<FrameBytes>> find_thumbnails(HeadPlace place, Pool reduce);

  /// Starts a task for the request, or lets it join one with the same key.
  template <class Key, class Made, class Result, class Make>
  void join_or_add(std::map<Key, std::weak_ptr<Made>>& tasks, const Key& key, std::stop_token stop,
                   Reply<Result> reply, const Make& make);
  template <class Made, class Result>
  void add(std::shared_ptr<Made> task, std::stop_token stop, Reply<Result> reply);

  const std::vector<Input> opened;
  const ExplorerOptions settings;
  mutable std::mutex mutex;
  std::map<HeadKey, KnownHead> heads;
  FrameCache cache;
  std::map<TileKey, std::weak_ptr<RequestTask<FrameBytes>>> tiles;
  std::map<LayerKey, std::weak_ptr<RequestTask<std::vector<HeadNumbers>>>> head_tasks;
  std::map<LayerKey, std::vector<HeadNumbers>> head_numbers;
  std::map<ThumbKey, std::weak_ptr<RequestTask<std::vector<FrameBytes>>>> thumbnail_tasks;
  Counters counts;
  bool pass_queued = false;
  Scheduler scheduler;  // last: its thread uses all other members
};

template <class Made, class Result>
void ExplorerParts::add(std::shared_ptr<Made> task, std::stop_token stop, Reply<Result> reply) {
  if (task->join(std::move(stop), std::move(reply))) scheduler.add(std::move(task));
}

template <class Key, class Made, class Result, class Make>
void ExplorerParts::join_or_add(std::map<Key, std::weak_ptr<Made>>& tasks, const Key& key,
                                std::stop_token stop, Reply<Result> reply, const Make& make) {
  std::weak_ptr<Made>& place = tasks[key];
  if (const auto running = place.lock(); running && running->join(stop, reply)) return;
  const std::shared_ptr<Made> task = make();
  place = task;
  add(task, std::move(stop), std::move(reply));
}

}  // namespace fovea::view
