// SPDX-License-Identifier: Apache-2.0
//
// A transport on which every call may be late.

#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <thread>

#include "fovea/mpi.h"
#include "fovea/random.h"

#include "mpi/ranks.h"

namespace fovea::test {

class LateTransport final : public mpi::Transport {
 public:
  explicit LateTransport(std::uint64_t seed) : random_(seed) {}

  int rank() const override { return ranks().rank(); }
  int size() const override { return ranks().size(); }
  void begin_exchange(const mpi::Exchange& exchange) override {
    delay();
    ranks().begin_exchange(exchange);
  }
  bool wait(std::chrono::nanoseconds at_most) override {
    delay();
    return ranks().wait(at_most);
  }
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    delay();
    ranks().all_gather(own, all);
  }

 private:
  void delay() {
    if (random_.randint(0, 3) != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.randint(0, 2000)));
  }
  RandomState random_;
};

}  // namespace fovea::test
