// SPDX-License-Identifier: Apache-2.0
//
// Attention on sharded tensors (fovea/distributed.h) over the ranks of an MPI communicator. The
// library neither initialises nor finalises MPI.

#pragma once

#include <chrono>
#include <memory>

#include <mpi.h>

#include "fovea/distributed.h"
#include "fovea/export.h"

namespace fovea::mpi {

/// The names of fovea::distributed are also available here.
using namespace distributed;

/// Settings of a transport.
struct TransportOptions {
  /// A rank that sends no sign of life while another waits this long, plus up to 10 s in which it
  /// is asked for one, is named in a CommunicationError.
  std::chrono::milliseconds timeout = std::chrono::seconds(300);
};

/// Returns a transport among the processes of `communicator`, which is duplicated: a collective
/// call. Destroy the transport before MPI_Finalize. Waiting polls, and yields the CPU in between.
/// If MPI does not support calls from several threads in turn (MPI_THREAD_SERIALIZED), only the
/// calling thread advances an exchange while it computes. Throws InvalidArgument if MPI is not
/// initialised.
FOVEA_API std::unique_ptr<Transport> make_transport(MPI_Comm communicator,
                                                    const TransportOptions& options = {});

/// Changes the timeout (TransportOptions) of a transport of make_transport(), for later calls of
/// this rank. Throws InvalidArgument if it is not positive or the transport is another one.
FOVEA_API void set_timeout(Transport& transport, std::chrono::milliseconds timeout);

}  // namespace fovea::mpi
