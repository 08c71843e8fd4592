// SPDX-License-Identifier: Apache-2.0
//
// The lenses of decoding. A second pass over the keys recomputes the weights one row at a time, and
// evaluates the lenses on complete rows.

#pragma once

#include <cstdint>

#include "fovea/lenses.h"
#include "fovea/tensor.h"

#include "engine/call/problem.h"
#include "engine/decode/decode_plan.h"

namespace fovea::engine {

/// Maximum number of queries per sequence for this method. Each query reads all keys again, so with
/// more queries the fused pass is faster.
inline constexpr std::int64_t kMaxWatchedQueries = 4;

/// Fills the lenses of all rows. `lenses` must be valid, and `lse` is float32 [batch, q_heads,
/// q_len]. Results do not depend on the number of threads. Allocates one row of weights per thread
/// for each query head of a group.
void watch_decoding(const Problem& problem, const Cache& cache, const TensorView& lse,
                    const Lenses& lenses);

}  // namespace fovea::engine
