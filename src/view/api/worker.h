// SPDX-License-Identifier: Apache-2.0
//
// A thread for work that takes longer than the thread of the sockets may be kept, and that does not
// call the engine.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace fovea::view {

/// Runs functions in order, which must not throw. The destructor finishes the one that runs and
/// drops the others.
class Worker {
 public:
  Worker() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  ~Worker() {
    thread_.request_stop();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Returns at once; from any thread.
  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    added_.notify_one();
  }

 private:
  void run(const std::stop_token& stop) {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        if (!added_.wait(lock, stop, [this] { return !queue_.empty(); })) return;
        if (stop.stop_requested()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any added_;
  std::deque<std::function<void()>> queue_;
  std::jthread thread_;  // last, so that it starts when the rest exists
};

}  // namespace fovea::view
