// SPDX-License-Identifier: Apache-2.0
//
// The requests of the page as tasks (explorer.h).

#include "view/explorer/explorer.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "fovea/heads.h"

#include "core/fail.h"
#include "view/explorer/block_worker.h"
#include "view/explorer/explorer_parts.h"
#include "view/explorer/pass.h"
#include "view/explorer/tasks.h"

namespace fovea::view {
namespace {

void check_top(std::int64_t top) {
  if (top < 0 || top > kMaxTopKeys) {
    fail_argument("top", "expected 0 to {}, got {}", kMaxTopKeys, top);
  }
}

void check_range(const char* name, const IndexRange& range, std::int64_t length) {
  if (range.begin < 0 || range.begin >= range.end || range.end > length) {
    fail_argument(name, "expected a range within 0 to {} of at least 1, got {} to before {}",
                  length, range.begin, range.end);
  }
}

}  // namespace

Explorer::Explorer(std::vector<Input> inputs, const ExplorerOptions& options) {
  ExplorerParts::require_memory(inputs, options.memory);
  parts_ = std::make_unique<ExplorerParts>(std::move(inputs), options);
}

Explorer::~Explorer() = default;

const std::vector<Input>& Explorer::inputs() const { return parts_->opened; }

const Layer& Explorer::layer(const HeadPlace& head) const { return parts_->layer_of(head); }

HeadStatus Explorer::status(const HeadPlace& head) {
  const std::lock_guard lock(parts_->mutex);
  ExplorerParts::KnownHead& known = parts_->known(head);
  parts_->want_pass(known);
  return known.store->status();
}

Counters Explorer::counters() const {
  const std::lock_guard lock(parts_->mutex);
  Counters counts = parts_->counts;
  counts.bytes = parts_->cache.bytes();
  for (const auto& [key, head] : parts_->heads) counts.bytes += head.store->bytes();
  counts.waiting = parts_->scheduler.waiting();
  return counts;
}

namespace {

/// Calls `ask`, and replies with the exception if it throws one.
template <class Result, class Ask>
void ask_or_fail(const Reply<Result>& reply, const Ask& ask) {
  try {
    ask();
  } catch (...) {
    reply(std::current_exception());
  }
}

}  // namespace

void Explorer::tile(const HeadPlace& head, const TilePlace& place, std::stop_token stop,
                    Reply<FrameBytes> reply) {
  FrameBytes found;
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    ExplorerParts::KnownHead& known = parts_->known(head);
    const std::shared_ptr<HeadStore>& store = known.store;
    const Pyramid& pyramid = store->pyramid();
    pyramid.check(place);
    if (place.reduce == Pool::kSum) fail_argument("reduce", "expected max or mean, got sum");
    if (place.reduce == Pool::kMean && pyramid.stored(place.level)) {
      fail_argument("level", "expected less than {} for mean, got {}", pyramid.base_level(),
                    place.level);
    }
    const bool stored = pyramid.stored(place.level);
    // Several tiles of a view must not take the pass from each other.
    const IndexRange rows = pyramid.queries_of(place), &asked = known.asked;
    if (!stored || rows.end <= asked.begin || asked.end <= rows.begin) known.asked = rows;
    const TileKey key = {head, place};
    found = parts_->cache.find(key);
    if (!found) found = hidden_tile(*store, place);
    if (found) {
      ++parts_->counts.reused;
      return;
    }
    if (stored) {
      found = parts_->stored_tile(known, place);
      return;
    }
    std::weak_ptr<RequestTask<FrameBytes>>& running = parts_->tiles[key];
    if (const auto task = running.lock(); task && task->join(stop, reply)) {
      ++parts_->counts.reused;
      return;
    }
    const auto task = make_tile_task(*parts_, store, place);
    running = task;
    parts_->add(task, stop, reply);
  });
  if (found && !stop.stop_requested()) reply(found);
}

void Explorer::cell(const HeadPlace& head, std::int64_t query, std::int64_t key,
                    std::stop_token stop, Reply<CellAnswer> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    check_index("query", query, store->pyramid().queries());
    check_index("key", key, store->pyramid().keys());
    parts_->add(make_cell_task(store, query, key), stop, reply);
  });
}

void Explorer::row(const HeadPlace& head, std::int64_t query, std::int64_t top,
                   std::stop_token stop, Reply<RowAnswer> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    check_index("query", query, store->pyramid().queries());
    check_top(top);
    parts_->add(make_row_task(store, query, top), stop, reply);
  });
}

void Explorer::column(const HeadPlace& head, std::int64_t key, std::int64_t top,
                      std::stop_token stop, Reply<ColumnAnswer> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    check_index("key", key, store->pyramid().keys());
    check_top(top);
    parts_->add(make_column_task(*parts_, store, key, top), stop, reply);
  });
}

void Explorer::lines(const HeadPlace& head, LineRequest request, std::stop_token stop,
                     Reply<std::vector<float>> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    const Pyramid& pyramid = store->pyramid();
    const char* const name = request.of_keys ? "query" : "key";
    if (request.lines.empty()) fail_argument(name, "expected one or more, got none");
    for (const std::int64_t line : request.lines) {
      check_index(name, line, request.of_keys ? pyramid.queries() : pyramid.keys());
    }
    check_range("range", request.range, request.of_keys ? pyramid.keys() : pyramid.queries());
    parts_->add(make_lines_task(*parts_, store, std::move(request)), stop, reply);
  });
}

void Explorer::heads(const HeadPlace& layer, std::stop_token stop,
                     Reply<std::vector<HeadNumbers>> reply) {
  std::optional<std::vector<HeadNumbers>> found;
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    parts_->layer_of(layer);
    const ExplorerParts::LayerKey key = {layer.input, layer.layer};
    if (const auto known = parts_->head_numbers.find(key); known != parts_->head_numbers.end()) {
      found = known->second;
      return;
    }
    parts_->join_or_add(parts_->head_tasks, key, stop, reply,
                        [&] { return make_heads_task(*parts_, layer); });
  });
  if (found && !stop.stop_requested()) reply(std::move(*found));
}

void Explorer::thumbnails(const HeadPlace& layer, Pool reduce, std::stop_token stop,
                          Reply<std::vector<FrameBytes>> reply) {
  std::optional<std::vector<FrameBytes>> found;
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    parts_->layer_of(layer);
    if (reduce == Pool::kSum) fail_argument("reduce", "expected max or mean, got sum");
    const ExplorerParts::ThumbKey key = {layer.input, layer.layer, reduce};
    found = parts_->find_thumbnails(layer, reduce);
    if (found) return;
    parts_->join_or_add(parts_->thumbnail_tasks, key, stop, reply,
                        [&] { return make_thumbnails_task(*parts_, layer, reduce); });
  });
  if (found && !stop.stop_requested()) reply(std::move(*found));
}

void Explorer::map(const HeadPlace& head, const MapRequest& request, std::stop_token stop,
                   Reply<AttentionMap> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    check_index("head", head.head, parts_->layer_of(head).heads());
    parts_->add(make_map_task(*parts_, head, request), stop, reply);
  });
}

void Explorer::start_pass(const HeadPlace& head, IndexRange queries) {
  const std::lock_guard lock(parts_->mutex);
  ExplorerParts::KnownHead& known = parts_->known(head);
  check_range("rows", queries, known.store->pyramid().queries());
  known.asked = queries;
  known.store->set_paused(false);
  parts_->want_pass(known);
}

void Explorer::stop_pass(const HeadPlace& head) {
  std::shared_ptr<HeadStore> store;
  {
    const std::lock_guard lock(parts_->mutex);
    store = parts_->known(head).store;
    store->set_paused(true);
    parts_->end_pass(*store);
  }
  parts_->scheduler.interrupt([&](const Task& task) {
    const auto* const worker = dynamic_cast<const BlockWorker*>(&task);
    return worker != nullptr && worker->head_in_work() == store.get();
  });
}

const std::vector<std::string>& Explorer::number_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const HeadNumber& number : kHeadNumbers) all.emplace_back(number.name);
    all.emplace_back("induction");
    all.emplace_back("duplicate");
    return all;
  }();
  return names;
}

}  // namespace fovea::view
