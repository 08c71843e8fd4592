// SPDX-License-Identifier: Apache-2.0
//
// The processors of a worker thread (pool.h). Linux only; elsewhere, the system alone decides.

#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>

#if defined(__linux__)
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fovea::engine {

/// The processors on which a worker may run. Every function may fail, which costs only speed.
class Placement {
 public:
#if defined(__linux__)
  static int current_processor() { return sched_getcpu(); }

  /// Called before the worker starts, by the thread that starts it. OpenMP may have bound that
  /// thread to one processor (OMP_PROC_BIND); workers run on all of OpenMP's places.
  void prepare() {
    CPU_ZERO(&allowed_);
    std::array<int, CPU_SETSIZE> processors{};
    for (int place = 0; place < omp_get_num_places(); ++place) {
      const int count = omp_get_place_num_procs(place);
      if (count > CPU_SETSIZE) {
        CPU_ZERO(&allowed_);
        return;
      }
      omp_get_place_proc_ids(place, processors.data());
      for (int i = 0; i < count; ++i) {
        CPU_SET(static_cast<std::size_t>(processors[static_cast<std::size_t>(i)]), &allowed_);
      }
    }
  }
  /// Called by the worker, once.
  void start() {
    id_ = static_cast<pid_t>(syscall(SYS_gettid));
    if (pthread_getcpuclockid(pthread_self(), &clock_) != 0) clock_ = CLOCK_MONOTONIC;
    if (CPU_COUNT(&allowed_) > 0) sched_setaffinity(0, sizeof allowed_, &allowed_);
  }
  /// Called by the worker before it sleeps, because a user may have changed its affinity.
  void before_sleep() {
    if (moved_.load()) return;
    cpu_set_t now;
    CPU_ZERO(&now);
    if (sched_getaffinity(0, sizeof now, &now) == 0 && !moved_.load()) allowed_ = now;
  }
  /// Called by the waker while the worker sleeps. The kernel often wakes a thread on the processor
  /// of the one that wakes it: in a virtual machine, other processors that sleep look as if they
  /// were busy.
  void keep_off(int processor) {
    cpu_set_t others = allowed_;
    if (processor < 0 || processor >= CPU_SETSIZE) return;
    CPU_CLR(static_cast<std::size_t>(processor), &others);
    if (CPU_COUNT(&others) == 0) return;
    moved_.store(true);
    sched_setaffinity(id_, sizeof others, &others);
  }
  /// Called by the worker after an item. Leaves the processor that move_to() lent.
  void step_aside() {
    if (moved_.load(std::memory_order_relaxed)) keep_off(current_processor());
  }
  /// Called by the worker before it runs items. Undoes the other functions.
  void restore() {
    if (moved_.load(std::memory_order_relaxed) && moved_.exchange(false)) {
      sched_setaffinity(0, sizeof allowed_, &allowed_);
    }
  }
  void move_to(int processor) {
    if (processor < 0 || processor >= CPU_SETSIZE) return;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<std::size_t>(processor), &here);
    moved_.store(true);
    sched_setaffinity(id_, sizeof here, &here);
  }
  /// Returns the worker's CPU time, which stands still while other processes have its processor.
  std::int64_t cpu_time() const {
    timespec time{};
    clock_gettime(clock_, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

 private:
  pid_t id_ = 0;
  clockid_t clock_ = CLOCK_MONOTONIC;
  cpu_set_t allowed_ = {};  // read and written by the worker, and by its waker while it sleeps
  std::atomic<bool> moved_ = false;
#else
  static int current_processor() { return -1; }
  void prepare() {}
  void start() {}
  void before_sleep() {}
  void keep_off(int) {}
  void step_aside() {}
  void restore() {}
  void move_to(int) {}
  std::int64_t cpu_time() const {
    return std::chrono::steady_clock::now().time_since_epoch().count();
  }
#endif
};

}  // namespace fovea::engine
