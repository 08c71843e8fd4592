// SPDX-License-Identifier: Apache-2.0
//
// The library's threads: each item runs once, in order, also if calls are nested, concurrent,
// stopped or fail, in a forked child and while the process exits.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fovea/error.h"
#include "fovea/execution.h"

#include "engine/call/parallel.h"
#include "kernels/backward/turn.h"
#include "support/message_of.h"
#include "support/threads.h"

namespace fovea::engine {
namespace {

/// Observes the items of a call.
class Observer {
 public:
  Observer(std::int64_t items, int threads)
      : runs_(static_cast<std::size_t>(items)), threads_(static_cast<std::size_t>(threads)) {}

  /// Runs `work(item)` as item `item` of thread `thread`.
  template <class Callable>
  void run(std::int64_t item, int thread, const Callable& work) {
    if (thread < 0 || thread >= static_cast<int>(threads_.size())) {
      ++wrong_;
      return;
    }
    Thread& mine = threads_[static_cast<std::size_t>(thread)];
    if (mine.busy.exchange(true) || item <= mine.last.exchange(item)) ++wrong_;
    ++runs_[static_cast<std::size_t>(item)];
    work(item);
    mine.busy = false;
  }

  /// Returns how many items ran exactly `times` times.
  std::int64_t ran(int times) const {
    return std::ranges::count_if(runs_, [&](const auto& runs) { return runs == times; });
  }
  /// Returns whether all items that ran precede all others.
  bool ran_first() const {
    return std::ranges::is_sorted(runs_, std::greater<>(),
                                  [](const auto& runs) { return runs.load(); });
  }
  /// Returns how often a thread number was out of range, in use, or had run a later item.
  int wrong() const { return wrong_; }
  bool any_busy() const {
    return std::ranges::any_of(threads_, [](const Thread& thread) { return thread.busy.load(); });
  }

 private:
  struct Thread {
    std::atomic<bool> busy = false;
    std::atomic<std::int64_t> last = -1;
  };
  std::vector<std::atomic<int>> runs_;
  std::vector<Thread> threads_;
  std::atomic<int> wrong_ = 0;
};

void compute(std::int64_t item) {
  std::atomic<std::int64_t> sum = 0;
  for (std::int64_t i = 0; i < 200 * (item % 7); ++i) sum += i;
}

/// Waits until `ready`, but not for ever, so that a test fails instead of hanging.
template <class Ready>
bool wait_for(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

constexpr int kThreadCounts[] = {1, 2, 3, 8};

TEST(PoolThreads, EachItemRunsOnce) {
  for (const int threads : kThreadCounts) {
    for (const std::int64_t items : {0, 1, 2, 7, 64, 1000}) {
      for (int again = 0; again < 20; ++again) {
        Observer observer(items, threads);
        for_each_item({}, threads, items,
                      [&](std::int64_t item, int thread) { observer.run(item, thread, compute); });
        ASSERT_EQ(observer.ran(1), items) << threads << " threads, " << items << " items";
        ASSERT_EQ(observer.wrong(), 0) << threads << " threads, " << items << " items";
      }
    }
  }
}

TEST(PoolThreads, WorkersJoin) {
  // The first item ends when another thread has started the second one.
  for (int again = 0; again < 3; ++again) {
    std::atomic<bool> started = false, joined = false;
    std::array<int, 2> threads{};
    for_each_item({}, 2, 2, [&](std::int64_t item, int thread) {
      threads[static_cast<std::size_t>(item)] = thread;
      if (item == 1) started = true;
      if (item == 0) joined = wait_for([&] { return started.load(); });
    });
    EXPECT_TRUE(joined);
    EXPECT_EQ(threads[0] + threads[1], 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // workers fall asleep
  }
}

/// A program's handler of a fault, such as SIGBUS for a truncated file, is called on the thread
/// that has the fault.
TEST(PoolThreads, WorkersTakeTheirFaultsButNoOtherSignals) {
  std::atomic<bool> started = false;
  sigset_t blocked;
  sigemptyset(&blocked);
  for_each_item({}, 2, 2, [&](std::int64_t item, int thread) {
    if (thread != 0) pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    if (item == 1) started = true;
    if (item == 0) wait_for([&] { return started.load(); });
  });
  for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
    EXPECT_EQ(sigismember(&blocked, fault), 0) << fault;
  }
  for (const int other : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) {
    EXPECT_EQ(sigismember(&blocked, other), 1) << other;
  }
}

TEST(PoolThreads, ShortCallsRunAloneUnlessWorkersAreAwake) {
  const auto threads_of_call = [](Threads threads, std::chrono::microseconds item_time) {
    std::atomic<int> most = 0;
    for_each_item({}, threads, 16, [&](std::int64_t, int thread) {
      if (thread > most) most = thread;
      const auto end = std::chrono::steady_clock::now() + item_time;
      while (std::chrono::steady_clock::now() < end) {
      }
    });
    return most + 1;
  };
  constexpr std::chrono::microseconds kShort{2}, kLong{500};
  const Threads two_of_short{2, true};
  ASSERT_TRUE(wait_for([&] { return threads_of_call(2, kLong) == 2; }));  // a worker exists
  // Workers fall asleep between the calls. They would have time to join.
  EXPECT_TRUE(wait_for([&] {
    for (int call = 0; call < 5; ++call) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (threads_of_call(two_of_short, kLong) != 1) return false;
    }
    return true;
  }));
  // A series of short calls wakes a worker, and a usual call leaves one awake for a short call.
  EXPECT_TRUE(wait_for([&] {
    int most = 0;
    for (int call = 0; call < 1000; ++call) {
      most = std::max(most, threads_of_call(two_of_short, kShort));
    }
    return most == 2;
  }));
  EXPECT_TRUE(wait_for([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return threads_of_call(2, kLong) == 2 && threads_of_call(two_of_short, kLong) == 2;
  }));
}

TEST(PoolThreads, ItemsMayWaitForEarlierOnes) {
  constexpr std::int64_t kItems = 40, kPositions = 50;
  for (const int threads : kThreadCounts) {
    const auto progress = std::make_unique<std::atomic<std::int64_t>[]>(kItems);
    std::vector<std::vector<std::int64_t>> seen(kPositions);
    for_each_item({}, threads, kItems, [&](std::int64_t item, int) {
      kernels::Turn turn(progress.get(), item);
      for (std::int64_t position = 0; position < kPositions; ++position) {
        compute(item + position);
        ASSERT_TRUE(turn.wait(position, {}));
        seen[static_cast<std::size_t>(position)].push_back(item);
        turn.pass(position);
      }
    });
    for (const std::vector<std::int64_t>& items : seen) {
      ASSERT_EQ(items.size(), static_cast<std::size_t>(kItems)) << threads;
      EXPECT_TRUE(std::ranges::is_sorted(items)) << threads;
    }
  }
}

TEST(PoolThreads, NestedCallsRunOnTheThreadOfTheirItem) {
  std::atomic<int> elsewhere = 0;
  std::atomic<std::int64_t> inner = 0;
  for_each_item({}, 3, 30, [&](std::int64_t, int) {
    const std::thread::id mine = std::this_thread::get_id();
    for_each_item({}, 8, 10, [&](std::int64_t, int thread) {
      if (thread != 0 || std::this_thread::get_id() != mine) ++elsewhere;
      ++inner;
    });
  });
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(inner, 300);
}

TEST(PoolThreads, ManyCallersAtOnce) {
  // More than the pool has jobs for.
  constexpr std::size_t kCallers = 100;
  std::vector<std::int64_t> sums(kCallers);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      const int threads = static_cast<int>(2 + caller % 200);
      for (std::int64_t items = 0; items < 30; ++items) {
        Observer observer(items, threads);
        for_each_item({}, threads, items,
                      [&](std::int64_t item, int thread) { observer.run(item, thread, compute); });
        sums[caller] += observer.ran(1);
        wrong += observer.wrong();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<std::int64_t>(kCallers, 29 * 30 / 2));
  EXPECT_EQ(wrong, 0);
}

TEST(PoolThreads, ExceptionsOfItemsAreRethrown) {
  for (const int threads : kThreadCounts) {
    for (const std::int64_t bad : {0, 1, 5, 99}) {
      Observer observer(100, threads);
      const auto call = [&] {
        for_each_item({}, threads, 100, [&](std::int64_t item, int thread) {
          observer.run(item, thread, compute);
          if (item == bad) throw InvalidArgument("item " + std::to_string(item));
        });
      };
      EXPECT_EQ(test::message_of(call), "item " + std::to_string(bad)) << threads;
      EXPECT_FALSE(observer.any_busy()) << "an item runs after the call";
      EXPECT_EQ(observer.ran(1) + observer.ran(0), 100);
      EXPECT_TRUE(observer.ran_first()) << "a later item may wait for one that was skipped";
      EXPECT_GT(observer.ran(1), bad);
      if (threads == 1) {
        EXPECT_EQ(observer.ran(1), bad + 1);
      }
    }
  }
}

TEST(PoolThreads, StopRequestsEndTheCall) {
  for (const int threads : kThreadCounts) {
    std::stop_source source;
    std::atomic<std::int64_t> ran = 0;
    const Execution execution{.stop = source.get_token()};
    const auto call = [&] {
      for_each_item(execution, threads, 1'000'000'000, [&](std::int64_t item, int) {
        ++ran;
        if (item == 20) source.request_stop();
      });
    };
    EXPECT_THROW(call(), Stopped);
    EXPECT_GE(ran, 21);
    EXPECT_LT(ran, 1'000'000'000);
    ran = 0;
    EXPECT_THROW(call(), Stopped);
    EXPECT_EQ(ran, 0) << "the stop was requested before the call";
  }
}

TEST(PoolThreads, ProgressCountsEveryItem) {
  for (const int threads : kThreadCounts) {
    std::vector<std::int64_t> seen;
    const Execution execution{.progress = [&](std::int64_t done, std::int64_t total) {
      EXPECT_EQ(total, 200);
      seen.push_back(done);
    }};
    for_each_item(execution, threads, 200, [](std::int64_t item, int) { compute(item); });
    ASSERT_EQ(seen.size(), 201U) << threads;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      ASSERT_EQ(seen[i], static_cast<std::int64_t>(i)) << threads;
    }
  }
}

TEST(PoolThreads, ExceptionsOfProgressAreRethrown) {
  for (const int threads : kThreadCounts) {
    int calls = 0;
    const Execution execution{.progress = [&](std::int64_t done, std::int64_t) {
      ++calls;
      if (done == 7) throw InvalidArgument("enough");
    }};
    const auto call = [&] {
      for_each_item(execution, threads, 100, [](std::int64_t item, int) { compute(item); });
    };
    EXPECT_EQ(test::message_of(call), "enough");
    EXPECT_EQ(calls, 8) << threads;
  }
}

TEST(PoolThreads, OpenMpLimitsTheThreads) {
  {
    const test::Threads three(3);
    EXPECT_EQ(thread_count({}, 100), 3);
    EXPECT_EQ(thread_count({}, 2), 2);
    EXPECT_EQ(thread_count({.threads = 5}, 100), 5);
  }
  // No active levels: all parallel regions run on one thread.
  const int before = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
  std::atomic<int> others = 0;
  for_each_item({}, 4, 1000, [&](std::int64_t item, int thread) {
    compute(item);
    if (thread != 0) ++others;
  });
  omp_set_max_active_levels(before);
  EXPECT_EQ(others, 0);
}

// ---- Processes ----------------------------------------------------------------------------------

TEST(PoolThreads, ForkedChildRunsAlone) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of several threads";
#endif
  // Another thread is within a call, so that the child inherits an open job.
  std::stop_source source;
  std::atomic<bool> started = false;
  std::thread other([&] {
    const Execution execution{.stop = source.get_token()};
    EXPECT_THROW(for_each_item(execution, 2, 1'000'000'000,
                               [&](std::int64_t item, int) {
                                 started = true;
                                 compute(item);
                               }),
                 Stopped);
  });
  EXPECT_TRUE(wait_for([&] { return started.load(); }));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // instead of hanging
    std::int64_t ran = 0;
    const int threads = thread_count({.threads = 8}, 100);
    for_each_item({}, threads, 100, [&](std::int64_t, int) { ++ran; });
    std::_Exit(threads == 1 && ran == 100 ? 0 : 1);
  }
  source.request_stop();
  other.join();
  ASSERT_GE(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// Exits from an item that runs on a worker.
[[noreturn]] void exit_within_an_item() {
  for (;;) {
    for_each_item({}, 2, 1000, [](std::int64_t item, int thread) {
      compute(item);
      if (thread == 1) std::exit(7);
    });
  }
}

/// Exits while another thread and workers run items.
[[noreturn]] void exit_beside_items() {
  std::atomic<bool> started = false;
  std::thread([&] {
    for_each_item({}, 3, std::int64_t{1} << 40, [&](std::int64_t item, int) {
      compute(item);
      started = true;
    });
  }).detach();
  wait_for([&] { return started.load(); });
  std::exit(7);
}

TEST(PoolThreads, ProcessExitsWhileItemsRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int again = 0; again < 3; ++again) {
    EXPECT_EXIT(exit_within_an_item(), testing::ExitedWithCode(7), "");
    EXPECT_EXIT(exit_beside_items(), testing::ExitedWithCode(7), "");
  }
}

}  // namespace
}  // namespace fovea::engine
