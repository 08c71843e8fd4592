// SPDX-License-Identifier: Apache-2.0
//
// Jobs of several processes (job.h).

#include "cli/shell/job.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>

#include <fmt/format.h>

#include "cli/shell/message.h"
#include "distributed/agreement.h"
#ifdef FOVEA_MPI
#include <mpi.h>

#include "fovea/mpi.h"
#endif

namespace fovea::cli {
namespace {

struct State {
  int size = 1;
  int rank = 0;
  double timeout_seconds = 300;
  bool all_failed = false;  // whether the error is known to all processes
  std::unique_ptr<distributed::Transport> transport;
};

State& state() {
  static State one;
  return one;
}

/// Returns whether a launcher has started this process as one of several.
bool started_with_others() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* const size = std::getenv(name)) return std::atoi(size) > 1;
  }
  return std::getenv("PMIX_RANK") != nullptr;  // of launchers that do not tell the size
}

}  // namespace

#ifdef FOVEA_MPI

Job::Job() {
  if (!started_with_others()) return;
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_size(MPI_COMM_WORLD, &state().size);
  MPI_Comm_rank(MPI_COMM_WORLD, &state().rank);
  if (state().rank > 0) silence();
}

int Job::leave(int code) {
  if (job_size() == 1) return code;
  if (code != 0 && !state().all_failed && !usage_was_wrong()) {
    if (state().rank > 0) {
      write_stderr(fmt::format("on rank {}: {}\n", state().rank, last_error()));
    }
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  state().transport.reset();
  MPI_Finalize();
  return code;
}

distributed::Transport* job_transport() {
  State& job = state();
  if (job.size == 1) return nullptr;
  if (!job.transport) {
    const auto timeout = std::chrono::duration<double>(job.timeout_seconds);
    job.transport = mpi::make_transport(
        MPI_COMM_WORLD,
        {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)});
  }
  return job.transport.get();
}

bool job_needs_mpi() { return false; }

#else

Job::Job() = default;

bool job_needs_mpi() { return started_with_others(); }

int Job::leave(int code) { return code; }

distributed::Transport* job_transport() { return nullptr; }

#endif

int job_size() { return state().size; }

void set_job_timeout(double seconds) { state().timeout_seconds = seconds; }

void do_step(const std::function<void()>& work) {
  distributed::Transport* const transport = job_transport();
  if (transport == nullptr) return work();
  std::exception_ptr error;
  try {
    work();
  } catch (const distributed::CommunicationError&) {
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  // If work() was collective, it has thrown on all processes, and so does this.
  try {
    distributed::share_errors(*transport, error);
  } catch (const distributed::CommunicationError&) {
    throw;
  } catch (...) {
    state().all_failed = true;
    throw;
  }
}

}  // namespace fovea::cli
