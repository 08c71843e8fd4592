// SPDX-License-Identifier: Apache-2.0
//
// Helpers that call attention_forward, and its accuracy check against the oracle and the naive
// computation.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/exactness.h"
#include "support/random_problem.h"
#include "support/storage.h"

namespace fovea::test {

/// Both outputs: those of the whole problem, or [rows, value_dim] and [rows] for selected rows.
struct Forward {
  Tensor context, lse;
};

inline ProblemShape shape_of(const reference::Inputs& in, const AttentionOptions& options = {}) {
  return {in.query.extent(0), in.query.extent(1), in.key.extent(1),
          in.query.extent(2), in.key.extent(2),   options.sequences.count()};
}

/// A value that no computation here produces, to detect elements that were not written.
inline constexpr float kUntouched = -12345.678F;

/// Returns the type of lse for inputs of type `inputs`.
inline DType lse_type(DType inputs) {
  return inputs == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

/// Runs attention_forward with fresh outputs; the context has type `context`.
inline Forward forward(const reference::Inputs& in, const AttentionOptions& options,
                       DType context) {
  const ProblemShape shape = shape_of(in);
  Forward result{Tensor(context, {shape.batch, shape.q_heads, shape.q_len, in.value.extent(3)}),
                 Tensor(lse_type(in.query.dtype()), {shape.batch, shape.q_heads, shape.q_len})};
  fill(result.context, kUntouched);
  fill(result.lse, kUntouched);
  attention_forward(in.query, in.key, in.value, options, {result.context, result.lse});
  return result;
}
/// Runs attention_forward with fresh outputs; the context has the type of the queries.
inline Forward forward(const reference::Inputs& in, const AttentionOptions& options = {}) {
  return forward(in, options, in.query.dtype());
}

inline testing::AssertionResult same_bits(const Forward& a, const Forward& b) {
  const testing::AssertionResult context = same_bits(a.context, b.context);
  const testing::AssertionResult lse = same_bits(a.lse, b.lse);
  if (context && lse) return context;
  return testing::AssertionFailure()
         << "context: " << context.message() << "; lse: " << lse.message();
}

// ---- rows ---------------------------------------------------------------------------------------

using RowList = std::vector<reference::Row>;

inline RowList all_rows(const ProblemShape& shape) {
  RowList rows;
  for_each_index({shape.batch, shape.q_heads, shape.q_len}, [&](const Index& at) {
    rows.push_back({at[0], at[1], at[2]});
  });
  return rows;
}

/// Returns the first and the last row, and random others.
inline RowList some_rows(const ProblemShape& shape, int count, std::uint64_t seed = 1) {
  RandomState random(seed);
  RowList rows{{0, 0, 0}, {shape.batch - 1, shape.q_heads - 1, shape.q_len - 1}};
  while (static_cast<int>(rows.size()) < count) {
    rows.push_back({random.randint(0, shape.batch), random.randint(0, shape.q_heads),
                    random.randint(0, shape.q_len)});
  }
  return rows;
}

/// Copies selected rows out of the outputs of a whole problem.
inline Forward rows_of(const Forward& whole, std::span<const reference::Row> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t dim = whole.context.extent(3);
  Forward result{Tensor(whole.context.dtype(), {count, dim}), Tensor(whole.lse.dtype(), {count})};
  for (std::int64_t r = 0; r < count; ++r) {
    const reference::Row& row = rows[static_cast<std::size_t>(r)];
    copy_element(whole.lse, {row.batch, row.head, row.query}, result.lse, {r});
    for (std::int64_t c = 0; c < dim; ++c) {
      copy_element(whole.context, {row.batch, row.head, row.query, c}, result.context, {r, c});
    }
  }
  return result;
}

inline Forward by_reference(const reference::Inputs& in, const AttentionOptions& options,
                            std::span<const reference::Row> rows, DType arithmetic) {
  reference::Rows result = reference::attention_rows(in, options, rows, {.arithmetic = arithmetic});
  return {std::move(result.context), std::move(result.lse)};
}

/// Returns the results of the float64 oracle.
inline Forward oracle(const reference::Inputs& in, const AttentionOptions& options,
                      std::span<const reference::Row> rows) {
  return by_reference(in, options, rows, DType::kFloat64);
}

/// Returns the results of the naive computation, in the precision that the engine uses for `type`.
inline Forward naive(const reference::Inputs& in, const AttentionOptions& options,
                     std::span<const reference::Row> rows, DType type = storage()) {
  return by_reference(in, options, rows, type);
}

// ---- the check ----------------------------------------------------------------------------------

/// Returns the largest sum of |q_c k_c| over the rows' scores, times |scale|: the magnitude of the
/// terms of a score.
inline double size_of_products(const reference::Inputs& in, const AttentionOptions& options,
                               std::span<const reference::Row> rows) {
  const Tensor query = convert(in.query, DType::kFloat32);
  const Tensor key = convert(in.key, DType::kFloat32);
  const ProblemShape shape = shape_of(in);
  const auto dim = static_cast<std::size_t>(query.extent(3));
  if (dim == 0 || shape.kv_len == 0) return 0.0;
  double largest = 0.0;
  for (const reference::Row& row : rows) {
    const std::int64_t kv_head = row.head / (shape.q_heads / shape.kv_heads);
    const std::int64_t q_row = (row.batch * shape.q_heads + row.head) * shape.q_len + row.query;
    const std::int64_t k_row = (row.batch * shape.kv_heads + kv_head) * shape.kv_len;
    const float* const q = query.span<float>().data() + static_cast<std::size_t>(q_row) * dim;
    const float* k = key.span<float>().data() + static_cast<std::size_t>(k_row) * dim;
    for (std::int64_t j = 0; j < shape.kv_len; ++j, k += dim) {
      float sum = 0.0F;
      for (std::size_t c = 0; c < dim; ++c) sum += std::abs(q[c] * k[c]);
      if (std::isfinite(sum)) largest = std::max(largest, static_cast<double>(sum));
    }
  }
  const double scale = options.score.scale.value_or(1.0 / std::sqrt(static_cast<double>(dim)));
  return largest * std::abs(scale);
}

/// Returns the largest finite magnitude.
inline double size_of(const TensorView& tensor) {
  double largest = 0.0;
  for_each_index(tensor.shape(), [&](const Index& at) {
    const double x = std::abs(tensor.value(at));
    if (std::isfinite(x)) largest = std::max(largest, x);
  });
  return largest;
}

/// Returns a bound on the magnitude of the biases added to a score, plus the sum of the sinks.
inline double size_of_biases(const ProblemShape& shape, const AttentionOptions& options) {
  const ScoreOptions& score = options.score;
  double size = 0.0;
  if (score.bias.defined()) size += size_of(score.bias);
  if (score.relative) size += size_of(score.relative->table);
  if (score.alibi) {
    double slope = 0.0;
    for (std::int64_t h = 0; h < shape.q_heads; ++h) {
      slope = std::max(slope, std::abs(score.alibi->slopes.empty()
                                           ? default_alibi_slope(h, shape.q_heads)
                                           : score.alibi->slopes[static_cast<std::size_t>(h)]));
    }
    std::int64_t distance = 0;
    for (std::int64_t item = 0; item < shape.items(); ++item) {
      const std::int64_t offset = query_offset(options, shape, item);
      distance = std::max({distance, std::abs(offset - shape.kv_len), offset + shape.q_len});
    }
    size += slope * static_cast<double>(distance);
  }
  for (const double sink : score.sinks) {
    if (std::isfinite(sink)) size += std::abs(sink);
  }
  return size;
}

/// Returns the allowance for rounding the weights and the context to a 16-bit type, once each. The
/// engine and the naive computation may round in opposite directions; half of the largest
/// difference is allowed.
inline double size_of_storing(const reference::Inputs& in, const AttentionOptions& options,
                              std::span<const reference::Row> rows, const Forward& exact,
                              DType type) {
  Tensor sizes = convert(in.value, DType::kFloat64);
  change_all(sizes, [](double x) { return std::abs(x); });
  const double rounding = rounding_of(type) / 2;
  const double of_weights =
      rounding * size_of(oracle({in.query, in.key, sizes}, options, rows).context);
  return of_weights + std::max(rounding * size_of(exact.context), rounding_near_zero(type));
}

/// The 1x rule's allowance on top of the error of the naive computation (derived in
/// docs/numerics.md).
struct Allowance {
  double context = 0.0;
  double lse = 0.0;
};

/// `exact` holds the oracle's results; `type` is the type of the naive computation.
inline Allowance allowance_of(const reference::Inputs& in, const AttentionOptions& options,
                              std::span<const reference::Row> rows, const Forward& exact,
                              DType type = storage()) {
  const ProblemShape shape = shape_of(in, options);
  const double products = size_of_products(in, options, rows);
  // tanh is accurate to 4 ulp, each of at most 2 roundings.
  const double capped =
      options.score.softcap > 0 ? 4 * std::min(products, options.score.softcap) : 0;
  const double scores = products + capped + size_of_biases(shape, options);
  const double keys = static_cast<double>(std::max<std::int64_t>(shape.kv_len, 1));
  Allowance allowance{2 * kRounding * (1 + scores) * size_of(in.value),
                      2 * kRounding * (1 + scores + std::log(keys))};
  if (type != DType::kFloat32) {
    allowance.context += size_of_storing(in, options, rows, exact, type);
  }
  return allowance;
}

/// Returns a further allowance, for chance. If a few rows have by far the largest scores, one or
/// two sums determine the largest error. A sum of D terms typically accumulates about sqrt(D)
/// rounding errors, but in either computation they may happen to cancel. With inputs of a 16-bit
/// type the naive computation is exact more often: its products are exact, whereas the engine
/// rounds queries when scaling them.
inline Allowance luck_of_sums(InputKind kind, const reference::Inputs& in,
                              const AttentionOptions& options,
                              std::span<const reference::Row> rows) {
  const DType type = in.query.dtype();
  const bool is_16_bit = type == DType::kFloat16 || type == DType::kBFloat16;
  if (kind == InputKind::kNormal || !is_16_bit) return {};
  const double root = std::sqrt(static_cast<double>(in.query.extent(3)));
  const double lse = kRounding * root * size_of_products(in, options, rows);
  return {lse * size_of(in.value), lse};
}

/// Checks the engine's results for some rows, or all if `rows` is empty, by the 1x rule. `luck` is
/// an additional allowance.
inline void expect_exact(const reference::Inputs& in, const AttentionOptions& options = {},
                         RowList rows = {}, const Allowance& luck = {}) {
  if (rows.empty()) rows = all_rows(shape_of(in));
  const Forward found = rows_of(forward(in, options), rows);
  const Forward exact = oracle(in, options, rows);
  const Forward plain = naive(in, options, rows);
  const Allowance allowance = allowance_of(in, options, rows, exact);
  EXPECT_TRUE(
      as_exact_as(found.context, plain.context, exact.context, allowance.context + luck.context))
      << "context";
  EXPECT_TRUE(as_exact_as(found.lse, plain.lse, exact.lse, allowance.lse + luck.lse)) << "lse";
}

}  // namespace fovea::test
