// SPDX-License-Identifier: Apache-2.0
//
// The one thread that calls the engine, and its queue. Tasks are done in units, the most urgent
// task first, so that an urgent task waits for a unit of another, not for all of it. A second
// thread stops units that take too long while a more urgent task waits; it is idle otherwise.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "fovea/execution.h"

#include "view/explorer/explorer.h"

namespace fovea::view {

/// Classes of tasks, the most urgent first. Within kTile the newest task is first, otherwise the
/// oldest.
enum class Urgency : std::uint8_t { kTile, kLine, kExport, kOverview, kPass };

/// All functions are called from the scheduler's thread, unless they say otherwise.
class Task {
 public:
  explicit Task(Urgency urgency) : urgency_(urgency) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  Urgency urgency() const { return urgency_; }
  /// Requested, from any thread, once nobody waits for the task.
  std::stop_source& stop() { return stop_; }

  /// Does a unit of work with these settings, and returns whether the task is complete. If it
  /// throws Stopped, the same unit is tried again later.
  virtual bool step(const Execution& execution) = 0;
  /// Ends a task that threw another exception.
  virtual void fail(std::exception_ptr error) = 0;
  /// Ends a task whose stop was requested.
  virtual void cancel() {}
  /// Returns whether the unit that `other` is doing brings this task forward. Any thread.
  virtual bool gains_from(const Task&) const { return false; }

 private:
  friend class Scheduler;
  const Urgency urgency_;
  std::stop_source stop_;
  int interrupted_ = 0;  // times that its unit was stopped for another task
};

/// A task with any number of requests, which get the same result.
template <class Result>
class RequestTask : public Task {
 public:
  using Task::Task;

  /// Adds a request, from any thread. Returns false if the task has been answered, or stopped
  /// because all its requests were.
  bool join(std::stop_token stop, Reply<Result> reply) {
    const std::lock_guard lock(mutex_);
    if (answered_ || Task::stop().stop_requested()) return false;
    // Count before the callback exists: it may run at once.
    ++waiting_;
    requests_.emplace_back(*this, std::move(stop), std::move(reply));
    return true;
  }

  void fail(std::exception_ptr error) override { send(Answer<Result>(std::move(error))); }

 protected:
  void answer(Result result) { send(Answer<Result>(std::move(result))); }

 private:
  struct Request {
    Request(RequestTask& task, std::stop_token token, Reply<Result> to)
        : stop(std::move(token)), reply(std::move(to)), left(stop, Leave{&task}) {}

    struct Leave {
      RequestTask* task;
      void operator()() const {
        if (--task->waiting_ == 0) task->Task::stop().request_stop();
      }
    };
    std::stop_token stop;
    Reply<Result> reply;
    std::stop_callback<Leave> left;
  };

  void send(const Answer<Result>& answer) {
    std::list<Request> requests;
    {
      const std::lock_guard lock(mutex_);
      answered_ = true;
      requests.swap(requests_);
    }
    for (const Request& request : requests) {
      if (!request.stop.stop_requested()) request.reply(answer);
    }
  }

  std::mutex mutex_;
  std::atomic<int> waiting_ = 0;
  bool answered_ = false;
  std::list<Request> requests_;  // last: its callbacks use the members above
};

/// Threads   re-entrant.
class Scheduler {
 public:
  explicit Scheduler(int threads);
  ~Scheduler() { close(); }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void add(std::shared_ptr<Task> task);
  /// Stops the unit in progress if it is of a task for which `which` returns true. The task stays
  /// in the queue.
  void interrupt(const std::function<bool(const Task&)>& which);
  /// Stops the unit in progress and forgets all tasks. No task is called afterwards.
  void close();
  /// Returns the number of tasks that are not complete, without those of kPass.
  std::int64_t waiting() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Task> task;
    std::uint64_t number;
  };

  void run();
  /// Removes stopped tasks from the queue.
  std::vector<std::shared_ptr<Task>> take_stopped();
  std::list<Entry>::iterator most_urgent();
  void do_unit(const std::shared_ptr<Task>& task);
  /// Stops the unit in progress when a more urgent task has waited too long. Run by watcher_.
  void watch();
  /// Returns how long a more urgent task waits for the current one.
  Clock::duration patience() const;

  const int threads_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // of the queue
  std::condition_variable waits_;    // of urgent_since_
  std::list<Entry> queue_;
  std::uint64_t added_ = 0;
  bool closing_ = false;
  std::shared_ptr<Task> current_;
  std::stop_source unit_;  // of the unit in progress
  /// When a more urgent task than the current one began to wait.
  std::optional<Clock::time_point> urgent_since_;
  /// When the last unit for somebody at the screen ended.
  Clock::time_point last_urgent_ = {};
  std::thread watcher_, thread_;  // use the members above
};

}  // namespace fovea::view
