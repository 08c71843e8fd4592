// SPDX-License-Identifier: Apache-2.0
//
// Signals (interrupt.h). The handler touches a static buffer and calls only what POSIX lists as
// safe in a handler.

#include "interrupt.h"

#include <array>
#include <climits>
#include <cstring>

#include <unistd.h>

namespace fovea::cli {
namespace {

constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP};

// The path of the file to remove, empty when there is none; changed only while signals are held.
std::array<char, PATH_MAX> temporary_path{};

extern "C" void end_process(int signal) {
  if (temporary_path[0] != '\0') ::unlink(temporary_path.data());
  ::_exit(128 + signal);
}

}  // namespace

void handle_signals() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  for (const int signal : kEndingSignals) sigaddset(&action.sa_mask, signal);
  action.sa_handler = end_process;
  for (const int signal : kEndingSignals) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
  // A closed pipe and a file grown too large are then errors of the write itself.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

SignalsHeld::SignalsHeld() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : kEndingSignals) sigaddset(&ending, signal);
  sigprocmask(SIG_BLOCK, &ending, &before_);
}

SignalsHeld::~SignalsHeld() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

void remove_on_signal(const std::string& path) {
  if (path.size() >= temporary_path.size()) {
    temporary_path[0] = '\0';  // no file can have such a path
    return;
  }
  std::memcpy(temporary_path.data(), path.c_str(), path.size() + 1);
}

}  // namespace fovea::cli
