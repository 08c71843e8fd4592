// SPDX-License-Identifier: Apache-2.0
//
// Included by the compiler before src/mpi/mpi_transport.cc (-include) in simulations of clusters:
// the clock, the sleep and the yield of the transport become those of SimGrid. SMPI replaces only
// calls of C functions in the program's own source, and std::chrono reads the clock in libstdc++.

#pragma once

// All headers that use these names come first, because they must keep the real clock.
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <sched.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>

namespace std::chrono {

/// The time of the simulation.
struct simulated_clock {
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<simulated_clock>;
  static constexpr bool is_steady = true;

  static time_point now() {
    return time_point(duration_cast<duration>(std::chrono::duration<double>(simgrid_get_clock())));
  }
};

}  // namespace std::chrono

namespace std::this_thread {

inline void simulated_sleep(std::chrono::duration<double> time) {
  sg_actor_sleep_for(time.count());
}

}  // namespace std::this_thread

// A poll takes this time. SMPI counts none (smpi/test and smpi/iprobe are 0 in bench/mpi/simulate),
// because it would count it for each request of a poll.
inline int simulated_yield() {
  sg_actor_sleep_for(5e-6);
  return 0;
}

#define steady_clock simulated_clock
#define sleep_for simulated_sleep
#define sched_yield simulated_yield
