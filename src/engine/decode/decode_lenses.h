// SPDX-License-Identifier: Apache-2.0
//
// The lenses of decoding: keys are read once more, and the weights of a row, which is there as a
// whole, are looked at.

#pragma once

#include <cstdint>

#include "fovea/lenses.h"
#include "fovea/tensor.h"

#include "engine/call/problem.h"
#include "engine/decode/decode_plan.h"

namespace fovea::engine {

/// With more queries than this in all, which each read all keys again, the fused pass is faster.
inline constexpr std::int64_t kMaxWatchedQueries = 4;

/// Fills valid lenses of all rows, whose lse is known: float32, [batch, q_heads, q_len]. The same
/// bits for any number of threads. Memory: a row of weights for each query head of a group and
/// thread.
void watch_decoding(const Problem& problem, const Cache& cache, const TensorView& lse,
                    const Lenses& lenses);

}  // namespace fovea::engine
