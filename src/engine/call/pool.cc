// SPDX-License-Identifier: Apache-2.0
//
// Worker threads (pool.h). Workers are started when first needed and stay, asleep between calls.
// docs/benchmarks.md compares this pool with OpenMP's threads and with oneTBB.

#include "engine/call/pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <dlfcn.h>
#include <pthread.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "engine/call/placement.h"

namespace fovea::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxWorkers = 1023;
constexpr int kMaxJobs = 64;  // concurrent calls; any further one runs on its caller alone

// The time that a thread spins before it sleeps.
constexpr std::chrono::microseconds kMaxSpin{50};
// A short call that follows another one within this time wakes a worker. Less than kMaxSpin, so
// that the worker is still awake for the next call of a series.
constexpr std::chrono::microseconds kSoon{25};
// A worker counts as preempted if its CPU time has not advanced for this time.
constexpr std::chrono::microseconds kStandstill{20};
constexpr int kMaxChecks = 100;  // of this kind, before the caller sleeps in any case

// ---- Waiting ------------------------------------------------------------------------------------

using Word = std::atomic<std::uint32_t>;

#if defined(__linux__)
// std::atomic::wait would yield the processor before it sleeps, which costs a time slice if another
// process is ready.
void sleep_while(Word& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake_one(Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }
#else
void sleep_while(Word& word, std::uint32_t value) { word.wait(value); }
void wake_one(Word& word) { word.notify_one(); }
#endif

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// Spins until `ready` returns true or the time is over. Returns whether it returned true.
template <class Ready>
bool spin(std::chrono::nanoseconds time, const Ready& ready) {
  if (ready()) return true;
  const Clock::time_point end = Clock::now() + time;
  do {
    for (int i = 0; i < 8; ++i) {
      relax();
      if (ready()) return true;
    }
  } while (Clock::now() < end);
  return false;
}

// ---- Jobs ---------------------------------------------------------------------------------------

/// A call, as workers see it. Workers may be late, so jobs are never freed, and a job is reused
/// only when no worker visits it. `items` may be used only by a worker that runs an item, because
/// it belongs to the caller.
struct alignas(64) Job {
  PoolItems* items = nullptr;
  std::int64_t count = 0;
  int threads = 0;
  std::atomic<int> visitors = 0;  // workers that may access this job
  std::atomic<int> joined = 0;    // threads, the caller included
  alignas(64) std::atomic<std::int64_t> next = 0;
  alignas(64) std::atomic<std::int64_t> done = 0;  // items, by workers
  std::atomic<std::int64_t> awaited = -1;  // the value of `done` at which the caller is woken
  Word finished = 0;
};

// All zero-initialised and never destroyed, so that workers may outlive main().
constinit std::array<Job, kMaxJobs> jobs;
constinit std::atomic<std::uint64_t> taken_jobs = 0;  // jobs with a caller, one bit each
constinit std::atomic<std::uint64_t> open_jobs = 0;   // jobs that workers may join
alignas(64) constinit Word opened = 0;                // how often a job was opened
alignas(64) constinit std::atomic<int> callers = 0;
constinit std::atomic<int> wanted = 0;    // workers, by all open jobs
constinit std::atomic<int> spinning = 0;  // workers that will see a job without being woken

// ---- Workers ------------------------------------------------------------------------------------

enum : std::uint32_t { kAwake, kAsleep, kBeingWoken };

struct alignas(64) Worker {
  Word state = kAwake;
  std::atomic<const Job*> job = nullptr;  // of the current item
  Placement placement;
};
constinit std::array<Worker, kMaxWorkers> workers;
constinit std::atomic<int> worker_count = 0;
constinit std::mutex starting;

thread_local bool within_item = false;
thread_local Clock::time_point last_short_end{};  // of this caller

/// Runs items of a job until none are left. Returns whether there was one.
bool help(int number, Worker& me) {
  Job& job = jobs[static_cast<std::size_t>(number)];
  bool helped = false;
  job.visitors.fetch_add(1);
  const bool is_open = (open_jobs.load() >> number & 1) != 0;
  if (is_open && job.next.load() < job.count && job.joined.load() < job.threads) {
    const int thread = job.joined.fetch_add(1);
    me.job.store(&job);
    bool more = thread < job.threads;
    while (more) {
      const std::int64_t item = job.next.fetch_add(1);
      if (item >= job.count) break;
      helped = true;
      more = job.items->run(item, thread);
      if (!more) open_jobs.fetch_and(~(std::uint64_t{1} << number));
      const std::int64_t done = job.done.fetch_add(1) + 1;
      if (done == job.awaited.load()) {
        job.finished.store(1);
        wake_one(job.finished);
      }
    }
    me.job.store(nullptr);
  }
  job.visitors.fetch_sub(1);
  return helped;
}

bool help_all(Worker& me) {
  bool helped = false;
  for (std::uint64_t left = open_jobs.load(); left != 0; left &= left - 1) {
    helped |= help(std::countr_zero(left), me);
  }
  return helped;
}

/// Sleeps until woken, unless a job was opened since `seen`.
void fall_asleep(Worker& me, std::uint32_t seen) {
  me.placement.before_sleep();
  me.state.store(kAsleep);
  std::uint32_t state = kAsleep;
  if (opened.load() != seen && me.state.compare_exchange_strong(state, kAwake)) return;
  while ((state = me.state.load()) != kAwake) {
    if (state == kAsleep) {
      sleep_while(me.state, kAsleep);
    } else {
      relax();
    }
  }
}

bool wake_up(Worker& worker, int processor) {
  std::uint32_t state = kAsleep;
  if (worker.state.load(std::memory_order_relaxed) != kAsleep) return false;
  if (!worker.state.compare_exchange_strong(state, kBeingWoken)) return false;
  worker.placement.keep_off(processor);
  worker.state.store(kAwake);
  wake_one(worker.state);
  return true;
}

[[noreturn]] void work_forever(Worker& me) {
  within_item = true;
  me.placement.start();
  for (;;) {
    const std::uint32_t seen = opened.load();
    if (help_all(me)) continue;
    me.placement.step_aside();
    spinning.fetch_add(1);
    const bool found = spin(kMaxSpin, [&] { return opened.load() != seen; });
    spinning.fetch_sub(1);
    if (!found) fall_asleep(me, seen);
    me.placement.restore();
  }
}

void start_workers(int count) {
  const std::unique_lock lock(starting, std::try_to_lock);
  if (!lock) return;
  stay_loaded();
  // Blocks the program's signals, which are for its own threads. Signals of a thread's own fault
  // stay unblocked: if one is blocked, the process ends without a call of its handler.
  sigset_t others, before;
  sigfillset(&others);
  for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
    sigdelset(&others, fault);
  }
  pthread_sigmask(SIG_SETMASK, &others, &before);
  try {
    while (worker_count.load() < count) {
      Worker& worker = workers[static_cast<std::size_t>(worker_count.load())];
      worker.placement.prepare();
      std::thread([&worker] { work_forever(worker); }).detach();
      worker_count.fetch_add(1);
    }
  } catch (const std::exception&) {
    // No more threads or memory. The caller needs no worker.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// ---- Calls --------------------------------------------------------------------------------------

/// Returns a job that no caller or worker uses, or -1.
int take_job() {
  for (std::uint64_t free = ~taken_jobs.load(); free != 0; free &= free - 1) {
    const int number = std::countr_zero(free);
    const std::uint64_t bit = std::uint64_t{1} << number;
    if ((taken_jobs.fetch_or(bit) & bit) != 0) continue;
    if (jobs[static_cast<std::size_t>(number)].visitors.load() == 0) return number;
    taken_jobs.fetch_and(~bit);
  }
  return -1;
}

/// Opens a job to workers, and wakes or starts as many as are missing.
void open_job(int number, PoolItems& items, std::int64_t count, const PoolLimits& limits) {
  int missing = limits.threads - 1;
  const int needed =
      std::min({wanted.fetch_add(missing) + missing, limits.all_threads - 1, kMaxWorkers});
  if (worker_count.load() < needed) start_workers(needed);
  Job& job = jobs[static_cast<std::size_t>(number)];
  job.items = &items;
  job.count = count;
  job.threads = limits.threads;
  job.joined.store(1);
  job.next.store(0);
  job.done.store(0);
  job.awaited.store(-1);
  job.finished.store(0);
  open_jobs.fetch_or(std::uint64_t{1} << number);
  opened.fetch_add(1);
  missing -= spinning.load();
  const int here = Placement::current_processor(), all = worker_count.load();
  for (int i = 0; i < all && missing > 0; ++i) {
    if (wake_up(workers[static_cast<std::size_t>(i)], here)) --missing;
  }
}

/// The CPU times of workers that run items of a job.
class RunningWorkers {
 public:
  explicit RunningWorkers(const Job& job) : job_(job) {
    for (int i = 0, all = worker_count.load(); i < all && count_ < workers_.size(); ++i) {
      Worker& worker = workers[static_cast<std::size_t>(i)];
      if (worker.job.load() == &job) workers_[count_++] = {&worker, worker.placement.cpu_time()};
    }
  }
  /// Moves workers that have not run since, although they are within an item, to the caller's
  /// processor. Returns whether there are any.
  bool move_preempted() const {
    bool any = false;
    for (std::size_t i = 0; i < count_; ++i) {
      const auto& [worker, time] = workers_[i];
      if (worker->job.load() != &job_ || worker->placement.cpu_time() != time) continue;
      worker->placement.move_to(Placement::current_processor());
      any = true;
    }
    return any;
  }

 private:
  const Job& job_;
  std::array<std::pair<Worker*, std::int64_t>, 8> workers_{};
  std::size_t count_ = 0;
};

/// Waits until workers have done this many items. Spins while the workers run, because waking up
/// takes long. Sleeps if one of them was preempted, so that it can have the caller's processor:
/// otherwise it might wait for several time slices.
void wait_for_workers(Job& job, std::int64_t items) {
  const auto done = [&] { return job.done.load() == items; };
  if (spin(kMaxSpin, done)) return;
  job.awaited.store(items);
  for (int i = 0; i < kMaxChecks; ++i) {
    const RunningWorkers running(job);
    if (spin(kStandstill, done)) return;
    if (running.move_preempted()) break;
  }
  while (!done()) sleep_while(job.finished, 0);
}

void run_alone(PoolItems& items, std::int64_t count) {
  for (std::int64_t item = 0; item < count && items.run(item, 0); ++item) {
  }
}

void run_with_workers(int number, PoolItems& items, std::int64_t count, const PoolLimits& limits) {
  open_job(number, items, count, limits);
  Job& job = jobs[static_cast<std::size_t>(number)];
  std::int64_t mine = 0;
  for (std::int64_t item = 0; (item = job.next.fetch_add(1)) < count;) {
    ++mine;
    if (!items.run(item, 0)) break;
  }
  const std::uint64_t bit = std::uint64_t{1} << number;
  open_jobs.fetch_and(~bit);
  wanted.fetch_sub(limits.threads - 1);
  // No item is started from here on.
  const std::int64_t others = std::min(job.next.exchange(count), count) - mine;
  wait_for_workers(job, others);
  taken_jobs.fetch_and(~bit);
}

}  // namespace

void stay_loaded() {
  // The worker itself would be too late: it may begin after the call that started it has returned.
  // A static local variable with a guard could deadlock: dlopen() waits for the loader's lock, and
  // the thread that holds this lock may wait for the guard.
  static std::atomic<bool> stays = false;
  if (stays.load()) return;
  Dl_info library{};
  if (dladdr(reinterpret_cast<void*>(&stay_loaded), &library) != 0) {
    dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
  stays.store(true);
}

bool in_pool_item() { return within_item; }

int threads_of_short_call() {
  const bool soon = Clock::now() - last_short_end < kSoon;
  return 1 + spinning.load(std::memory_order_relaxed) + (soon ? 1 : 0);
}
void end_short_call() { last_short_end = Clock::now(); }

void run_in_pool(PoolItems& items, std::int64_t count, const PoolLimits& limits) {
  if (within_item || limits.threads <= 1) return run_alone(items, count);
  within_item = true;
  // With as many callers as threads, each has a processor of its own, and workers would only
  // compete with them.
  const bool crowded = callers.fetch_add(1) >= limits.all_threads - 1;
  const int number = crowded ? -1 : take_job();
  if (number < 0) {
    run_alone(items, count);
  } else {
    run_with_workers(number, items, count, limits);
  }
  callers.fetch_sub(1);
  within_item = false;
}

}  // namespace fovea::engine
