// SPDX-License-Identifier: Apache-2.0
//
// Number of query heads that are computed together (heads_together.h).

#include "engine/call/heads_together.h"

#include <algorithm>

#include "kernels/simd/target.h"

namespace fovea::engine {
namespace {

// Heads are computed together if that leaves less than this part of the lanes to compute, and if
// enough items remain for the threads: one per kProductsPerItem multiply-adds of the sequence, at
// most kEnoughItems. Vectors of few rows take much longer per row than panels of several vectors.
constexpr double kWorthTogether = 0.9;
constexpr double kProductsPerItem = 4 << 20;
constexpr double kEnoughItems = 8;
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

/// The heads of one key head in parts, and the lanes that these take together.
struct Division {
  std::int64_t parts = 0, lanes = 0;
};

Division divide_heads(const Problem& problem, const SequenceSpan& span, std::int64_t vector) {
  const std::int64_t group = heads_of_a_key_head(problem.shape);
  const Division alone{group, group * lanes(span.q_len, vector)};
  const double products = static_cast<double>(problem.shape.q_heads * span.q_len) *
                          static_cast<double>(span.kv_len) *
                          static_cast<double>(problem.head_dim() + problem.value_dim());
  const auto items =
      static_cast<std::int64_t>(std::clamp(products / kProductsPerItem, 1.0, kEnoughItems));
  Division best = alone;
  std::int64_t parts = group;
  for (std::int64_t most = 2; most <= std::min(group, kMaxRowsInPlace / span.q_len); ++most) {
    const std::int64_t before = parts;
    parts = (group + most - 1) / most;
    if (parts == before) continue;
    if (problem.shape.kv_heads * parts < items) break;
    const std::int64_t heads = group / parts, larger = group % parts;  // parts with one head more
    const std::int64_t taken = larger * lanes((heads + 1) * span.q_len, vector) +
                               (parts - larger) * lanes(heads * span.q_len, vector);
    if (taken < best.lanes) best = {parts, taken};
  }
  const bool worth =
      static_cast<double>(best.lanes) < kWorthTogether * static_cast<double>(alone.lanes);
  return worth ? best : alone;
}

/// Returns whether several heads may be computed together.
bool may_be_together(const Problem& problem, const SequenceSpan& span, std::int64_t vector) {
  return span.q_len > 0 && vector > 0 && heads_of_a_key_head(problem.shape) > 1 &&
         scores_are_plain(problem.options);
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

std::int64_t parts_of_heads(const Problem& problem, const SequenceSpan& span, std::int64_t vector) {
  return may_be_together(problem, span, vector) ? divide_heads(problem, span, vector).parts
                                                : heads_of_a_key_head(problem.shape);
}

bool heads_fill_vectors(const Problem& problem, const SequenceSpan& span) {
  if (span.q_len <= 1 || span.kv_len * problem.head_dim() > kMaxKeyNumbers) return false;
  const std::int64_t vector = forward_sizes(problem).in_place_vector;
  if (!may_be_together(problem, span, vector)) return false;
  const Division division = divide_heads(problem, span, vector);
  const std::int64_t group = heads_of_a_key_head(problem.shape);
  return division.parts < group &&
         static_cast<double>(group * span.q_len) >= kFilled * static_cast<double>(division.lanes);
}

}  // namespace fovea::engine
