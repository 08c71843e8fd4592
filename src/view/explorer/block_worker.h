// SPDX-License-Identifier: Apache-2.0
//
// Tasks that compute row blocks: those of the pass, and those of requests whose rows must be known.

#pragma once

#include <atomic>
#include <cstdint>

#include "view/explorer/head_store.h"
#include "view/explorer/pass.h"

namespace fovea::view {

/// The part of a row block to compute.
enum class BlockPart : std::uint8_t { kLse, kCells, kPreview };

/// Computes and stores row blocks of one head at a time.
class BlockWorker {
 public:
  virtual ~BlockWorker() = default;
  /// Returns the head of the block that is being computed, or null. Any thread.
  const HeadStore* head_in_work() const { return head_; }
  std::int64_t block_in_work() const { return block_; }

 protected:
  void work(HeadStore& head, std::int64_t block, BlockPart part, const Execution& execution) {
    block_ = block;
    head_ = &head;
    try {
      if (part == BlockPart::kPreview) {
        compute_preview(head, block, execution);
      } else {
        compute_block(head, block, part == BlockPart::kCells, execution);
      }
    } catch (...) {
      head_ = nullptr;
      throw;
    }
    head_ = nullptr;
  }

 private:
  std::atomic<const HeadStore*> head_ = nullptr;
  std::atomic<std::int64_t> block_ = 0;
};

}  // namespace fovea::view
