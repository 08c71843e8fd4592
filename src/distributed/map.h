// SPDX-License-Identifier: Apache-2.0
//
// Maps of sharded tensors.

#pragma once

#include "fovea/distributed.h"

namespace fovea::distributed {

/// Pools the weights of all ranks to a map, which all ranks get. The arguments must be valid.
/// Collective.
void pool_map(Transport& transport, const ShardedWeightInputs& inputs,
              const AttentionOptions& options, const ProblemShape& shape, const PooledMap& map);

}  // namespace fovea::distributed
