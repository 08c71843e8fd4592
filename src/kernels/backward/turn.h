// SPDX-License-Identifier: Apache-2.0
//
// Sums that several work items add to, in one order for any number of threads.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <stop_token>
#include <thread>

namespace fovea::kernels {

/// Lets work items add to shared rows in the order of their numbers: an item waits, position by
/// position, until all items before it have gone past. Items that run at the same time so follow
/// each other at a distance of one position, and none waits for a later one; they must be handed
/// out in the order of their numbers.
class Turn {
 public:
  /// `progress[i]` is how many positions item i has gone past, 0 at first; this is item `mine`.
  /// Without progress there is nothing to wait for.
  Turn(std::atomic<std::int64_t>* progress, std::int64_t mine) : progress_(progress), mine_(mine) {}
  ~Turn() { pass(std::numeric_limits<std::int64_t>::max() - 1); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// Waits until `position` is past for all items before. False when `stop` asks meanwhile.
  bool wait(std::int64_t position, const std::stop_token& stop) {
    if (progress_ == nullptr) return true;
    for (std::int64_t item = first_; item < mine_; ++item) {
      std::int64_t past = progress_[item].load(std::memory_order_acquire);
      for (int tries = 0; past <= position; ++tries) {
        if (tries >= kBusyTries) {
          if (stop.stop_requested()) return false;
          // Where there are more threads than processors, whoever is waited for needs one.
          std::this_thread::sleep_for(kNap);
        }
        past = progress_[item].load(std::memory_order_acquire);
      }
      if (item == first_ && past == std::numeric_limits<std::int64_t>::max()) ++first_;
    }
    return true;
  }
  /// Says that this item has gone past `position`, having added what it has to or skipped it.
  void pass(std::int64_t position) {
    if (progress_ == nullptr) return;
    progress_[mine_].store(position + 1, std::memory_order_release);
  }

 private:
  static constexpr int kBusyTries = 2000;
  static constexpr std::chrono::microseconds kNap{20};

  std::atomic<std::int64_t>* progress_;
  std::int64_t mine_;
  std::int64_t first_ = 0;  // all items before are done
};

}  // namespace fovea::kernels
