// SPDX-License-Identifier: Apache-2.0
//
// Number of query heads that are computed together (heads_together.h).

#include "engine/call/heads_together.h"

#include <algorithm>

#include "kernels/simd/target.h"

namespace fovea::engine {
namespace {

// Heads are computed together if that takes less than this part of the time, and if enough items
// remain for the threads: one per kProductsPerItem multiply-adds of the sequence, at most
// kEnoughItems.
constexpr double kWorthTogether = 0.9;
constexpr double kProductsPerItem = 4 << 20;
constexpr double kEnoughItems = 8;
// Fewer rows take as long, where vectors are shorter.
constexpr std::int64_t kMinRows = 16;
// The least share of lanes that hold a row for which tiles are faster than decoding. kFilledOf8 is
// the share for vectors of 8 lanes, kFilled for all others.
constexpr double kFilled = 0.8, kFilledOf8 = 0.75;

/// Returns the lanes of the vectors that hold `rows` rows.
std::int64_t lanes(std::int64_t rows, std::int64_t vector) {
  return std::max((rows + vector - 1) / vector * vector, kMinRows);
}

/// Returns the time of `rows` rows, as a multiple of that of a vector in a full panel: a full panel
/// takes 3, two vectors 2.25, and one 1.5, as less is computed per key that is read. Measured on
/// Intel's CPUs before kernels/tile/quads-inl.h; its choices are still the fastest
/// (docs/benchmarks.md).
double time_of(std::int64_t rows, std::int64_t vector) {
  constexpr std::int64_t kVectorsOfPanel = 3;
  const std::int64_t vectors = lanes(rows, vector) / vector;
  const std::int64_t rest = vectors % kVectorsOfPanel;
  return static_cast<double>(vectors) + (rest > 0 ? 0.5 / static_cast<double>(rest) : 0.0);
}

/// Returns the sum of `of(heads)` over the parts of a group. Parts differ by at most one head.
template <class Of>
auto sum_over_parts(std::int64_t group, std::int64_t parts, const Of& of) {
  const std::int64_t heads = group / parts, larger = group % parts;
  decltype(of(heads)) sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += of(part < larger ? heads + 1 : heads);
  return sum;
}

/// parts_of_heads() for heads that may be computed together.
std::int64_t divide_heads(const Problem& problem, const SequenceSpan& span, std::int64_t vector) {
  const std::int64_t group = heads_of_a_key_head(problem.shape);
  const auto time_of_parts = [&](std::int64_t parts) {
    return sum_over_parts(group, parts,
                          [&](std::int64_t heads) { return time_of(heads * span.q_len, vector); });
  };
  const double products = static_cast<double>(problem.shape.q_heads * span.q_len) *
                          static_cast<double>(span.kv_len) *
                          static_cast<double>(problem.head_dim() + problem.value_dim());
  const auto items =
      static_cast<std::int64_t>(std::clamp(products / kProductsPerItem, 1.0, kEnoughItems));
  std::int64_t best = group;
  double best_time = kWorthTogether * time_of_parts(group);
  std::int64_t parts = group;
  for (std::int64_t most = 2; most <= std::min(group, kMaxRowsInPlace / span.q_len); ++most) {
    const std::int64_t before = parts;
    parts = (group + most - 1) / most;
    if (parts == before) continue;
    if (problem.shape.kv_heads * parts < items) break;
    const double time = time_of_parts(parts);
    if (time < best_time) {
      best = parts;
      best_time = time;
    }
  }
  return best;
}

}  // namespace

bool scores_are_plain(const AttentionOptions& options) {
  const ScoreOptions& score = options.score;
  return !score.bias.defined() && !score.alibi && !score.relative && score.sinks.empty() &&
         score.custom.tile == nullptr && options.dropout.probability == 0;
}

kernels::ForwardSizes forward_sizes(const Problem& problem, const kernels::LensSetup& lenses) {
  kernels::choose_target();
  return kernels::forward_sizes(
      {.options = &problem.options,
       .types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()},
       .head_dim = problem.head_dim(),
       .lenses = lenses});
}

std::int64_t parts_of_heads(const Problem& problem, const SequenceSpan& span, std::int64_t vector) {
  const std::int64_t group = heads_of_a_key_head(problem.shape);
  if (group <= 1 || span.q_len == 0 || vector == 0 || !scores_are_plain(problem.options)) {
    return group;
  }
  return divide_heads(problem, span, vector);
}

bool heads_fill_vectors(const Problem& problem, const SequenceSpan& span) {
  if (span.q_len <= 1) return false;
  const std::int64_t vector = forward_sizes(problem).in_place_vector;
  const std::int64_t group = heads_of_a_key_head(problem.shape);
  const std::int64_t parts = parts_of_heads(problem, span, vector);
  if (parts == group) return false;
  const std::int64_t key_bytes =
      span.kv_len * problem.head_dim() * static_cast<std::int64_t>(dtype_size(problem.key.dtype()));
  if (key_bytes > parts * kPartBytes) return false;  // decoding has more items
  const std::int64_t taken = sum_over_parts(
      group, parts, [&](std::int64_t heads) { return lanes(heads * span.q_len, vector); });
  const double filled = vector == 8 ? kFilledOf8 : kFilled;
  return static_cast<double>(group * span.q_len) >= filled * static_cast<double>(taken);
}

}  // namespace fovea::engine
