// SPDX-License-Identifier: Apache-2.0
//
// A forward pass on a simulated cluster, for bench/mpi/simulate:
//   smpirun ... fovea_simulation zigzag|contiguous WINDOW N HEADS D BYTES SECONDS_PER_PAIR
// Compiled against SimGrid's SMPI, together with the transport of fovea::mpi. Plan, messages and
// agreement are those of the library. A computation is a delay: the pairs of a query and a key that
// the mask (causal, with a window if it is not 0) lets through, of all heads, times
// SECONDS_PER_PAIR. Messages have their real size, but all share a little memory, and nothing reads
// them.
//
// SMPI moves messages whether or not the receiver polls, as a network card with its own progress
// does. Rank 0 prints the simulated duration of the pass and its longest message as JSON.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include <simgrid/engine.h>

#include "fovea/mpi.h"

#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/ring.h"
#include "distributed/ring_pass.h"

namespace fovea::distributed {
namespace {

/// Memory of which all pages are the same, without a copy when it is sent.
struct SharedMemory {
  explicit SharedMemory(std::size_t bytes)
      : at(static_cast<std::byte*>(SMPI_SHARED_MALLOC(std::max<std::size_t>(bytes, 1)))) {}
  ~SharedMemory() { SMPI_SHARED_FREE(at); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* const at;
};

struct Job {
  AttentionOptions options;
  std::int64_t window = 0;
  double seconds_per_pair = 0;
};

/// Returns the number of pairs that the mask of the job lets through.
std::int64_t visible_pairs(const Job& job, const PairRange& range) {
  const std::int64_t end = range.first_key + range.keys;
  std::int64_t pairs = 0;
  for (std::int64_t query = range.first_query; query < range.first_query + range.queries; ++query) {
    std::int64_t first = range.first_key;
    if (job.window > 0) first = std::max(first, query - job.window + 1);
    pairs += std::max<std::int64_t>(0, std::min(end, query + 1) - first);
  }
  return pairs;
}

/// The forward pass of forward.cc, without its memory and its results.
class SimulatedPass : public RingPass {
 public:
  SimulatedPass(Transport& transport, const ShardedInputs& inputs, const Job& job,
                const ProblemShape& shape)
      : RingPass(transport, inputs, job.options, shape), job_(job) {}

  /// Returns the size of the longest message.
  std::size_t run() {
    const RingPlan plan = make_plan();
    const std::size_t bytes = message_bytes(plan);
    const SharedMemory outgoing(bytes), incoming(bytes);
    share();
    circulate(plan, {outgoing.at, bytes}, {incoming.at, bytes},
              [&](const KeyPiece& piece, const PieceTensors&) { compute(piece); });
    share();
    return bytes;
  }

 private:
  void compute(const KeyPiece& piece) {
    for_each_block(piece, inputs_.queries.length(),
                   [&](const Block& block, const AttentionOptions& options) {
                     const std::int64_t pairs =
                         shape_.batch * shape_.q_heads * visible_pairs(job_, block.range);
                     smpi_execute(static_cast<double>(pairs) * job_.seconds_per_pair);
                     options.execution.progress(1, 1);
                   });
  }

  const Job& job_;
};

void simulate(Transport& transport, const std::vector<std::string_view>& words) {
  const auto number = [&](std::size_t at) { return std::atoll(words.at(at).data()); };
  const std::int64_t length = number(3);
  const Sharding sharding = words.at(1) == "zigzag"
                                ? Sharding::zigzag(length, transport.size())
                                : Sharding::contiguous(length, transport.size());
  Job job;
  job.window = number(2);
  job.seconds_per_pair = std::atof(words.at(7).data());
  job.options.mask = job.window > 0 ? window(job.window - 1, 0) : causal();
  const DType type = number(6) == 2 ? DType::kBFloat16 : DType::kFloat32;
  const Shape shape{1, number(4), sharding.length(transport.rank()), number(5)};
  const SharedMemory memory(static_cast<std::size_t>(shape[1] * shape[2] * shape[3]) *
                            dtype_size(type));
  const TensorView tensor{memory.at, type, shape};
  const ShardedInputs inputs{tensor, tensor, tensor, sharding, sharding};

  MPI_Barrier(MPI_COMM_WORLD);
  const double start = simgrid_get_clock();
  const ProblemShape whole = check_inputs(transport, inputs, job.options);
  agree(transport, shared_arguments("attention_forward", inputs, job.options, "context"), nullptr);
  share_errors(transport, nullptr);
  SimulatedPass pass(transport, inputs, job, whole);
  const std::size_t bytes = pass.run();
  double seconds = simgrid_get_clock() - start;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (transport.rank() == 0) std::printf("{\"seconds\": %.9f, \"message\": %zu}\n", seconds, bytes);
}

}  // namespace
}  // namespace fovea::distributed

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv, argv + argc);
  MPI_Init(&argc, &argv);
  try {
    const auto transport = fovea::mpi::make_transport(MPI_COMM_WORLD);
    fovea::distributed::simulate(*transport, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
