// SPDX-License-Identifier: Apache-2.0
//
// The divergence of two attentions (fovea/analysis.h). A work item is a head with a block of
// queries; the sums of its keys are added part by part, so that they depend on no other item.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "fovea/analysis.h"

#include "core/fail.h"
#include "engine/call/parallel.h"
#include "recording/row_kernels.h"
#include "recording/tiles.h"

namespace fovea {
namespace recording {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void require_same_shape(const RecordedAttention& first, const RecordedAttention& second) {
  const ProblemShape a = first.shape(), b = second.shape();
  const auto require = [](const char* what, std::int64_t expected, std::int64_t got) {
    if (got == expected) return;
    fail_argument("second", "expected {} {} as the first attention has, got {}", what, expected,
                  got);
  };
  require("batch", a.batch, b.batch);
  require("q_heads", a.q_heads, b.q_heads);
  require("q_len", a.q_len, b.q_len);
  require("kv_len", a.kv_len, b.kv_len);
  for (std::int64_t head = 0; head < a.q_heads; ++head) {
    if (first.model_head(head) == second.model_head(head)) continue;
    fail_argument("second", "expected head {} of the model as the first attention has, got head {}",
                  first.model_head(head), second.model_head(head));
  }
}

/// Returns the share of a row that its sink takes.
double sink_share(const RecordedAttention& attention, const WeightTile& queries,
                  std::int64_t query) {
  const std::vector<double>& sinks = attention.options.score.sinks;
  if (sinks.empty()) return 0.0;
  const double lse = attention.lse->value({queries.batch, queries.head, query});
  return std::exp(sinks[static_cast<std::size_t>(queries.head)] - lse);
}

/// Returns the term of one outcome.
double outcome_term(double p, double q) {
  const auto half = [&](double share) {
    return share > 0.0 ? 0.5 * share * std::log(2.0 * share / (p + q)) : 0.0;
  };
  return half(p) + half(q);
}

/// Scratch memory of a thread.
struct Pair {
  PartWeights first, second;
};

/// Computes the rows of one item. Sets `spoilt` if a row of either attention is NaN.
void find_rows(const RecordedAttention& first, const RecordedAttention& second,
               const WeightTile& queries, Pair& pair, AttentionDivergence& to, char& spoilt) {
  const IndexRange a = keys_of_queries(first, queries), b = keys_of_queries(second, queries);
  IndexRange keys = {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  if (a.size() == 0) keys = b;
  if (b.size() == 0) keys = a;
  std::vector<DivergenceSums> rows(static_cast<std::size_t>(queries.queries));
  for_each_part(queries, keys, [&](const WeightTile& part) {
    pair.first.compute(part);
    pair.second.compute(part);
    for (std::int64_t i = 0; i < part.queries; ++i) {
      const DivergenceSums sums = divergence_of(pair.first.row(i), pair.second.row(i), part.keys);
      DivergenceSums& row = rows[static_cast<std::size_t>(i)];
      row.divergence += sums.divergence;
      row.first += sums.first;
      row.second += sums.second;
    }
  });
  for (std::int64_t i = 0; i < queries.queries; ++i) {
    const DivergenceSums& row = rows[static_cast<std::size_t>(i)];
    const std::int64_t query = queries.first_query + i;
    double divergence = kNan;
    if (std::isnan(row.divergence)) {
      spoilt = 1;
    } else if (row.first > 0.0 && row.second > 0.0) {
      divergence = row.divergence + outcome_term(sink_share(first, queries, query),
                                                 sink_share(second, queries, query));
    }
    to.rows.at<float>({queries.batch, queries.head, query}) = static_cast<float>(divergence);
  }
}

}  // namespace
}  // namespace recording

AttentionDivergence attention_divergence(const RecordedAttention& first,
                                         const RecordedAttention& second,
                                         const Execution& execution) {
  using namespace recording;
  require_recorded(first);
  require_recorded(second);
  require_same_shape(first, second);
  const ProblemShape shape = first.shape();
  AttentionDivergence result = {
      .rows = Tensor(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len}),
      .mean = Tensor(DType::kFloat64, {shape.batch, shape.q_heads}),
      .largest = Tensor(DType::kFloat64, {shape.batch, shape.q_heads}),
      .largest_query = Tensor(DType::kInt64, {shape.batch, shape.q_heads})};
  const std::int64_t blocks = (shape.q_len + kPartQueries - 1) / kPartQueries;
  const std::int64_t items = shape.batch * shape.q_heads * blocks;
  const int threads = engine::thread_count(execution, items);
  std::vector<Pair> pairs;
  for (int thread = 0; thread < threads; ++thread) {
    pairs.push_back({PartWeights(first, execution), PartWeights(second, execution)});
  }
  std::vector<char> spoilt(static_cast<std::size_t>(items));
  engine::for_each_item(execution, threads, items, [&](std::int64_t item, int thread) {
    WeightTile queries = {.batch = item / blocks / shape.q_heads,
                          .head = item / blocks % shape.q_heads,
                          .first_query = item % blocks * kPartQueries};
    queries.queries = std::min(kPartQueries, shape.q_len - queries.first_query);
    find_rows(first, second, queries, pairs[static_cast<std::size_t>(thread)], result,
              spoilt[static_cast<std::size_t>(item)]);
  });
  for (std::int64_t head = 0; head < shape.batch * shape.q_heads; ++head) {
    const Index at = {head / shape.q_heads, head % shape.q_heads};
    bool is_nan = false;
    for (std::int64_t block = 0; block < blocks; ++block) {
      is_nan = is_nan || spoilt[static_cast<std::size_t>(head * blocks + block)] != 0;
    }
    double sum = 0.0, largest = -1.0;
    std::int64_t rows = 0, largest_query = -1;
    for (std::int64_t query = 0; query < shape.q_len && !is_nan; ++query) {
      const auto row = static_cast<double>(result.rows.at<float>({at[0], at[1], query}));
      if (std::isnan(row)) continue;
      sum += row;
      ++rows;
      if (row > largest) {
        largest = row;
        largest_query = query;
      }
    }
    result.mean.at<double>(at) = rows > 0 ? sum / static_cast<double>(rows) : kNan;
    result.largest.at<double>(at) = rows > 0 ? largest : kNan;
    result.largest_query.at<std::int64_t>(at) = largest_query;
  }
  return result;
}

}  // namespace fovea
