// SPDX-License-Identifier: Apache-2.0
//
// Runs the tests in every process of an MPI job. Each test calls the same collective operations in
// all processes. The program fails if a test fails in one of them.

#include <chrono>
#include <memory>

#include <gtest/gtest.h>
#include <mpi.h>

#include "mpi/ranks.h"

namespace fovea::test {

static std::unique_ptr<mpi::Transport> transport;

mpi::Transport& ranks() { return *transport; }

}  // namespace fovea::test

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  testing::InitGoogleTest(&argc, argv);
  fovea::test::transport =
      fovea::mpi::make_transport(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(60)});
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  fovea::test::transport.reset();
  MPI_Finalize();
  return failed;
}
