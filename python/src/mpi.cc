// SPDX-License-Identifier: Apache-2.0
//
// The module fovea._mpi: transports on MPI communicators.

#include "fovea/mpi.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
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
      [](std::uintptr_t communicator) {
        return std::shared_ptr<fovea::distributed::Transport>(
            fovea::mpi::make_transport(*reinterpret_cast<MPI_Comm*>(communicator)));
      },
      "communicator"_a,
      "Returns the transport on the communicator at an address, that of mpi4py.MPI._addressof().");
  module.def(
      "set_timeout",
      [](fovea::distributed::Transport& transport, double seconds) {
        if (!(seconds > 0 && seconds <= 1e9)) {
          char message[100];
          std::snprintf(message, sizeof message,
                        "timeout: expected more than 0 and at most 1e9 seconds, got %g", seconds);
          throw nb::value_error(message);
        }
        const std::chrono::duration<double> timeout(seconds);
        fovea::mpi::set_timeout(transport, std::chrono::ceil<std::chrono::milliseconds>(timeout));
      },
      "transport"_a, "seconds"_a, "Sets the timeout of a result of transport().");
}
