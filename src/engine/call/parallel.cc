// SPDX-License-Identifier: Apache-2.0
//
// OpenMP threads (parallel.h). Items are distributed by an atomic counter, because an OpenMP loop
// can neither be left early nor propagate exceptions.

#include "engine/call/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include <omp.h>
#include <pthread.h>

#include "fovea/error.h"

namespace fovea::engine {
namespace {

// More threads than any machine has, but few enough that an excessive setting wastes little memory.
constexpr int kMaxThreads = 1024;

std::atomic<bool> in_forked_child = false;
[[maybe_unused]] const int fork_watched =
    pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); });

}  // namespace

int thread_count(const Execution& execution, std::int64_t items) {
  if (in_forked_child.load(std::memory_order_relaxed)) return 1;
  const int wanted = execution.threads > 0 ? execution.threads : omp_get_max_threads();
  const int allowed = std::min({wanted, omp_get_thread_limit(), kMaxThreads});
  return static_cast<int>(std::clamp<std::int64_t>(items, 1, std::max(allowed, 1)));
}

void for_each_item(const Execution& execution, int threads, std::int64_t items, const Work& work) {
  std::atomic<std::int64_t> next = 0;
  std::atomic<bool> leave = false;
  std::mutex mutex;  // guards the variables below
  std::int64_t done = 0;
  std::exception_ptr error;

  const auto report = [&](std::int64_t more) {
    if (!execution.progress) return;
    const std::lock_guard lock(mutex);
    if (leave.load(std::memory_order_relaxed)) return;
    done += more;
    try {
      execution.progress(done, items);
    } catch (...) {
      leave.store(true, std::memory_order_relaxed);  // before another thread acquires the lock
      throw;
    }
  };
  const auto run = [&](int thread) {
    try {
      while (!leave.load(std::memory_order_relaxed) && !execution.stop.stop_requested()) {
        const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= items) return;
        work(item, thread);
        if (!execution.stop.stop_requested()) report(1);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      leave.store(true, std::memory_order_relaxed);
    }
  };

  report(0);
  if (threads == 1) {
    run(0);
  } else {
#pragma omp parallel num_threads(threads)
    run(omp_get_thread_num());
  }
  if (error) std::rethrow_exception(error);
  if (execution.stop.stop_requested()) throw Stopped("stopped as requested");
}

}  // namespace fovea::engine
