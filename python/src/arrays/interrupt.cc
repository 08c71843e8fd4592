// SPDX-License-Identifier: Apache-2.0
//
// SIGINT as a stop request (interrupt.h). The handler is async-signal-safe: it posts a semaphore
// and calls the previous handler.

#include "arrays/interrupt.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include <Python.h>
#include <nanobind/nanobind.h>
#include <pthread.h>
#include <semaphore.h>

namespace nb = nanobind;

namespace fovea::python {
namespace {

/// State of the waiting thread. The first watched call starts the thread, which lives until the
/// process ends: one thread per call would take 3 % of a 6 ms call.
struct Waiter {
  sem_t wake;
  std::mutex mutex;
  std::stop_source* source = nullptr;  // of the watched call
};

struct sigaction before {};
std::atomic<Waiter*> waiter = nullptr;

extern "C" void note_interrupt(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  // Null in a process forked during a call, because only the parent has the waiting thread.
  if (Waiter* const there = waiter.load()) sem_post(&there->wake);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  errno = error;
}

void wait_for_interrupts(Waiter& self) {
  while (true) {
    if (sem_wait(&self.wake) != 0) continue;  // EINTR
    const std::lock_guard lock(self.mutex);
    if (self.source != nullptr) self.source->request_stop();
  }
}

/// Starts the waiting thread. Returns null if no thread can be created.
Waiter* start_waiting() {
  auto made = std::make_unique<Waiter>();
  sem_init(&made->wake, 0, 0);
  // The waiting thread blocks all signals.
  sigset_t all, own;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &own);
  try {
    std::thread(wait_for_interrupts, std::ref(*made)).detach();
    waiter = made.release();  // never destroyed: the thread never ends
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
  return waiter;
}

// A forked process has only the forking thread, so it starts its own waiter on demand.
[[maybe_unused]] const int forgets_in_children =
    pthread_atfork(nullptr, nullptr, [] { waiter = nullptr; });

}  // namespace

bool in_main_thread() {
  const nb::module_ threading = nb::module_::import_("threading");
  return nb::cast<unsigned long>(threading.attr("main_thread")().attr("ident")) ==
         PyThread_get_thread_ident();
}

bool raises_keyboard_interrupt() {
  const nb::module_ signals =
      nb::module_::import_("_signal");  // without the enumerations of signal
  return signals.attr("getsignal")(SIGINT).is(signals.attr("default_int_handler"));
}

InterruptWatch::InterruptWatch(std::stop_source& source) {
  if (sigaction(SIGINT, nullptr, &before) != 0) return;
  const bool siginfo = (before.sa_flags & SA_SIGINFO) != 0;
  if (!siginfo && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) return;
  Waiter* there = waiter;
  if (there == nullptr) there = start_waiting();
  // Without the thread the call can't be interrupted, but still runs.
  if (there == nullptr) return;
  {
    const std::lock_guard lock(there->mutex);
    while (sem_trywait(&there->wake) == 0) {  // discards signals that arrived as a watch ended
    }
    there->source = &source;
  }
  watching_ = true;
  struct sigaction action = before;
  action.sa_flags |= SA_SIGINFO;
  action.sa_sigaction = note_interrupt;
  sigaction(SIGINT, &action, nullptr);
}

InterruptWatch::~InterruptWatch() {
  if (!watching_) return;
  sigaction(SIGINT, &before, nullptr);
  Waiter& there = *waiter.load();
  const std::lock_guard lock(there.mutex);
  there.source = nullptr;
}

}  // namespace fovea::python
