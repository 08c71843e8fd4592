// SPDX-License-Identifier: Apache-2.0
//
// Signal handlers that run and return while oneDNN computes (fovea/nn/signal_stack.h).

#include "fovea/nn/signal_stack.h"

#include <chrono>
#include <csignal>

#include <gtest/gtest.h>
#include <omp.h>
#include <pthread.h>
#include <sys/time.h>

#include "fovea/nn/linear.h"
#include "fovea/random.h"

#include "support/exactness.h"

namespace fovea::nn {
namespace {

pthread_t computing;
volatile std::sig_atomic_t heard = 0;
volatile std::sig_atomic_t heard_elsewhere = 0;

extern "C" void hear(int signal) {
  // The alarm may be delivered to an idle thread that an earlier test started, which forwards it.
  if (pthread_equal(pthread_self(), computing) == 0) {
    pthread_kill(computing, signal);
    return;
  }
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0) {
    heard = heard + 1;
  } else {
    heard_elsewhere = heard_elsewhere + 1;
  }
}

void send_alarms_every(int microseconds) {
  const timeval interval = {.tv_sec = 0, .tv_usec = microseconds};
  const itimerval timer = {.it_interval = interval, .it_value = interval};
  ASSERT_EQ(setitimer(ITIMER_REAL, &timer, nullptr), 0);
}

// Without a separate signal stack, a handler's frame overwrites the heap and the process aborts.
TEST(NnSignalStack, LayersSurviveSignals) {
  constexpr int kMicroseconds = 300;
  constexpr std::chrono::milliseconds kDuration(1500);
  use_signal_stack();
  computing = pthread_self();
  omp_set_num_threads(1);  // the whole layer is computed in this thread
  struct sigaction action {};
  action.sa_handler = hear;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);

  Model model(1);
  Linear layer(model.scope("map"), 177, 211);
  RandomState random(2);
  const Tensor x = convert(random.randn({96, 177}), DType::kFloat32);
  const Tensor grad = convert(random.randn({96, 211}), DType::kFloat32);
  const Tensor expected(layer.forward(x));
  send_alarms_every(kMicroseconds);
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < kDuration) {
    layer.forward(x);
    layer.backward(grad);
  }
  send_alarms_every(0);

  EXPECT_GT(heard, 10);
  EXPECT_EQ(heard_elsewhere, 0);
  EXPECT_TRUE(test::same_bits(layer.forward(x), expected));
}

TEST(NnSignalStack, ASecondCallChangesNothing) {
  use_signal_stack();
  stack_t before = {}, after = {};
  ASSERT_EQ(sigaltstack(nullptr, &before), 0);
  use_signal_stack();
  ASSERT_EQ(sigaltstack(nullptr, &after), 0);
  EXPECT_EQ(before.ss_sp, after.ss_sp);
  EXPECT_EQ(before.ss_size, after.ss_size);
  EXPECT_EQ(after.ss_flags & SS_DISABLE, 0);
}

}  // namespace
}  // namespace fovea::nn
