// SPDX-License-Identifier: Apache-2.0
//
// The module fovea._mpi: transports on MPI communicators.

#include "fovea/mpi.h"

#include <chrono>
#include <cstdint>
#include <memory>

#include <mpi.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

namespace nb = nanobind;

NB_MODULE(_mpi, module) {
  using namespace nb::literals;
  nb::module_::import_("fovea._fovea");  // has the type of the result
  module.def(
      "transport",
      [](std::uintptr_t communicator, double timeout_seconds) {
        const auto timeout = std::chrono::duration<double>(timeout_seconds);
        return std::shared_ptr<fovea::distributed::Transport>(fovea::mpi::make_transport(
            *reinterpret_cast<MPI_Comm*>(communicator),
            {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)}));
      },
      "communicator"_a, "timeout_seconds"_a,
      "Returns the transport on the communicator at an address, that of mpi4py.MPI._addressof().");
}
