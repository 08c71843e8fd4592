// SPDX-License-Identifier: Apache-2.0
//
// Ordering of work items that add to shared sums, the same for any number of threads.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <stop_token>
#include <thread>

namespace fovea::kernels {

/// Lets work items add to shared rows in item order. At each position, an item waits until all
/// earlier items have passed that position, so concurrent items follow each other at least one
/// position apart. No item waits for a later one; items must be started in item order.
class Turn {
 public:
  /// `progress[i]` is the number of positions that item i has passed, initially 0; `mine` is the
  /// index of this item. If `progress` is null, wait() returns immediately.
  Turn(std::atomic<std::int64_t>* progress, std::int64_t mine) : progress_(progress), mine_(mine) {}
  ~Turn() { pass(std::numeric_limits<std::int64_t>::max() - 1); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// Waits until all earlier items have passed `position`. Returns false if a stop is requested
  /// while waiting.
  bool wait(std::int64_t position, const std::stop_token& stop) {
    if (progress_ == nullptr) return true;
    for (std::int64_t item = first_; item < mine_; ++item) {
      std::int64_t past = progress_[item].load(std::memory_order_acquire);
      for (int tries = 0; past <= position; ++tries) {
        if (tries >= kBusyTries) {
          if (stop.stop_requested()) return false;
          // With more threads than processors, the awaited item may need this processor.
          std::this_thread::sleep_for(kNap);
        }
        past = progress_[item].load(std::memory_order_acquire);
      }
      if (item == first_ && past == std::numeric_limits<std::int64_t>::max()) ++first_;
    }
    return true;
  }
  /// Marks `position` as passed by this item, whether the item added to it or skipped it.
  void pass(std::int64_t position) {
    if (progress_ == nullptr) return;
    progress_[mine_].store(position + 1, std::memory_order_release);
  }

 private:
  static constexpr int kBusyTries = 2000;
  static constexpr std::chrono::microseconds kNap{20};

  std::atomic<std::int64_t>* progress_;
  std::int64_t mine_;
  std::int64_t first_ = 0;  // all items before this one are done
};

}  // namespace fovea::kernels
