// SPDX-License-Identifier: Apache-2.0
//
// Several processes that run one command together, started by mpirun: they share the computation,
// and rank 0 alone prints and writes. A process by itself is a job of one.

#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "fovea/distributed.h"

namespace fovea::cli {

/// The membership of this process. One object in main().
class Job {
 public:
  /// Joins the job that this process was started in. Processes other than rank 0 print no more.
  Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() = default;

  /// Leaves the job, and returns `code`, the exit code of the program. If only this process has
  /// failed, prints the error and ends the job, because the others would wait for it.
  int leave(int code);
};

/// Returns the number of processes.
int job_size();
/// Returns whether this process was started as one of several, but the program is built without
/// MPI.
bool job_needs_mpi();
/// Sets the time without a sign of life after which a process is given up, before the first use of
/// job_transport().
void set_job_timeout(double seconds);
/// Returns how the processes talk to each other; null if there is only one. Collective at the first
/// call.
distributed::Transport* job_transport();

/// Does a part of a command that may fail on some processes only, for example because one of them
/// cannot read a file. Throws the errors of all of them. Collective.
void do_step(const std::function<void()>& work);

/// As do_step(), with a result.
template <class Work>
auto in_step(const Work& work) {
  std::optional<decltype(work())> result;
  do_step([&] { result.emplace(work()); });
  return std::move(*result);
}

}  // namespace fovea::cli
