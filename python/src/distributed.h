// SPDX-License-Identifier: Apache-2.0
//
// Calls on sharded tensors: how ranks talk, and who owns what (fovea/distributed.h).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <nanobind/nanobind.h>

#include "fovea/distributed.h"
#include "fovea/execution.h"

namespace fovea::python {

/// The arguments of an operation that concern ranks.
///
/// Every operation begins with a message from each rank to all, which tells the lengths of its
/// parts, or that an error has kept the rank from taking part. A rank sends it once its own
/// arguments are converted, so that a mistake in them does not leave the others waiting.
class Ranks {
 public:
  explicit Ranks(std::shared_ptr<distributed::Transport> transport);

  /// Sets the shardings of queries and keys: "contiguous", "zigzag" or a Sharding.
  void set_shardings(nanobind::handle queries, nanobind::handle keys);

  /// Notes that an operation is about to be called.
  void prepare() { has_begun_ = false; }
  /// Begins the operation on parts of these lengths, without the GIL. Throws InvalidArgument or
  /// RankError if another rank has failed. Collective.
  void begin(std::int64_t queries, std::int64_t keys);
  /// Ends the operation with an error. If it has not begun, takes part in its beginning; throws if
  /// the message of the other ranks is another, because it names the ranks.
  void fail(nanobind::handle error);

  distributed::Transport& transport() const { return *transport_; }
  const distributed::Sharding& queries() const { return queries_.sharding; }
  const distributed::Sharding& keys() const { return keys_.sharding; }

 private:
  struct Division {
    enum class Kind { kContiguous, kZigzag, kGiven } kind = Kind::kContiguous;
    distributed::Sharding sharding;  // of the lengths, once they are known
  };
  static Division division_of(const char* name, nanobind::handle wish);

  std::shared_ptr<distributed::Transport> transport_;
  Division queries_, keys_;
  bool has_begun_ = false;
};

/// Runs a collective operation on parts of these lengths, from a call with the GIL. SIGINT stops
/// it on all ranks. Errors have the names of Python's arguments.
void run_on_ranks(Ranks& ranks, std::int64_t queries, std::int64_t keys, Execution& execution,
                  const std::function<void()>& engine);

}  // namespace fovea::python
