// SPDX-License-Identifier: Apache-2.0
//
// Stop tokens, progress callbacks, and exceptions thrown by a progress callback.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/lens_buffers.h"
#include "fovea/mask.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Returns the processor time of this process, which does not depend on how busy the machine is.
double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// A call that never ends in practice: 2^42 scores, from views that repeat three rows.
class AttentionStop : public testing::Test {
 protected:
  AttentionStop() : query_(far(row_)), key_(far(row_)), value_(far(row_)) {}

  static TensorView far(const Tensor& row) {
    constexpr std::int64_t kFar = std::int64_t{1} << 21;
    return laid_over(row.view(), 0, {1, 1, kFar, 8}, {0, 0, 0, 1});
  }
  void run(const AttentionOptions& options) {
    attention_forward(query_, key_, value_, options, {.lse = lse_});
  }

  // Normally a fraction of a second; the margin is for slow machines and sanitizers.
  static constexpr double kSoon = 5.0;

  Tensor row_ = stored(Tensor::from<double>({8}, {1, -1, 2, -2, 3, -3, 4, -4}));
  Tensor lse_ = Tensor(DType::kFloat32, {1, 1, std::int64_t{1} << 21});
  TensorView query_, key_, value_;
};

TEST_F(AttentionStop, RequestedBeforeTheCall) {
  for (const int threads : {1, 2}) {
    std::stop_source source;
    source.request_stop();
    AttentionOptions options;
    options.execution = {.threads = threads, .stop = source.get_token()};
    const double start = seconds();
    EXPECT_THROW(run(options), Stopped);
    EXPECT_LT(seconds() - start, kSoon);
  }
}

TEST_F(AttentionStop, RequestedByAnotherThread) {
  for (const int threads : {1, 2}) {
    std::stop_source source;
    AttentionOptions options;
    options.execution = {.threads = threads, .stop = source.get_token()};
    double asked = 0.0;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      asked = seconds();
      source.request_stop();
    });
    EXPECT_THROW(run(options), Stopped);
    const double ended = seconds();
    other.join();
    EXPECT_GE(ended, asked);
    EXPECT_LT(ended - asked, kSoon);
  }
}

TEST_F(AttentionStop, WithinOneLongRow) {
  const TensorView row = row_;
  const TensorView one = laid_over(row, 0, {1, 1, 1, 8}, {0, 0, 0, 1});
  const TensorView keys = laid_over(row, 0, {1, 1, std::int64_t{1} << 40, 8}, {0, 0, 0, 1});
  Tensor lse(DType::kFloat32, {1, 1, 1});
  std::stop_source source;
  AttentionOptions options;
  options.execution.stop = source.get_token();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    source.request_stop();
  });
  const double start = seconds();
  EXPECT_THROW(attention_forward(one, keys, keys, options, {.lse = lse}), Stopped);
  EXPECT_LT(seconds() - start, kSoon);
  other.join();
}

TEST_F(AttentionStop, RequestedByProgress) {
  for (const int threads : {1, 2}) {
    std::stop_source source;
    std::int64_t last = -1, total = 0;
    AttentionOptions options{.mask = window(3, 3)};
    options.execution = {.threads = threads,
                         .stop = source.get_token(),
                         .progress = [&](std::int64_t done, std::int64_t all) {
                           last = done;
                           total = all;
                           if (done == 3) source.request_stop();
                         }};
    EXPECT_THROW(run(options), Stopped);
    EXPECT_GE(last, 3);
    EXPECT_LT(last, total);
  }
}

TEST_F(AttentionStop, Float64) {
  const RandomProblem p({1, 2, 1, 2000, 2000}, 64, 64);
  Tensor lse(DType::kFloat64, {1, 2, 2000});
  std::stop_source source;
  AttentionOptions options;
  options.execution = {.stop = source.get_token(),
                       .progress = [&](std::int64_t done, std::int64_t) {
                         if (done == 1) source.request_stop();
                       }};
  const double start = seconds();
  EXPECT_THROW(attention_forward(p.query, p.key, p.value, options, {.lse = lse}), Stopped);
  EXPECT_LT(seconds() - start, kSoon);
}

TEST_F(AttentionStop, NextCallIsUnaffected) {
  const RandomProblem p = stored_problem({1, 2, 1, 200, 300}, 16, 16);
  const Forward expected = forward(p.inputs());
  std::stop_source source;
  source.request_stop();
  AttentionOptions options;
  options.execution.stop = source.get_token();
  EXPECT_THROW(run(options), Stopped);
  EXPECT_TRUE(same_bits(forward(p.inputs()), expected));
}

// ---- Progress -----------------------------------------------------------------------------------

TEST(AttentionProgress, CountsFromZeroToTotalInSequence) {
  for (const DType dtype : {storage(), DType::kFloat64}) {
    RandomProblem p = stored_problem({2, 3, 1, 300, 200}, 32, 32);
    for (Tensor* tensor : {&p.query, &p.key, &p.value}) *tensor = convert(*tensor, dtype);
    for (const int threads : {1, 2, 3}) {
      std::atomic<int> inside = 0, twice = 0;
      std::vector<std::pair<std::int64_t, std::int64_t>> calls;
      AttentionOptions options;
      options.execution = {.threads = threads,
                           .progress = [&](std::int64_t done, std::int64_t total) {
                             if (inside.fetch_add(1) != 0) twice.fetch_add(1);
                             calls.emplace_back(done, total);
                             std::this_thread::yield();
                             inside.fetch_sub(1);
                           }};
      forward(p.inputs(), options);
      EXPECT_EQ(twice, 0);
      ASSERT_GT(calls.size(), 2U);
      const std::int64_t total = calls[0].second;
      ASSERT_EQ(static_cast<std::int64_t>(calls.size()), total + 1);
      for (std::size_t n = 0; n < calls.size(); ++n) {
        EXPECT_EQ(calls[n], std::pair(static_cast<std::int64_t>(n), total));
      }
    }
  }
}

TEST(AttentionProgress, PassesOfOneCallCountOn) {
  struct Case {
    ProblemShape shape;
    PackedSequences sequences;
    bool lenses;
  };
  const std::vector<Case> cases{
      {{1, 1, 1, 2, 500}, {}, true},
      {{1, 4, 2, 134, 600, 2}, {{0, 4, 134}, {0, 300, 600}}, false},
      {{1, 4, 2, 135, 600, 3}, {{0, 1, 5, 135}, {0, 99, 300, 600}}, true}};
  for (const Case& each : cases) {
    const RandomProblem p = stored_problem(each.shape, 64, 64);
    Tensor context(storage(), p.query.shape());
    LensBuffers seen(each.shape, DType::kFloat32, {.statistics = true});
    const Lenses lenses = seen.lenses();
    std::vector<std::int64_t> steps, totals;
    AttentionOptions options{.sequences = each.sequences};
    options.execution.progress = [&](std::int64_t done, std::int64_t total) {
      steps.push_back(done);
      totals.push_back(total);
    };
    attention_forward(p.query, p.key, p.value, options,
                      {.context = context, .lenses = each.lenses ? &lenses : nullptr});
    ASSERT_GE(steps.size(), 2U);
    EXPECT_EQ(steps.front(), 0);
    EXPECT_EQ(steps.back(), totals.back());
    EXPECT_TRUE(std::ranges::is_sorted(steps));
    EXPECT_EQ(std::ranges::count(steps, 0), 1);
    EXPECT_EQ(std::ranges::count(totals, totals.front()), std::ssize(totals));
  }
}

TEST(AttentionProgress, EmptyProblem) {
  const RandomProblem p = stored_problem({0, 2, 1, 3, 4}, 5, 6);
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  AttentionOptions options;
  options.execution.progress = [&](std::int64_t done, std::int64_t total) {
    calls.emplace_back(done, total);
  };
  forward(p.inputs(), options);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0], std::pair(std::int64_t{0}, std::int64_t{0}));
}

TEST(AttentionProgress, ExceptionsPropagate) {
  const RandomProblem p = stored_problem({2, 3, 1, 300, 200}, 32, 32);
  const Forward expected = forward(p.inputs());
  for (const int threads : {1, 2, 3}) {
    for (const std::int64_t when : {0, 1, 4}) {
      AttentionOptions options;
      options.execution = {.threads = threads, .progress = [&](std::int64_t done, std::int64_t) {
                             if (done >= when) throw std::out_of_range("enough");
                           }};
      EXPECT_THROW(forward(p.inputs(), options), std::out_of_range) << threads;
      EXPECT_TRUE(same_bits(forward(p.inputs()), expected));
    }
  }
}

}  // namespace
}  // namespace fovea::test
