// SPDX-License-Identifier: Apache-2.0
//
// Attention over MPI, in a program that starts and ends MPI itself. Prints "ok".

#include <cstdio>
#include <cstdlib>

#include <fovea/mpi.h>
#include <fovea/random.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool same = false;
  {
    const auto transport = fovea::mpi::make_transport(MPI_COMM_WORLD);
    const auto sharding = fovea::mpi::Sharding::zigzag(9, transport->size());
    const fovea::Tensor query =
        fovea::mpi::shard(fovea::RandomState(1).randn({1, 2, 9, 4}), sharding, transport->rank());
    fovea::Tensor context(query.dtype(), query.shape());
    fovea::mpi::attention_forward(*transport, {query, query, query, sharding, sharding},
                                  {.mask = fovea::causal()}, {.context = context});
    // The first query sees only itself.
    same = std::abs(context.value({0, 1, 0, 2}) - query.value({0, 1, 0, 2})) < 1e-15;
  }
  MPI_Finalize();
  std::puts(same ? "ok" : "wrong");
}
