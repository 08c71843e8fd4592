// SPDX-License-Identifier: Apache-2.0
//
// Stop tokens in the backward pass (also while work items wait for each other), progress callbacks,
// and exceptions thrown by a progress callback.

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_backward.h"
#include "fovea/error.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/backward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

using Clock = std::chrono::steady_clock;

/// A call that never ends in practice: 2^36 scores, from views that repeat a few rows.
class AttentionBackwardStop : public testing::Test {
 protected:
  static constexpr std::int64_t kLength = std::int64_t{1} << 18;
  // Normally a fraction of a second; the margin is for slow, busy machines and sanitizers.
  static constexpr double kSoon = 5.0;

  void run(const AttentionOptions& options) {
    const TensorView rows = laid_over(row_.view(), 0, {1, 1, kLength, 8}, {0, 0, 0, 1});
    const TensorView lse = laid_over(lse_.view(), 0, {1, 1, kLength}, {0, 0, 0});
    attention_backward({rows, rows, rows, rows, lse, rows}, options, {.grad_query = grad_query_});
  }
  /// Returns the seconds from the stop request to the end of the call.
  double ends_after(AttentionOptions options, const std::function<void(std::stop_source&)>& ask) {
    std::stop_source source;
    options.execution.stop = source.get_token();
    std::thread other([&] { ask(source); });
    EXPECT_THROW(run(options), Stopped);
    const Clock::time_point ended = Clock::now();
    other.join();
    return std::chrono::duration<double>(ended - asked_).count();
  }

  Tensor row_ = stored(Tensor::from<double>({8}, {1, -1, 2, -2, 3, -3, 4, -4}));
  // All scores are equal.
  Tensor lse_ =
      Tensor::from<float>({1}, {60.0F / std::sqrt(8.0F) + std::log(static_cast<float>(kLength))});
  Tensor grad_query_ = Tensor(storage(), {1, 1, kLength, 8});
  Clock::time_point asked_;
};

TEST_F(AttentionBackwardStop, RequestedBeforeTheCall) {
  for (const int threads : {1, 2}) {
    std::stop_source source;
    source.request_stop();
    AttentionOptions options;
    options.execution = {.threads = threads, .stop = source.get_token()};
    const Clock::time_point start = Clock::now();
    EXPECT_THROW(run(options), Stopped);
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), kSoon);
  }
}

TEST_F(AttentionBackwardStop, RequestedByAnotherThread) {
  for (const int threads : {1, 2, 8}) {
    AttentionOptions options;
    options.execution.threads = threads;
    const double seconds = ends_after(options, [&](std::stop_source& source) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      asked_ = Clock::now();
      source.request_stop();
    });
    EXPECT_GE(seconds, 0.0);
    EXPECT_LT(seconds, kSoon);
  }
}

TEST_F(AttentionBackwardStop, RequestedByProgress) {
  for (const int threads : {1, 3}) {
    std::stop_source source;
    std::int64_t last = -1, total = 0;
    // Few queries see each key, so work items are short.
    AttentionOptions options{.mask = window(3, 3)};
    options.execution = {.threads = threads,
                         .stop = source.get_token(),
                         .progress = [&](std::int64_t done, std::int64_t all) {
                           last = done;
                           total = all;
                           if (done == 3) source.request_stop();
                         }};
    // The window changes the value of lse, which builds with assertions verify.
    lse_ = Tensor::from<float>({1}, {60.0F / std::sqrt(8.0F) + std::log(4.0F)});
    EXPECT_THROW(run(options), Stopped);
    EXPECT_GE(last, 3);
    EXPECT_LT(last, total);
  }
}

TEST_F(AttentionBackwardStop, NextCallIsUnaffected) {
  const RandomProblem p = stored_problem({1, 2, 1, 100, 500}, 16, 16);
  const ResultLoss loss = random_loss(p.inputs());
  const reference::Gradients expected = backward(p.inputs(), {}, loss);
  std::stop_source source;
  source.request_stop();
  AttentionOptions options;
  options.execution.stop = source.get_token();
  EXPECT_THROW(run(options), Stopped);
  EXPECT_TRUE(same_bits(backward(p.inputs(), {}, loss), expected));
}

TEST_F(AttentionBackwardStop, Float64) {
  const RandomProblem p({1, 8, 8, 60, 200}, 16, 16);
  std::stop_source source;
  AttentionOptions options;
  options.execution = {
      .threads = 1, .stop = source.get_token(), .progress = [&](std::int64_t done, std::int64_t) {
        if (done == 1) source.request_stop();
      }};
  EXPECT_THROW(backward(p.inputs(), options, random_loss(p.inputs(), true, 1, DType::kFloat64)),
               Stopped);
}

// ---- Progress -----------------------------------------------------------------------------------

TEST(AttentionBackwardProgress, CountsFromZeroToTotalInSequence) {
  for (const DType dtype : {storage(), DType::kFloat64}) {
    RandomProblem p = stored_problem({2, 4, 2, 60, 300}, 16, 16);
    for (Tensor* tensor : {&p.query, &p.key, &p.value}) *tensor = convert(*tensor, dtype);
    const ResultLoss loss = random_loss(p.inputs(), true, 1, dtype);
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
      backward(p.inputs(), options, loss);
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

TEST(AttentionBackwardProgress, EmptyProblem) {
  const RandomProblem p = stored_problem({0, 2, 1, 3, 4}, 5, 6);
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  AttentionOptions options;
  options.execution.progress = [&](std::int64_t done, std::int64_t total) {
    calls.emplace_back(done, total);
  };
  backward(p.inputs(), options, random_loss(p.inputs()));
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0], std::pair(std::int64_t{0}, std::int64_t{0}));
}

TEST(AttentionBackwardProgress, ExceptionsPropagate) {
  const RandomProblem p = stored_problem({1, 4, 2, 60, 700}, 16, 16);
  const Tensor bias = convert(RandomState(4).randn({700}), DType::kFloat32);
  const ResultLoss loss = random_loss(p.inputs());
  const AttentionOptions plain{.mask = causal(), .score = {.bias = bias}};
  const reference::Gradients expected = backward(p.inputs(), plain, loss);
  for (const int threads : {1, 2, 3}) {
    for (const std::int64_t when : {0, 1, 4}) {
      AttentionOptions options = plain;
      options.execution = {.threads = threads, .progress = [&](std::int64_t done, std::int64_t) {
                             if (done >= when) throw std::out_of_range("enough");
                           }};
      EXPECT_THROW(backward(p.inputs(), options, loss), std::out_of_range) << threads;
      EXPECT_TRUE(same_bits(backward(p.inputs(), plain, loss), expected));
    }
  }
}

}  // namespace
}  // namespace fovea::test
