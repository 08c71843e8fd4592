// SPDX-License-Identifier: Apache-2.0
//
// Comparison of sampled rows with the reference (verify.h).

#include "cli/attend/verify.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "fovea/reference.h"

#include "problem/broadcast.h"
#include "problem/part.h"
#include "problem/problem_shape.h"
#include "reference/comparison.h"

namespace fovea::cli {
namespace {

using Clock = std::chrono::steady_clock;
using reference::Row;

/// Returns the least precise type among the stored tensors of the call.
DType coarsest(const AttendInputs& inputs, const TensorView& context) {
  DType type = inputs.query.view.dtype();
  const auto consider = [&](DType other) {
    if (rounding_of(other).relative > rounding_of(type).relative) type = other;
  };
  consider(inputs.key.view.dtype());
  consider(inputs.value.view.dtype());
  if (context.defined()) consider(context.dtype());
  return type;
}

std::vector<Row> rows_to_verify(const AttendInputs& inputs) {
  constexpr std::int64_t kMaxRows = 64;
  constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 27;  // elements to process, in seconds
  const ProblemShape& shape = inputs.shape;
  const std::int64_t all = shape.batch * shape.q_heads * shape.q_len;
  if (all == 0) return {};
  const std::int64_t row_cost =
      std::max<std::int64_t>(shape.kv_len * (inputs.head_dim() + inputs.value_dim()), 1);
  const std::int64_t count = std::min(
      all,
      std::clamp<std::int64_t>(kMaxNumbers / row_cost, std::min<std::int64_t>(all, 2), kMaxRows));
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const double part = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0.0;
    const auto number = std::min(
        static_cast<std::int64_t>(std::llround(part * static_cast<double>(all - 1))), all - 1);
    rows.push_back({.batch = number / (shape.q_heads * shape.q_len),
                    .head = number / shape.q_len % shape.q_heads,
                    .query = number % shape.q_len});
  }
  return rows;
}

/// Magnitudes that bound the effect of rounding on a row (docs/numerics.md, "Bounds").
struct Sizes {
  double score = 0.0;     ///< sum of |products| of a score and |terms added to it|
  double weighted = 0.0;  ///< sum_j w_j |v_j|
  double context = 0.0;

  static void include(double& size, double other) {
    if (std::isfinite(other) && other > size) size = other;
  }
};

/// The largest score that the engine distinguishes (docs/numerics.md, "Nan and infinity").
constexpr double kMaxScore = std::numeric_limits<float>::max() / std::numbers::log2e;

/// Returns the magnitude that a relative table and sinks add to scores.
double size_of_terms(const ScoreOptions& score) {
  double size = 0.0;
  if (score.relative) size += largest_finite(score.relative->table);
  double largest_sink = 0.0;
  for (const double sink : score.sinks) {
    if (std::isfinite(sink)) largest_sink = std::max(largest_sink, std::abs(sink));
  }
  return size + largest_sink;
}

/// A head converted to float64, for comparing its rows.
class HeadCheck {
 public:
  HeadCheck(const AttendInputs& inputs, const ProblemPart& head)
      : options_(head.options()),
        stored_{head.queries_of(inputs.query.view), head.keys_of(inputs.key.view),
                head.keys_of(inputs.value.view)},
        query_(convert(stored_.query, DType::kFloat64)),
        key_(convert(stored_.key, DType::kFloat64)),
        value_(convert(stored_.value, DType::kFloat64)) {}

  reference::Rows oracle(std::span<const Row> rows) const {
    return reference::attention_rows({query_, key_, value_}, options_, rows);
  }
  reference::Rows naive(std::span<const Row> rows, DType type) const {
    return reference::attention_rows(stored_, options_, rows, {.arithmetic = type});
  }

  /// Returns the magnitudes of `row`, which is row `number` of the oracle's result.
  Sizes measure(const Row& row, std::int64_t number, const reference::Rows& oracle) const;

 private:
  double score_size(const ScorePosition& at) const;

  AttentionOptions options_;
  reference::Inputs stored_;
  Tensor query_;
  Tensor key_;
  Tensor value_;
};

double HeadCheck::score_size(const ScorePosition& at) const {
  const auto dim = static_cast<std::size_t>(query_.extent(3));
  const double* const q = query_.span<double>().data() + static_cast<std::size_t>(at.query) * dim;
  const double* const k = key_.span<double>().data() + static_cast<std::size_t>(at.key) * dim;
  double size = 0.0;
  for (std::size_t i = 0; i < dim; ++i) size += std::abs(q[i] * k[i]);
  const ScoreOptions& terms = options_.score;
  size *= std::abs(score_scale(terms, query_.extent(3)));
  if (terms.softcap > 0.0) size += 5.0 * std::min(terms.softcap, size);
  if (terms.bias.defined()) size += std::abs(broadcast_value(terms.bias, at));
  if (terms.alibi) {
    size +=
        std::abs(terms.alibi->slopes.front() * static_cast<double>(at.query + at.offset - at.key));
  }
  return size;
}

Sizes HeadCheck::measure(const Row& row, std::int64_t number, const reference::Rows& oracle) const {
  // Keys with a smaller share of the largest weight have no effect beyond rounding.
  constexpr double kMinShare = 0x1p-24;
  Sizes sizes;
  const TensorView weights = oracle.weights.view()[number];
  const double least = kMinShare * largest_finite(weights);
  const auto dim = static_cast<std::size_t>(value_.extent(3));
  std::vector<double> weighted(dim);
  ScorePosition at = {.query = row.query, .offset = options_.alignment.values().front()};
  for (at.key = 0; at.key < key_.extent(2); ++at.key) {
    const double weight = weights.at<double>({at.key});
    if (weight > least) Sizes::include(sizes.score, score_size(at));
    const double* const value =
        value_.span<double>().data() + static_cast<std::size_t>(at.key) * dim;
    if (!(weight > 0.0)) continue;
    for (std::size_t i = 0; i < dim; ++i) weighted[i] += weight * std::abs(value[i]);
  }
  for (const double sum : weighted) Sizes::include(sizes.weighted, sum);
  Sizes::include(sizes.context, largest_finite(oracle.context.view()[number]));
  sizes.score += size_of_terms(options_.score);
  // Scores at the lower end of the float range are equal in any precision.
  if (sizes.score > kMaxScore) sizes.score = 0.0;
  return sizes;
}

/// Returns a row of a result in the shape of the reference's rows.
TensorView row_of(const TensorView& tensor, const Row& row) {
  return tensor[row.batch][row.head][row.query];
}

/// The tolerance for rounding, in addition to the error of the naive computation.
class Allowance {
 public:
  Allowance(const AttendInputs& inputs, DType coarsest)
      : fine_(rounding_of(inputs.is_float64() ? DType::kFloat64 : DType::kFloat32).relative),
        stored_(rounding_of(coarsest)),
        root_(std::sqrt(static_cast<double>(inputs.head_dim()))),
        log_keys_(std::log(static_cast<double>(std::max<std::int64_t>(inputs.shape.kv_len, 1)))) {}

  double of_context(const Sizes& row) const {
    // Relative errors e_j of the weights change it by sum_j w_j e_j (v_j - context).
    const double allowance = (2.0 * fine_ + of_score(row)) * 2.0 * row.weighted + stored_.near_zero;
    if (stored_.relative <= fine_) return allowance;
    return allowance + stored_.relative / 2.0 * (row.weighted + row.context);
  }
  double of_lse(const Sizes& row) const { return 2.0 * fine_ * (1.0 + log_keys_) + of_score(row); }

 private:
  /// Two roundings, plus sqrt(head_dim) roundings for the sum of products.
  double of_score(const Sizes& row) const { return fine_ * row.score * (2.0 + root_); }

  double fine_;
  Rounding stored_;
  double root_;
  double log_keys_;
};

/// Compares the rows of one output. The naive error is the largest of all rows, since that of a
/// single row can be near zero by chance.
class Judge {
 public:
  void add(const TensorView& result, const TensorView& naive, const TensorView& oracle,
           double allowance) {
    Deviations row;
    row.add(result, naive, oracle);
    naive_ = std::max(naive_, row.naive);
    rows_.push_back({.error = row.result, .allowed = allowance});
  }

  /// Returns the row with the largest error, among those that exceed their tolerance if there are
  /// any.
  AttendError verdict() const {
    AttendError worst = {.error = 0.0, .allowed = naive_};
    for (AttendError row : rows_) {
      row.allowed += naive_;
      const bool worse = row.fits() == worst.fits() ? row.error >= worst.error : !row.fits();
      if (worse) worst = row;
    }
    return worst;
  }

 private:
  double naive_ = 0.0;
  std::vector<AttendError> rows_;
};

}  // namespace

AttendVerdict verify(const AttendInputs& inputs, const AttendRules& rules,
                     const AttentionOutputs& outputs, Progress& progress) {
  constexpr std::chrono::milliseconds kPatience(500);
  const Clock::time_point start = Clock::now();
  const bool empty = outputs.context.size() == 0 && outputs.lse.size() == 0;
  const std::vector<Row> rows = empty ? std::vector<Row>() : rows_to_verify(inputs);
  const DType type = coarsest(inputs, outputs.context);
  const Allowance allowance(inputs, type);
  const AttentionOptions whole = rules.options();
  Judge context, lse;
  for (auto first = rows.begin(); first != rows.end();) {
    const auto next = std::find_if(first, rows.end(), [&](const Row& row) {
      return row.batch != first->batch || row.head != first->head;
    });
    if (Clock::now() - start > kPatience) {
      progress.show(fmt::format("verifying row {} of {}", first - rows.begin() + 1, rows.size()));
    }
    const HeadCheck head(
        inputs,
        ProblemPart(whole, inputs.shape,
                    {.item = first->batch, .head = first->head, .queries = inputs.shape.q_len}));
    std::vector<Row> own;
    for (auto row = first; row != next; ++row) own.push_back({.query = row->query});
    const reference::Rows oracle = head.oracle(own);
    const reference::Rows naive = head.naive(own, type);
    for (std::int64_t i = 0; i < next - first; ++i) {
      const Row& row = *(first + i);
      const Sizes sizes = head.measure(row, i, oracle);
      if (outputs.context.defined()) {
        context.add(row_of(outputs.context, row), naive.context.view()[i], oracle.context.view()[i],
                    allowance.of_context(sizes));
      }
      const double right = oracle.lse.at<double>({i});
      const bool counts = !std::isfinite(right) || std::abs(right) <= kMaxScore;
      if (outputs.lse.defined() && counts) {
        lse.add(row_of(outputs.lse, row), naive.lse.view()[i], oracle.lse.view()[i],
                allowance.of_lse(sizes));
      }
    }
    first = next;
  }
  progress.clear();
  AttendVerdict verdict;
  verdict.rows = static_cast<std::int64_t>(rows.size());
  if (rows.empty()) return verdict;
  if (outputs.context.defined()) verdict.context = context.verdict();
  if (outputs.lse.defined()) verdict.lse = lse.verdict();
  return verdict;
}

}  // namespace fovea::cli
