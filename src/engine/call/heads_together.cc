// SPDX-License-Identifier: Apache-2.0
//
// Number of query heads that are computed together (heads_together.h).

#include "engine/call/heads_together.h"

#include <algorithm>

#include "kernels/simd/target.h"

namespace fovea::engine {
namespace {

// An item has more heads if that leaves at most this part of the lanes to compute, and if at least
// that many items per sequence remain, for many threads.
constexpr double kWorthMoreHeads = 0.9;
constexpr std::int64_t kMinItems = 8;
// Fewer rows take as long, where vectors are shorter.
constexpr std::int64_t kMinRows = 16;
// Decoding is slower if at least this part of the lanes is filled. But it divides longer keys into
// parts, which many threads can share.
constexpr double kFilled = 0.8;
constexpr std::int64_t kMaxKeyNumbers = 512 << 10;

/// Returns the lanes of the vectors that hold `rows` rows.
std::int64_t lanes(std::int64_t rows, std::int64_t vector) {
  return std::max((rows + vector - 1) / vector * vector, kMinRows);
}

/// Returns whether a score depends on nothing but the query, the key and the mask.
bool scores_are_plain(const AttentionOptions& options) {
  const ScoreOptions& score = options.score;
  return !score.bias.defined() && !score.alibi && !score.relative && score.sinks.empty() &&
         score.custom.tile == nullptr && options.dropout.probability == 0;
}

}  // namespace

kernels::ForwardSizes forward_sizes(const Problem& problem, const kernels::LensSetup& lenses) {
  kernels::choose_target();
  return kernels::forward_sizes(
      {.options = &problem.options,
       .types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()},
       .head_dim = problem.head_dim(),
       .lenses = lenses});
}

std::int64_t heads_together(const Problem& problem, std::int64_t q_len, std::int64_t vector) {
  const ProblemShape& shape = problem.shape;
  const std::int64_t group = shape.kv_heads > 0 ? shape.q_heads / shape.kv_heads : 1;
  if (group == 1 || q_len == 0 || vector == 0 || !scores_are_plain(problem.options)) return 1;
  const std::int64_t most = std::min({group, kMaxRowsInPlace / q_len, shape.q_heads / kMinItems});
  const auto cost = [&](std::int64_t heads) {
    return static_cast<double>(lanes(heads * q_len, vector)) / static_cast<double>(heads);
  };
  std::int64_t best = 1;
  for (std::int64_t heads = 2; heads <= most; ++heads) {
    if (group % heads == 0 && cost(heads) < kWorthMoreHeads * cost(best)) best = heads;
  }
  return best;
}

bool heads_fill_vectors(const Problem& problem, const SequenceSpan& span) {
  if (span.q_len <= 1 || span.kv_len * problem.head_dim() > kMaxKeyNumbers) return false;
  const std::int64_t vector = forward_sizes(problem).in_place_vector;
  const std::int64_t heads = heads_together(problem, span.q_len, vector);
  const std::int64_t rows = heads * span.q_len;
  return heads > 1 &&
         static_cast<double>(rows) >= kFilled * static_cast<double>(lanes(rows, vector));
}

}  // namespace fovea::engine
