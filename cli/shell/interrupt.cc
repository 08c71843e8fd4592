// SPDX-License-Identifier: Apache-2.0
//
// Signal handling (interrupt.h). The handlers call only async-signal-safe functions.

#include "cli/shell/interrupt.h"

#include <array>
#include <csignal>

#include <unistd.h>

#include "fovea/files.h"

#include "cli/shell/exit_code.h"
#include "cli/shell/message.h"

namespace fovea::cli {
namespace {

constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP};

// Signal handlers may only access variables of this type.
volatile std::sig_atomic_t delayed = 0;
volatile std::sig_atomic_t noted = 0;

// Not sanitized: in a handler on an alternate stack, AddressSanitizer allocates memory before each
// call of a noreturn function. The allocation would deadlock if the signal had interrupted
// AddressSanitizer's allocator.
extern "C" [[gnu::no_sanitize_address]] void end_process(int signal) {
  if (delayed != 0 && noted == 0) {
    noted = signal;
    return;
  }
  remove_temporary_files();
  ::_exit(kInterrupted + signal);
}

extern "C" [[gnu::no_sanitize_address]] void end_at_lost_memory(int /*signal*/) {
  remove_temporary_files();
  print_error_in_handler("a file became shorter, or its disk failed, while it was being read");
  ::_exit(kBadInput);
}

}  // namespace

void handle_signals() {
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK;  // fovea/nn/signal_stack.h
  sigemptyset(&action.sa_mask);
  for (const int signal : kEndingSignals) sigaddset(&action.sa_mask, signal);
  action.sa_handler = end_process;
  for (const int signal : kEndingSignals) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
  action.sa_handler = end_at_lost_memory;
  sigaction(SIGBUS, &action, nullptr);
  // If these signals are ignored, the write fails with EPIPE or EFBIG.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

DelayedInterrupt::DelayedInterrupt() {
  noted = 0;
  delayed = 1;
}

DelayedInterrupt::~DelayedInterrupt() { delayed = 0; }

int DelayedInterrupt::signal() const { return noted; }

}  // namespace fovea::cli
