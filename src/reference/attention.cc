// SPDX-License-Identifier: Apache-2.0
//
// The reference's functions (fovea/reference.h): all steps of a problem, or selected rows of it.
// The computation is in row_attention.h.

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "fovea/reference.h"

#include "reference/contiguous.h"
#include "reference/problem.h"
#include "reference/row_attention.h"

namespace fovea::reference {
namespace {

/// Copies the numbers to a tensor, starting at element `first`. Skips an undefined tensor.
template <class Real>
void store(Tensor& tensor, std::int64_t first, const std::vector<Real>& numbers) {
  if (!tensor.defined()) return;
  std::copy(numbers.begin(), numbers.end(), tensor.span<Real>().begin() + first);
}

template <class Real>
Steps all_steps(const Problem& problem) {
  const ProblemShape& p = problem.shape;
  const Shape per_row{p.batch, p.q_heads, p.q_len};
  const auto make = [&](bool present, std::int64_t last, std::int64_t after = -1) {
    if (!present) return Tensor();
    Shape shape = per_row;
    shape.push_back(last);
    if (after >= 0) shape.push_back(after);
    return Tensor(dtype_of<Real>(), shape);
  };
  // With packed sequences, scores across sequences are never computed, so they keep their initial
  // value, -inf.
  const auto make_scores = [&](bool present) {
    Tensor scores = make(present, p.kv_len);
    if (present && p.sequences > 0) {
      std::ranges::fill(scores.span<Real>(), -std::numeric_limits<Real>::infinity());
    }
    return scores;
  };
  const bool masks = !problem.options.mask.allows_all() || p.sequences > 0;
  Steps steps;
  steps.hidden = make(problem.hidden_dim > 0, p.kv_len, problem.hidden_dim);
  steps.scores = make_scores(true);
  steps.scaled_scores = make_scores(problem.scale() != 1.0);
  steps.softcapped_scores = make_scores(problem.options.score.softcap > 0);
  steps.custom_scores = make_scores(problem.options.score.custom.one != nullptr);
  steps.biased_scores = make_scores(has_bias(problem.options.score));
  steps.masked_scores = make_scores(masks);
  steps.weights = make(true, p.kv_len);
  steps.dropped_weights = make(problem.has_dropout(), p.kv_len);
  steps.row_sums = Tensor(dtype_of<Real>(), per_row);
  steps.lse = Tensor(dtype_of<Real>(), per_row);
  Shape pairs = per_row;
  pairs.push_back(p.kv_len);
  steps.visible = Tensor(DType::kBool, pairs);
  steps.context = make(true, problem.value_dim);

  const RowAttention<Real> attention(problem);
  std::int64_t number = 0;
  for_each_index(per_row, [&](const Index& at) {
    const RowSteps<Real> row = attention.attend({at[0], at[1], at[2]});
    const std::int64_t first_key = number * p.kv_len + row.place.first.key_start;
    store(steps.hidden, first_key * problem.hidden_dim, row.hidden);
    store(steps.scores, first_key, row.scores);
    store(steps.scaled_scores, first_key, row.scaled);
    store(steps.softcapped_scores, first_key, row.softcapped);
    store(steps.custom_scores, first_key, row.custom);
    store(steps.biased_scores, first_key, row.biased);
    store(steps.masked_scores, first_key, row.masked);
    store(steps.weights, first_key, row.weights);
    store(steps.dropped_weights, first_key, row.dropped);
    std::copy(row.visible.begin(), row.visible.end(),
              steps.visible.span<bool>().begin() + first_key);
    store(steps.context, number * problem.value_dim, row.context);
    steps.row_sums.at<Real>(at) = row.row_sum;
    steps.lse.at<Real>(at) = row.lse;
    ++number;
  });
  return steps;
}

template <class Real>
Rows selected_rows(const Problem& problem, std::span<const Row> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const Shape pairs{count, problem.shape.kv_len};
  Rows result{Tensor(dtype_of<Real>(), {count, problem.value_dim}),
              Tensor(dtype_of<Real>(), {count}), Tensor(dtype_of<Real>(), pairs),
              Tensor(dtype_of<Real>(), pairs)};
  // Of the keys of other packed sequences.
  std::ranges::fill(result.scores.span<Real>(), -std::numeric_limits<Real>::infinity());
  const RowAttention<Real> attention(problem);
  for (std::int64_t number = 0; number < count; ++number) {
    const RowSteps<Real> row = attention.attend(rows[static_cast<std::size_t>(number)]);
    store(result.context, number * problem.value_dim, row.context);
    const std::int64_t first_key = number * problem.shape.kv_len + row.place.first.key_start;
    store(result.weights, first_key, row.weights);
    store(result.scores, first_key, row.masked);
    result.lse.at<Real>({number}) = row.lse;
    result.places.push_back(row.place.first);
  }
  return result;
}

}  // namespace

Tensor project(const TensorView& rows, const TensorView& weights, DType arithmetic) {
  require(rows.defined() && rows.rank() > 0 && weights.defined() && weights.rank() == 2 &&
              weights.shape()[0] == rows.extent(rows.rank() - 1),
          fmt::format("project: expected rows [..., dim] and weights [dim, columns], got {} and {}",
                      rows.defined() ? to_string(rows.shape()) : "nothing",
                      weights.defined() ? to_string(weights.shape()) : "nothing"));
  require(arithmetic == DType::kFloat64 || arithmetic == DType::kFloat32,
          fmt::format("arithmetic: expected float64 or float32, got {}", dtype_name(arithmetic)));
  return arithmetic == DType::kFloat64
             ? multiply(Contiguous<double>(rows), Contiguous<double>(weights))
             : multiply(Contiguous<float>(rows), Contiguous<float>(weights));
}

Steps attention_steps(const Inputs& inputs, const AttentionOptions& options,
                      const ReferenceOptions& how) {
  const Problem problem = make_problem(inputs, options, how);
  return how.arithmetic == DType::kFloat64 ? all_steps<double>(problem) : all_steps<float>(problem);
}

Rows attention_rows(const Inputs& inputs, const AttentionOptions& options,
                    std::span<const Row> rows, const ReferenceOptions& how) {
  const Problem problem = make_problem(inputs, options, how);
  const ProblemShape& shape = problem.shape;
  for (const Row& row : rows) {
    require(row.batch >= 0 && row.batch < shape.batch && row.head >= 0 &&
                row.head < shape.q_heads && row.query >= 0 && row.query < shape.q_len,
            fmt::format("row: expected [batch, head, query] within [{}, {}, {}], got [{}, {}, {}]",
                        shape.batch, shape.q_heads, shape.q_len, row.batch, row.head, row.query));
  }
  return how.arithmetic == DType::kFloat64 ? selected_rows<double>(problem, rows)
                                           : selected_rows<float>(problem, rows);
}

}  // namespace fovea::reference
