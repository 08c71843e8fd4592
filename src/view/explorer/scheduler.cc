// SPDX-License-Identifier: Apache-2.0
//
// The scheduler (scheduler.h).

#include "view/explorer/scheduler.h"

#include <algorithm>
#include <chrono>

#include "fovea/error.h"

namespace fovea::view {
namespace {

// A less urgent unit may take this long to end by itself. Stopping it at once would waste its work,
// and most units are shorter.
constexpr std::chrono::milliseconds kPatience(50);
// The time doubles with each stop, so that the unit is complete at last.
constexpr int kMaxDoublings = 5;
// The pass pauses this long after each tile and line: the next request usually follows soon, and
// would otherwise wait for the stop of a row block each time.
constexpr std::chrono::milliseconds kPause(150);

}  // namespace

Scheduler::Scheduler(int threads) : threads_(threads) {
  try {
    watcher_ = std::thread([this] { watch(); });
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    close();
    throw;
  }
}

void Scheduler::add(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  if (current_ && !urgent_since_) {
    if (task->urgency() < current_->urgency() && !task->gains_from(*current_)) {
      urgent_since_ = Clock::now();
      waits_.notify_one();
    }
  }
  queue_.push_back({std::move(task), added_++});
  changed_.notify_one();
}

void Scheduler::interrupt(const std::function<bool(const Task&)>& which) {
  std::optional<std::stop_source> unit;
  {
    const std::lock_guard lock(mutex_);
    if (current_ && which(*current_)) unit = unit_;
  }
  if (unit) unit->request_stop();
}

void Scheduler::close() {
  std::optional<std::stop_source> unit;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (current_) unit = unit_;
    changed_.notify_one();
    waits_.notify_one();
  }
  if (unit) unit->request_stop();
  if (thread_.joinable()) thread_.join();
  if (watcher_.joinable()) watcher_.join();
  queue_.clear();
}

std::int64_t Scheduler::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(queue_.begin(), queue_.end(), [](const Entry& entry) {
    return entry.task->urgency() != Urgency::kPass && !entry.task->stop().stop_requested();
  });
}

std::vector<std::shared_ptr<Task>> Scheduler::take_stopped() {
  std::vector<std::shared_ptr<Task>> stopped;
  for (auto entry = queue_.begin(); entry != queue_.end();) {
    if (entry->task->stop().stop_requested()) {
      stopped.push_back(std::move(entry->task));
      entry = queue_.erase(entry);
    } else {
      ++entry;
    }
  }
  return stopped;
}

std::list<Scheduler::Entry>::iterator Scheduler::most_urgent() {
  return std::min_element(queue_.begin(), queue_.end(), [](const Entry& a, const Entry& b) {
    if (a.task->urgency() != b.task->urgency()) return a.task->urgency() < b.task->urgency();
    return a.task->urgency() == Urgency::kTile ? a.number > b.number : a.number < b.number;
  });
}

void Scheduler::run() {
  while (true) {
    std::shared_ptr<Task> task;
    std::vector<std::shared_ptr<Task>> stopped;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (closing_) return;
      stopped = take_stopped();
      const auto next = most_urgent();
      const auto start = last_urgent_ + kPause;
      if (next != queue_.end() && next->task->urgency() == Urgency::kPass && Clock::now() < start) {
        if (stopped.empty()) changed_.wait_until(lock, start);
      } else if (next != queue_.end()) {
        task = next->task;
        current_ = task;
        unit_ = std::stop_source();
        urgent_since_.reset();
      }
    }
    // Without the lock: these functions may call anything.
    for (const auto& one : stopped) one->cancel();
    if (task) do_unit(task);
  }
}

void Scheduler::do_unit(const std::shared_ptr<Task>& task) {
  std::stop_source unit;
  {
    const std::lock_guard lock(mutex_);
    unit = unit_;
  }
  bool done = false;
  {
    const std::stop_callback left(task->stop().get_token(), [&] { unit.request_stop(); });
    try {
      done = task->step({.threads = threads_, .stop = unit.get_token()});
    } catch (const Stopped&) {
    } catch (...) {
      done = true;
      bool closing = false;
      {
        const std::lock_guard lock(mutex_);
        closing = closing_;
      }
      if (!closing) task->fail(std::current_exception());
    }
  }
  const std::lock_guard lock(mutex_);
  current_.reset();
  urgent_since_.reset();
  if (task->urgency() <= Urgency::kLine) last_urgent_ = Clock::now();
  if (done) queue_.remove_if([&](const Entry& entry) { return entry.task == task; });
}

Scheduler::Clock::duration Scheduler::patience() const {
  // The pass pauses anyway while others are busy.
  if (current_->urgency() == Urgency::kPass) return kPatience;
  return kPatience * (1 << std::min(current_->interrupted_, kMaxDoublings));
}

void Scheduler::watch() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    if (!urgent_since_) {
      waits_.wait(lock);
    } else if (const auto end = *urgent_since_ + patience(); Clock::now() < end) {
      waits_.wait_until(lock, end);
    } else {
      urgent_since_.reset();
      ++current_->interrupted_;
      std::stop_source unit = unit_;
      lock.unlock();
      unit.request_stop();
      lock.lock();
    }
  }
}

}  // namespace fovea::view
