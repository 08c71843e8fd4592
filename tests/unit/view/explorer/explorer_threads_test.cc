// SPDX-License-Identifier: Apache-2.0
//
// The explorer under requests from several threads: shared computations, stops, the pass that
// stops and resumes, bounded memory, and its end while requests wait.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/random.h"

#include "support/explore.h"
#include "support/forward.h"
#include "support/random_problem.h"
#include "view/explorer/explorer.h"
#include "view/explorer/frame.h"
#include "view/explorer/scheduler.h"

namespace fovea::test {
namespace {

using view::Explorer;
using view::FrameBytes;
using view::HeadPlace;
using view::PassProgress;
using view::TilePlace;
using State = PassProgress::State;

/// A head whose pass has 8 row blocks and stores cells of levels 4 and 5.
struct LongHead {
  explicit LongHead(std::int64_t heads = 1)
      : problem({1, heads, 1, 8000, 8000}, 4, 1),
        query(convert(problem.query, DType::kFloat32)),
        key(convert(problem.key, DType::kFloat32)) {}

  std::vector<view::Input> inputs(const Mask& mask = causal()) const {
    return inputs_of(input_of(query, key, {.mask = mask}));
  }
  RandomProblem problem;
  Tensor query, key;
};

bool pass_done(Explorer& explorer, const HeadPlace& head = {}) {
  return explorer.status(head).pass.state == State::kDone;
}

/// Returns whether so many row blocks are counted. The last one is counted after it is stored.
bool counted(Explorer& explorer, std::int64_t blocks) {
  return wait_until([&] { return explorer.counters().blocks >= blocks; }) &&
         explorer.counters().blocks == blocks;
}

TEST(ViewExplorerThreads, RequestsForATileShareOneComputation) {
  const LongHead head;
  Explorer explorer(head.inputs(), {});
  constexpr int kTabs = 8;
  std::vector<std::string> frames(kTabs);
  std::vector<std::thread> tabs;
  for (int tab = 0; tab < kTabs; ++tab) {
    tabs.emplace_back([&, tab] {
      for (const TilePlace& tile :
           {TilePlace{.level = 2, .y = 3}, TilePlace{.level = 4}, TilePlace{.level = 5}}) {
        frames[static_cast<std::size_t>(tab)] += *final_tile(explorer, {}, tile);
      }
    });
  }
  for (std::thread& tab : tabs) tab.join();
  for (const std::string& frame : frames) EXPECT_TRUE(frame == frames[0]);
  EXPECT_EQ(explorer.counters().computed, 3);
  EXPECT_EQ(explorer.counters().reused, 3 * (kTabs - 1));
  EXPECT_EQ(explorer.counters().cancelled, 0);
}

TEST(ViewExplorerThreads, ATileThatNobodyWantsAnyMoreIsNotComputed) {
  const LongHead head;
  Explorer explorer(head.inputs(), {});
  // The other tiles wait, because a coarse tile takes a unit for each of several row blocks.
  Waiting<FrameBytes> busy = ask_tile(explorer, {}, {.level = 3});
  Waiting<FrameBytes> first = ask_tile(explorer, {}, {.level = 3});
  first.stop();
  std::vector<Waiting<FrameBytes>> left;
  for (std::int64_t y = 0; y < 8; ++y) {
    left.push_back(ask_tile(explorer, {}, {.level = 0, .x = 0, .y = 4 * y}));
    left.back().stop();
  }
  EXPECT_NO_THROW(busy.get());
  EXPECT_TRUE(wait_until([&] { return explorer.counters().waiting == 0; }));
  const view::Counters counts = explorer.counters();
  EXPECT_GE(counts.cancelled, 1);
  EXPECT_EQ(counts.computed + counts.cancelled, 9);
  EXPECT_FALSE(first.ready());
  // A new request for a tile that was given up is computed.
  EXPECT_NO_THROW(ask_tile(explorer, {}, {.level = 0, .x = 0, .y = 28}).get());
}

TEST(ViewExplorerThreads, ProgressOfAPassNeverDecreases) {
  const LongHead head;
  Explorer explorer(head.inputs(), {});
  PassProgress before = explorer.status({}).pass;
  EXPECT_EQ(before.total, 8);
  const bool done = wait_until([&] {
    const PassProgress now = explorer.status({}).pass;
    EXPECT_GE(now.done, before.done);
    EXPECT_EQ(now.total, before.total);
    before = now;
    return now.state == State::kDone;
  });
  ASSERT_TRUE(done);
  EXPECT_EQ(before.done, 8);
  EXPECT_TRUE(explorer.status({}).lse_known);
  EXPECT_TRUE(counted(explorer, 8));
  // The range of each stored level is known without a request for a tile.
  const view::HeadStatus status = explorer.status({});
  for (const std::size_t level : {4U, 5U}) {
    EXPECT_EQ(status.largest[level], 1.0);
    EXPECT_GT(status.smallest[level], 0.0);
  }
}

/// Returns whether rows that are final, and hidden cells, are as in the final tile.
bool agrees(const view::Frame& early, const view::Frame& last) {
  for (std::size_t i = 0; i < last.codes.size(); ++i) {
    const auto row = i / static_cast<std::size_t>(last.header.columns);
    const bool finished = early.rows.empty() || early.rows[row] == view::RowState::kFinal;
    if ((finished || early.codes[i] == view::kHiddenCode) && early.codes[i] != last.codes[i]) {
      return false;
    }
    if (finished && early.codes[i] == view::kUnknownCode) return false;
  }
  return true;
}

TEST(ViewExplorerThreads, TilesOfAnUnfinishedPassSayWhatIsFinal) {
  const LongHead head;
  for (const Mask& mask : {causal(), window(500, 0), Mask()}) {
    Explorer explorer(head.inputs(mask), {});
    explorer.start_pass({}, {4000, 5000});
    std::map<int, std::vector<view::Frame>> seen;
    ASSERT_TRUE(wait_until([&] {
      for (const int level : {4, 5}) {
        seen[level].push_back(view::decode_frame(*ask_tile(explorer, {}, {.level = level}).get()));
      }
      return pass_done(explorer);
    }));
    for (const int level : {4, 5}) {
      const view::Frame last = get_tile(explorer, {}, {.level = level});
      EXPECT_TRUE(last.rows.empty());
      std::size_t known = 0;
      for (const view::Frame& frame : seen[level]) {
        EXPECT_EQ(frame.rows.empty(), (frame.header.flags & view::frame_flags::kPreview) == 0);
        EXPECT_TRUE(agrees(frame, last)) << level;
        const auto final_rows = static_cast<std::size_t>(
            std::count(frame.rows.begin(), frame.rows.end(), view::RowState::kFinal));
        if (!frame.rows.empty()) {
          EXPECT_GE(final_rows, known) << level;
          known = final_rows;
        }
      }
    }
  }
}

TEST(ViewExplorerThreads, APassStopsAndResumesWhereItWas) {
  const LongHead head;
  Explorer explorer(head.inputs(), {});
  explorer.start_pass({}, {5000, 5001});
  ASSERT_TRUE(wait_until([&] { return explorer.status({}).pass.done >= 1; }));
  const auto start = std::chrono::steady_clock::now();
  explorer.stop_pass({});
  ASSERT_TRUE(wait_until([&] { return explorer.counters().waiting == 0; }));
  const PassProgress stopped = explorer.status({}).pass;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  if (stopped.state != State::kDone) {
    EXPECT_EQ(stopped.state, State::kPaused);
    // At most the block in progress is completed. Asking for the status does not resume.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_LE(explorer.status({}).pass.done, stopped.done + 1);
    // A tile that is not final stays so.
    const FrameBytes partial = ask_tile(explorer, {}, {.level = 5}).get();
    EXPECT_FALSE(view::frame_is_final(*partial));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(*ask_tile(explorer, {}, {.level = 5}).get() == *partial, true);
    // Tiles below the base level compute the rows that they need.
    EXPECT_NO_THROW(ask_tile(explorer, {}, {.level = 1, .x = 0, .y = 2}).get());
  }
  explorer.start_pass({}, {0, 8000});
  ASSERT_TRUE(wait_until([&] { return pass_done(explorer); }));
  EXPECT_TRUE(counted(explorer, 8));
}

TEST(ViewExplorerThreads, BlocksThatWereAskedForComeFirst) {
  const LongHead head;
  Explorer explorer(head.inputs(), {});
  explorer.start_pass({}, {7000, 7100});
  ASSERT_TRUE(wait_until([&] { return explorer.status({}).pass.done >= 1; }));
  explorer.stop_pass({});
  // The block in progress at the stop may still be stored.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::int64_t blocks = explorer.status({}).pass.done;
  // Rows 6,144 to 7,168 have their lse already.
  EXPECT_NO_THROW(ask_tile(explorer, {}, {.level = 0, .x = 0, .y = 27}).get());
  EXPECT_EQ(explorer.counters().blocks, blocks);
}

TEST(ViewExplorerThreads, ReadersDuringAPassGetTheSameTiles) {
  const LongHead head;
  const Tensor lse = forward({head.query, head.key, head.key}, {.mask = causal()}).lse;
  Explorer known(inputs_of(input_of(head.query, head.key, {.mask = causal()}, lse)), {});
  Explorer explorer(head.inputs(), {});
  std::vector<std::thread> readers;
  std::atomic<int> wrong = 0;
  for (std::int64_t reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&, reader] {
      for (std::int64_t i = 0; i < 5; ++i) {
        const TilePlace tile = {.level = static_cast<int>(i), .x = 0, .y = i == 4 ? 1 : reader};
        const view::Frame found = get_tile(explorer, {}, tile);
        const view::Frame expected = get_tile(known, {}, tile);
        explorer.status({});
        for (std::size_t c = 0; c < expected.codes.size(); ++c) {
          // Rounding may move a weight to the next code.
          if (std::abs(int{found.codes[c]} - int{expected.codes[c]}) > 1) ++wrong;
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ViewExplorerThreads, MemoryStaysWithinItsBound) {
  // The stored cells of a head take 0.7 MB, of all heads more than half of the memory.
  const LongHead head(4);
  constexpr std::int64_t kMemory = std::int64_t{4} << 20;
  Explorer explorer(head.inputs(Mask()), {.memory = kMemory});
  EXPECT_EQ(explorer.status({}).base_level, 4);
  std::vector<std::string> first;
  for (int visit = 0; visit < 2; ++visit) {
    std::size_t number = 0;
    for (std::int64_t h = 0; h < 4; ++h) {
      for (const TilePlace& tile :
           {TilePlace{.level = 0, .x = 9, .y = 9}, TilePlace{.level = 1, .x = 1, .y = 12},
            TilePlace{.level = 3, .x = 1, .y = 2}, TilePlace{.level = 5}}) {
        const std::string frame = *final_tile(explorer, {.head = h}, tile);
        if (visit == 0) first.push_back(frame);
        EXPECT_TRUE(frame == first[number++]);  // which EXPECT_EQ would print
        EXPECT_LE(explorer.counters().bytes, kMemory);
      }
    }
  }
  EXPECT_GT(explorer.counters().blocks, 4 * 8);  // some cells were dropped and computed again
}

TEST(ViewExplorerThreads, NoReplyAfterTheEnd) {
  const LongHead head(2);
  for (int time = 0; time < 20; ++time) {
    std::atomic<int> replies = 0;
    std::atomic<bool> ended = false;
    std::atomic<bool> late = false;
    const auto reply = [&](const auto&) {
      ++replies;
      if (ended) late = true;
    };
    std::vector<std::stop_source> stops(30);
    {
      Explorer explorer(head.inputs(), {});
      for (std::int64_t i = 0; i < 30; ++i) {
        std::stop_token stop = stops[static_cast<std::size_t>(i)].get_token();
        explorer.tile({.head = i % 2}, {.level = static_cast<int>(i % 6)}, stop, reply);
        explorer.cell({}, i, 0, stop, reply);
        explorer.row({}, 250 * i, 3, stop, reply);
        explorer.column({}, i, 3, stop, reply);
      }
      explorer.heads({}, {}, reply);
      explorer.thumbnails({}, Pool::kMax, {}, reply);
      explorer.status({});
      std::thread other([&] {
        for (std::stop_source& stop : stops) stop.request_stop();
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(time));
      other.join();
    }
    ended = true;
    const int at_the_end = replies;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(replies, at_the_end);
    EXPECT_FALSE(late);
  }
}

TEST(ViewExplorerThreads, HeadsAndThumbnailsAreComputedOnce) {
  const LongHead head(2);
  Explorer explorer(head.inputs(), {});
  std::vector<Waiting<std::vector<FrameBytes>>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back(
        [&](auto stop, auto reply) { explorer.thumbnails({}, Pool::kMax, stop, reply); });
  }
  const std::vector<FrameBytes> first = waiting[0].get();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(waiting[1].get(), first);  // the same strings, not copies
  EXPECT_EQ(waiting[2].get(), first);
}

/// A task that reports its units and waits for a stop if it is told to.
class TestTask : public view::Task {
 public:
  TestTask(view::Urgency urgency, std::vector<int>& order, int number)
      : Task(urgency), order_(order), number_(number) {}

  bool step(const Execution& execution) override {
    started = true;
    if (blocks) {
      while (!execution.stop.stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ++stopped;
      blocks = false;
      throw Stopped("stopped");
    }
    order_.push_back(number_);
    done = true;
    return true;
  }
  void fail(std::exception_ptr) override { ADD_FAILURE(); }
  void cancel() override { cancelled = true; }

  std::atomic<bool> blocks = false, started = false, done = false, cancelled = false;
  std::atomic<int> stopped = 0;

 private:
  std::vector<int>& order_;
  const int number_;
};

TEST(ViewSchedulerThreads, UrgentTasksFirstAndTheNewestTile) {
  std::vector<int> order;
  view::Scheduler scheduler(1);
  const auto add = [&](view::Urgency urgency, int number) {
    auto task = std::make_shared<TestTask>(urgency, order, number);
    scheduler.add(task);
    return task;
  };
  const auto blocker = std::make_shared<TestTask>(view::Urgency::kTile, order, 0);
  blocker->blocks = true;
  scheduler.add(blocker);
  ASSERT_TRUE(wait_until([&] { return blocker->started.load(); }));
  const auto last = add(view::Urgency::kPass, 7);
  add(view::Urgency::kOverview, 6);
  add(view::Urgency::kLine, 3);
  add(view::Urgency::kLine, 4);
  add(view::Urgency::kExport, 5);
  add(view::Urgency::kTile, 2);
  add(view::Urgency::kTile, 1);
  EXPECT_EQ(scheduler.waiting(), 7);  // without the pass
  scheduler.interrupt([](const view::Task&) { return true; });
  ASSERT_TRUE(wait_until([&] { return last->done.load(); }));
  // The blocker, as the oldest tile, is tried again after the newer ones.
  EXPECT_EQ(order, (std::vector<int>{1, 2, 0, 3, 4, 5, 6, 7}));
  EXPECT_EQ(scheduler.waiting(), 0);
}

TEST(ViewSchedulerThreads, AnUrgentTaskWaitsOnlyAMoment) {
  std::vector<int> order;
  view::Scheduler scheduler(1);
  const auto slow = std::make_shared<TestTask>(view::Urgency::kPass, order, 1);
  slow->blocks = true;
  scheduler.add(slow);
  ASSERT_TRUE(wait_until([&] { return slow->started.load(); }));
  const auto urgent = std::make_shared<TestTask>(view::Urgency::kTile, order, 0);
  scheduler.add(urgent);
  ASSERT_TRUE(wait_until([&] { return slow->done.load(); }));
  EXPECT_EQ(order, (std::vector<int>{0, 1}));
  EXPECT_EQ(slow->stopped, 1);
}

TEST(ViewSchedulerThreads, StoppedTasksAreCancelled) {
  std::vector<int> order;
  view::Scheduler scheduler(1);
  const auto running = std::make_shared<TestTask>(view::Urgency::kTile, order, 0);
  running->blocks = true;
  scheduler.add(running);
  ASSERT_TRUE(wait_until([&] { return running->started.load(); }));
  const auto waiting = std::make_shared<TestTask>(view::Urgency::kLine, order, 1);
  scheduler.add(waiting);
  waiting->stop().request_stop();
  running->stop().request_stop();
  ASSERT_TRUE(wait_until([&] { return running->cancelled && waiting->cancelled; }));
  EXPECT_FALSE(running->done);
  EXPECT_FALSE(waiting->started);
}

}  // namespace
}  // namespace fovea::test
