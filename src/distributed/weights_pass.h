// SPDX-License-Identifier: Apache-2.0
//
// A trip of the keys alone around the ring, to ranks that know the lse of their queries and compute
// weights again.

#pragma once

#include <cstdint>
#include <functional>

#include "fovea/distributed.h"

#include "distributed/ring_pass.h"
#include "engine/call/problem.h"

namespace fovea::distributed {

/// Keys without values.
struct KeysAlone {
  ShardedInputs keys;
  TensorView lse;

  explicit KeysAlone(const ShardedWeightInputs& inputs)
      : keys{inputs.query, inputs.key, no_value(inputs.key), inputs.queries, inputs.keys},
        lse(inputs.lse) {}
};

class WeightsPass : private KeysAlone, public RingPass {
 public:
  /// The arguments must be valid, and outlive the pass.
  WeightsPass(Transport& transport, const ShardedWeightInputs& inputs,
              const AttentionOptions& options, const ProblemShape& shape)
      : KeysAlone(inputs), RingPass(transport, keys, options, shape) {}

  /// Queries of this rank and keys of any rank as a problem of their own. `inputs` have no rows of
  /// other queries.
  struct Part {
    const PairRange& range;
    std::int64_t first;  ///< the index of the first query in the part of this rank
    const WeightInputs& inputs;
    const engine::Problem& problem;
  };
  /// Calls `work` for each part that has a visible pair. Throws the errors of all ranks.
  /// Collective.
  void run(const std::function<void(const Part&)>& work);
};

}  // namespace fovea::distributed
