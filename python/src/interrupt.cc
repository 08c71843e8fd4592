// SPDX-License-Identifier: Apache-2.0
//
// SIGINT as a request to stop (interrupt.h). The handler does what POSIX allows in one: it sets a
// flag, posts a semaphore and calls the handler that was there before.

#include "interrupt.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <Python.h>
#include <nanobind/nanobind.h>
#include <semaphore.h>

namespace nb = nanobind;

namespace fovea::python {
namespace {

struct sigaction before {};
std::atomic<bool> interrupted = false;
// Never destroyed: another thread may still be in the handler when a watch is over.
sem_t wake;
[[maybe_unused]] const int wake_is_there = sem_init(&wake, 0, 0);

extern "C" void note_interrupt(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  interrupted.store(true);
  sem_post(&wake);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  errno = error;
}

}  // namespace

bool in_main_thread() {
  const nb::module_ threading = nb::module_::import_("threading");
  return nb::cast<unsigned long>(threading.attr("main_thread")().attr("ident")) ==
         PyThread_get_thread_ident();
}

InterruptWatch::InterruptWatch(std::stop_source& source) {
  if (sigaction(SIGINT, nullptr, &before) != 0) return;
  const bool siginfo = (before.sa_flags & SA_SIGINFO) != 0;
  if (!siginfo && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) return;
  interrupted.store(false);
  while (sem_trywait(&wake) == 0) {  // what a signal at the end of the watch before has left
  }
  // No signal is for the thread that waits.
  sigset_t all, own;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &own);
  try {
    waiting_ = std::thread([&source] {
      while (sem_wait(&wake) != 0 && errno == EINTR) {
      }
      if (interrupted.load()) source.request_stop();
    });
  } catch (const std::system_error&) {
    // No thread to be had: then the call can't be interrupted, which is no reason not to make it.
  }
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
  if (!waiting_.joinable()) return;
  struct sigaction action = before;
  action.sa_flags |= SA_SIGINFO;
  action.sa_sigaction = note_interrupt;
  sigaction(SIGINT, &action, nullptr);
}

InterruptWatch::~InterruptWatch() {
  if (!waiting_.joinable()) return;
  sigaction(SIGINT, &before, nullptr);
  sem_post(&wake);
  waiting_.join();
}

}  // namespace fovea::python
