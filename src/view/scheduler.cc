// SPDX-License-Identifier: Apache-2.0
//
// The scheduler (scheduler.h).

#include "view/scheduler.h"

#include <algorithm>
#include <chrono>

#include "fovea/error.h"

namespace fovea::view {
namespace {

// A less urgent unit may take this long to end by itself. Stopping it at once would waste its work,
// and most units are shorter.
constexpr std::chrono::milliseconds kPatience(100);

}  // namespace

Scheduler::Scheduler(int threads) : threads_(threads), thread_([this] { run(); }) {}

void Scheduler::add(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  if (current_ && !urgent_since_) {
    const bool same = task->urgency() == current_->urgency() && current_->yields();
    const bool first = same || task->urgency() < current_->urgency();
    if (first && !task->gains_from(*current_)) urgent_since_ = Clock::now();
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
  }
  if (unit) unit->request_stop();
  if (thread_.joinable()) thread_.join();
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
      if (!queue_.empty()) {
        task = most_urgent()->task;
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
      done = task->step({.threads = threads_,
                         .stop = unit.get_token(),
                         .progress = [this](std::int64_t, std::int64_t) { give_way(); }});
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
  if (done) queue_.remove_if([&](const Entry& entry) { return entry.task == task; });
}

void Scheduler::give_way() {
  std::optional<std::stop_source> unit;
  {
    const std::lock_guard lock(mutex_);
    if (urgent_since_ && Clock::now() - *urgent_since_ > kPatience) unit = unit_;
  }
  if (unit) unit->request_stop();
}

}  // namespace fovea::view
