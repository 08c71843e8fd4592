// SPDX-License-Identifier: Apache-2.0
//
// Times the computation of one rank, for bench/mpi/simulate:
//   fovea_rank_rate RANKS N HEADS D REPEAT
// Prints the seconds of each causal forward pass of rank RANKS / 2 of a zigzag sharding, as a JSON
// array. Messages arrive at once and keep what the memory holds, so only the computation is left:
// the engine's work for each step, and the merging of its results.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "fovea/attention_options.h"
#include "fovea/distributed.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

namespace fovea {
namespace {

/// A rank among others that agree with it and never keep it waiting.
class IdealTransport final : public distributed::Transport {
 public:
  explicit IdealTransport(int size) : size_(size) {}

  int rank() const override { return size_ / 2; }
  int size() const override { return size_; }
  void begin_exchange(const distributed::Exchange&) override {}
  bool wait(std::chrono::nanoseconds) override { return true; }
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    for (int other = 0; other < size_; ++other) {
      std::ranges::copy(own, all.begin() + other * static_cast<std::ptrdiff_t>(own.size()));
    }
  }

 private:
  const int size_;
};

void measure(int ranks, std::int64_t length, std::int64_t heads, std::int64_t dim, int repeat) {
  IdealTransport transport(ranks);
  const auto sharding = distributed::Sharding::zigzag(length, ranks);
  RandomState random(1);
  const Shape shape{1, heads, sharding.length(transport.rank()), dim};
  Tensor query(DType::kFloat32, shape), key(DType::kFloat32, shape), value(DType::kFloat32, shape);
  for (Tensor* tensor : {&query, &key, &value}) {
    for (float& x : tensor->span<float>()) x = static_cast<float>(random.rand()) * 4 - 2;
  }
  Tensor context(DType::kFloat32, shape);
  for (int pass = 0; pass <= repeat; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    distributed::attention_forward(transport, {query, key, value, sharding, sharding},
                                   {.mask = causal()}, {.context = context});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (pass > 0)
      std::printf("%s%.6f", pass == 1 ? "[" : ", ", seconds.count());  // the first warms up
  }
  std::printf("]\n");
}

}  // namespace
}  // namespace fovea

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: fovea_rank_rate RANKS N HEADS D REPEAT\n", stderr);
    return 2;
  }
  fovea::measure(std::atoi(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
                 std::atoi(argv[5]));
}
