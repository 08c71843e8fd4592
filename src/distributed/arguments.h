// SPDX-License-Identifier: Apache-2.0
//
// Checks of the arguments of calls on sharded tensors, and the arguments that all ranks share.

#pragma once

#include <string>
#include <vector>

#include "fovea/distributed.h"

#include "distributed/agreement.h"
#include "engine/call/problem.h"

namespace fovea::distributed {

/// Checks the inputs and options of a call on this rank; returns the shape of the whole problem.
ProblemShape check_inputs(const Transport& transport, const ShardedInputs& inputs,
                          const AttentionOptions& options);

/// As check_inputs(), for a cache of keys and values that all queries attend to on every rank.
ProblemShape check_cache(const Transport& transport, const ShardedCache& inputs,
                         const AttentionOptions& options);

/// Throws InvalidArgument unless there is a rank `root`.
void check_root(const Transport& transport, int root);

/// As check_inputs(), for calls that compute weights again: without packed sequences, dropout and
/// float64.
ProblemShape check_weight_inputs(const Transport& transport, const ShardedInputs& inputs,
                                 const AttentionOptions& options);

/// Throws InvalidArgument unless `lse` has the rows of this rank.
void check_lse(const ShardedInputs& inputs, const ProblemShape& shape, const TensorView& lse);

/// Returns the problem of this rank's own queries and keys, for checks of outputs.
engine::Problem own_problem(const ShardedInputs& inputs, const AttentionOptions& options,
                            const ProblemShape& shape);

/// Returns the type, shape and a digest of the elements.
std::string text_of_contents(const TensorView& tensor);

/// Returns the arguments that must be the same on all ranks; they must be valid. `wanted` names the
/// outputs that are wanted.
std::vector<SharedArgument> shared_arguments(const char* operation, const ShardedInputs& inputs,
                                             const AttentionOptions& options,
                                             const std::string& wanted);

}  // namespace fovea::distributed
