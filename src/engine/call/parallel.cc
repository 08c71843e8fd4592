// SPDX-License-Identifier: Apache-2.0
//
// Stop requests, progress and exceptions of parallel calls (parallel.h). OpenMP's settings
// determine the thread count; the threads are those of pool.h.

#include "engine/call/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <mutex>

#include <omp.h>
#include <pthread.h>

#include "fovea/error.h"

#include "engine/call/pool.h"

namespace fovea::engine {
namespace {

// More threads than any machine has, but few enough that an excessive setting wastes little memory.
constexpr int kMaxThreads = 1024;

std::atomic<bool> in_forked_child = false;
[[maybe_unused]] const int fork_watched =
    pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); });

class Call final : public PoolItems {
 public:
  Call(const Execution& execution, const Work& work, std::int64_t items)
      : execution_(execution), work_(work), items_(items) {}

  bool run(std::int64_t item, int thread) noexcept override {
    try {
      work_(item, thread);
      if (!execution_.stop.stop_requested()) report(1);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      leave_.store(true, std::memory_order_relaxed);
    }
    return !ends();
  }
  /// Reports that `more` items are done. Rethrows exceptions of execution.progress.
  void report(std::int64_t more) {
    if (!execution_.progress) return;
    const std::lock_guard lock(mutex_);
    if (leave_.load(std::memory_order_relaxed)) return;
    done_ += more;
    try {
      execution_.progress(done_, items_);
    } catch (...) {
      leave_.store(true, std::memory_order_relaxed);  // before another thread acquires the lock
      throw;
    }
  }
  bool ends() const {
    return leave_.load(std::memory_order_relaxed) || execution_.stop.stop_requested();
  }
  /// Throws the first exception, or Stopped after a stop request.
  void finish() const {
    if (error_) std::rethrow_exception(error_);
    if (execution_.stop.stop_requested()) throw Stopped("stopped as requested");
  }

 private:
  const Execution& execution_;
  const Work& work_;
  const std::int64_t items_;
  std::atomic<bool> leave_ = false;
  std::mutex mutex_;  // guards the variables below
  std::int64_t done_ = 0;
  std::exception_ptr error_;
};

/// Some of the OpenMP threads that work for one calling thread.
class OpenMpTeam {
 public:
  /// Called by each thread of a parallel region.
  void join(int thread) {
    if (thread == 0) return;
    if (thread > static_cast<int>(clocks_.size())) return;
    if (clockid_t& clock = clocks_[static_cast<std::size_t>(thread - 1)];
        pthread_getcpuclockid(pthread_self(), &clock) != 0) {
      clock = CLOCK_MONOTONIC;
    }
  }
  void set_threads(int threads) {
    known_ = std::min(static_cast<std::size_t>(threads) - 1, clocks_.size());
  }
  bool known() const { return known_ > 0; }
  /// Returns whether the CPU time of the team's threads advances: they spin after a parallel region
  /// of this program. Also true if the team is unknown or has changed.
  bool awake() {
    std::array<std::int64_t, kMaxKnown> before{};
    for (std::size_t i = 0; i < known_; ++i) before[i] = time(clocks_[i]);
    for (std::size_t i = 0; i < known_; ++i) {
      if (before[i] >= 0 && time(clocks_[i]) == before[i]) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kMaxKnown = 4;

  /// Returns -1 if the thread has ended.
  static std::int64_t time(clockid_t clock) {
    timespec time{};
    if (clock_gettime(clock, &time) != 0) return -1;
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  std::array<clockid_t, kMaxKnown> clocks_{};
  std::size_t known_ = 0;
};

thread_local int openmp_scopes = 0;  // OpenMpThreads of this thread
thread_local OpenMpTeam openmp_team;

void run_on_openmp(Call& call, std::int64_t items, int threads) {
  std::atomic<std::int64_t> next = 0;
  OpenMpTeam& team = openmp_team;
  team.set_threads(threads);
  stay_loaded();
#pragma omp parallel num_threads(threads)
  {
    team.join(omp_get_thread_num());
    for (std::int64_t item = 0; (item = next.fetch_add(1)) < items;) {
      if (!call.run(item, omp_get_thread_num())) break;
    }
  }
}

}  // namespace

int thread_count(const Execution& execution, std::int64_t items) {
  if (in_forked_child.load(std::memory_order_relaxed)) return 1;
  const int wanted = execution.threads > 0 ? execution.threads : omp_get_max_threads();
  const int allowed = std::min({wanted, omp_get_thread_limit(), kMaxThreads});
  return static_cast<int>(std::clamp<std::int64_t>(items, 1, std::max(allowed, 1)));
}

void for_each_item(const Execution& execution, Threads threads, std::int64_t items,
                   const Work& work) {
  Call call(execution, work, items);
  call.report(0);
  if (in_pool_item() || omp_get_active_level() >= omp_get_max_active_levels()) threads.count = 1;
  const bool is_short = threads.count > 1 && threads.for_short_call;
  if (call.ends()) {
    // No item is started.
  } else if (threads.count > 1 && openmp_scopes > 0 && (!is_short || openmp_team.known()) &&
             openmp_team.awake()) {
    run_on_openmp(call, items, threads.count);
  } else {
    if (is_short) threads.count = std::min(threads.count, threads_of_short_call());
    // omp_get_num_procs() is a system call, a fifth of the time of the smallest call.
    const int all = threads.count <= 1 ? 1 : std::min(omp_get_num_procs(), omp_get_thread_limit());
    run_in_pool(call, items,
                {.threads = threads.count, .all_threads = std::max(threads.count, all)});
    if (is_short) end_short_call();
  }
  call.finish();
}

OpenMpThreads::OpenMpThreads() { ++openmp_scopes; }
OpenMpThreads::~OpenMpThreads() { --openmp_scopes; }

}  // namespace fovea::engine
