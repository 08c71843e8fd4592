// SPDX-License-Identifier: Apache-2.0
//
// A job for bench/mpi/run: mpi_job PASS MASK SHARDING N D HEADS REPEAT prints the durations of
// forward or backward passes with a causal, windowed or full mask. An exception ends the job
// through MPI_Abort, as a program that uses the library should.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include <mpi.h>
#include <sys/resource.h>

#include "fovea/attention.h"
#include "fovea/mpi.h"
#include "fovea/random.h"

namespace fovea {
namespace {

using Seconds = std::chrono::duration<double>;

/// Sharded float32 tensors of standard normal numbers, which differ among ranks.
struct Job {
  mpi::ShardedInputs inputs;
  AttentionOptions options;
  Tensor query, key, value, context, lse, grad_context, grad_query, grad_key, grad_value;

  Job(const mpi::Transport& transport, const mpi::Sharding& sharding, std::int64_t dim,
      std::int64_t heads, bool backward) {
    RandomState random(static_cast<std::uint64_t>(transport.rank() + 1));
    const Shape shape{1, heads, sharding.length(transport.rank()), dim};
    for (Tensor* tensor : {&query, &key, &value}) fill(*tensor, shape, random);
    context = Tensor(DType::kFloat32, shape);
    if (backward) {
      fill(grad_context, shape, random);
      for (Tensor* tensor : {&grad_query, &grad_key, &grad_value}) {
        *tensor = Tensor(DType::kFloat32, shape);
      }
    }
    lse = Tensor(DType::kFloat32, {shape[0], shape[1], shape[2]});
    inputs = {query, key, value, sharding, sharding};
    options.mask = causal();
  }
  static void fill(Tensor& tensor, const Shape& shape, RandomState& random) {
    tensor = Tensor(DType::kFloat32, shape);
    for (float& x : tensor.span<float>()) x = static_cast<float>(random.rand()) * 4 - 2;
  }
  void forward(mpi::Transport& transport) {
    attention_forward(transport, inputs, options, {.context = context, .lse = lse});
  }
  void backward(mpi::Transport& transport) {
    attention_backward(transport,
                       {{.query = query,
                         .key = key,
                         .value = value,
                         .context = context,
                         .lse = lse,
                         .grad_context = grad_context},
                        inputs.queries,
                        inputs.keys},
                       options,
                       {.grad_query = grad_query, .grad_key = grad_key, .grad_value = grad_value});
  }
};

mpi::Sharding sharding_of(std::string_view kind, std::int64_t length, int ranks) {
  return kind == "zigzag" ? mpi::Sharding::zigzag(length, ranks)
                          : mpi::Sharding::contiguous(length, ranks);
}

void time_passes(mpi::Transport& transport, const std::vector<std::string_view>& words) {
  const auto number = [&](std::size_t at) { return std::atoll(words.at(at).data()); };
  const std::int64_t length = number(4);
  Job job(transport, sharding_of(words.at(3), length, transport.size()), number(5), number(6),
          words.at(1) == "backward");
  if (words.at(2) == "full") job.options.mask = {};
  if (words.at(2) == "window") job.options.mask = window(4095, 0);
  job.forward(transport);
  for (long long repeat = 0; repeat < number(7); ++repeat) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    if (words[1] == "backward") {
      job.backward(transport);
    } else {
      job.forward(transport);
    }
    double seconds = Seconds(std::chrono::steady_clock::now() - start).count();
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (transport.rank() == 0) std::printf("%.4f s\n", seconds);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  long memory = usage.ru_maxrss;
  MPI_Allreduce(MPI_IN_PLACE, &memory, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  if (transport.rank() == 0) std::printf("at most %ld kB per rank\n", memory);
}

}  // namespace
}  // namespace fovea

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv, argv + argc);
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    const auto transport = fovea::mpi::make_transport(MPI_COMM_WORLD);
    fovea::time_passes(*transport, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "on rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
