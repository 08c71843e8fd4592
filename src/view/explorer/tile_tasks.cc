// SPDX-License-Identifier: Apache-2.0
//
// Tiles, and the pass over the rows (tasks.h).

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "view/explorer/block_worker.h"
#include "view/explorer/tasks.h"

namespace fovea::view {
namespace {

/// A tile below the base level, with the row blocks that it needs.
class TileTask : public RequestTask<FrameBytes>, public BlockWorker {
 public:
  TileTask(ExplorerParts& parts, std::shared_ptr<HeadStore> head, const TilePlace& tile)
      : RequestTask(Urgency::kTile), parts_(parts), head_(std::move(head)), tile_(tile) {}

  bool step(const Execution& execution) override {
    const Pyramid& pyramid = head_->pyramid();
    const IndexRange queries = pyramid.queries_of(tile_);
    for (std::int64_t block = queries.begin >> kBlockLevel;
         block < cells_of(queries.end, kBlockLevel); ++block) {
      if (!pyramid.meets(block, tile_) || head_->has_lse(block)) continue;
      const bool cells = parts_.make_room(*head_, block);
      work(*head_, block, cells ? BlockPart::kCells : BlockPart::kLse, execution);
      const std::lock_guard lock(parts_.mutex);
      ++parts_.counts.blocks;
      return false;
    }
    const std::vector<Code> codes = compute_tile(*head_, tile_, execution);
    if (tile_.reduce == Pool::kMax) head_->note_cells(tile_.level, codes);
    auto frame =
        std::make_shared<const std::string>(encode_frame(header_of(pyramid, tile_), codes));
    {
      const std::lock_guard lock(parts_.mutex);
      parts_.cache.store(key(), frame);
      ++parts_.counts.computed;
      forget();
    }
    answer(std::move(frame));
    return true;
  }

  void fail(std::exception_ptr error) override {
    {
      const std::lock_guard lock(parts_.mutex);
      forget();
    }
    RequestTask::fail(std::move(error));
  }

  void cancel() override {
    const std::lock_guard lock(parts_.mutex);
    ++parts_.counts.cancelled;
    forget();
  }

  bool gains_from(const Task& other) const override {
    const auto* const worker = dynamic_cast<const BlockWorker*>(&other);
    return worker != nullptr && worker->head_in_work() == head_.get() &&
           head_->pyramid().meets(worker->block_in_work(), tile_);
  }

 private:
  TileKey key() const { return {head_->place(), tile_}; }

  void forget() {
    const auto found = parts_.tiles.find(key());
    if (found != parts_.tiles.end() && found->second.lock().get() == this) {
      parts_.tiles.erase(found);
    }
  }

  ExplorerParts& parts_;
  const std::shared_ptr<HeadStore> head_;
  const TilePlace tile_;
};

/// The pass over the rows of all heads that want it, the one viewed last first.
class PassTask : public Task, public BlockWorker {
 public:
  explicit PassTask(ExplorerParts& parts) : Task(Urgency::kPass), parts_(parts) {}

  bool step(const Execution& execution) override {
    std::shared_ptr<HeadStore> head;
    PassUnit unit;
    {
      const std::lock_guard lock(parts_.mutex);
      const auto chosen = choose();
      if (!chosen) {
        parts_.pass_queued = false;
        return true;
      }
      head = chosen->store;
      unit = *next_unit(*head, chosen->asked);
    }
    const bool cells = parts_.make_room(*head, unit.block);
    if (!cells && head->has_lse(unit.block)) {
      // Another head needs the memory now. The next request for this head tries again.
      const std::lock_guard lock(parts_.mutex);
      parts_.end_pass(*head);
      return false;
    }
    const BlockPart part = !cells         ? BlockPart::kLse
                           : unit.preview ? BlockPart::kPreview
                                          : BlockPart::kCells;
    work(*head, unit.block, part, execution);
    if (part == BlockPart::kPreview) return false;
    const std::lock_guard lock(parts_.mutex);
    ++parts_.counts.blocks;
    return false;
  }

  void fail(std::exception_ptr) override {
    // Whoever asks for a tile of the block gets the error. Without a pass, the rest still works.
    const std::lock_guard lock(parts_.mutex);
    for (auto& [key, head] : parts_.heads) parts_.end_pass(*head.store);
    parts_.pass_queued = false;
  }

 private:
  /// Returns the head viewed last of those that want the pass, or null.
  const ExplorerParts::KnownHead* choose() {
    const ExplorerParts::KnownHead* best = nullptr;
    for (auto& [key, head] : parts_.heads) {
      if (!head.wants_pass || head.store->paused()) continue;
      if (head.store->complete()) {
        parts_.end_pass(*head.store);
      } else if (best == nullptr || best->viewed < head.viewed) {
        best = &head;
      }
    }
    return best;
  }

  ExplorerParts& parts_;
};

}  // namespace

TaskOf<FrameBytes> make_tile_task(ExplorerParts& parts, std::shared_ptr<HeadStore> head,
                                  const TilePlace& tile) {
  return std::make_shared<TileTask>(parts, std::move(head), tile);
}

std::shared_ptr<Task> make_pass_task(ExplorerParts& parts) {
  return std::make_shared<PassTask>(parts);
}

}  // namespace fovea::view
