// SPDX-License-Identifier: Apache-2.0
//
// Recorded attentions of random problems, and their weights by the oracle.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fovea/recording.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {

/// Returns an attention with the lse that the engine computes. It shares its tensors with copies.
inline RecordedAttention recorded(RandomProblem problem, const AttentionOptions& options) {
  RecordedAttention attention;
  attention.name = "layers.0";
  attention.options = options;
  attention.lse = TensorRef(forward(problem.inputs(), options).lse);
  attention.query = TensorRef(std::move(problem.query));
  attention.key = TensorRef(std::move(problem.key));
  attention.value = TensorRef(std::move(problem.value));
  return attention;
}

/// The weights of an attention in float64, one row at a time.
class OracleWeights {
 public:
  explicit OracleWeights(const RecordedAttention& attention)
      : weights_(reference::attention_rows({attention.query, attention.key, attention.key},
                                           attention.options, all_rows(attention.shape()))
                     .weights),
        shape_(attention.shape()) {}

  /// Returns the weights of a query on all keys.
  std::span<const double> row(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    const auto keys = static_cast<std::size_t>(shape_.kv_len);
    const std::int64_t row = (batch * shape_.q_heads + head) * shape_.q_len + query;
    return weights_.span<double>().subspan(static_cast<std::size_t>(row) * keys, keys);
  }

 private:
  Tensor weights_;
  ProblemShape shape_;
};

/// Returns a bound on the relative error of recomputed weights: the rounding of the product of
/// query and key, of the other terms of the score and of the lse, in float32, where
/// |query . key| <= |query| |key|.
inline double weight_error(const RecordedAttention& attention) {
  const auto largest_norm = [](const TensorView& rows) {
    double largest = 0.0;
    for_each_index({rows.extent(0), rows.extent(1), rows.extent(2)}, [&](const Index& at) {
      double sum = 0.0;
      for (std::int64_t d = 0; d < rows.extent(3); ++d) {
        const double x = rows.value({at[0], at[1], at[2], d});
        sum += x * x;
      }
      if (sum > largest) largest = sum;
    });
    return std::sqrt(largest);
  };
  const auto dim = static_cast<double>(attention.query->extent(3));
  double size = largest_norm(attention.query) * largest_norm(attention.key) / std::sqrt(dim);
  for_each_index(attention.lse->shape(), [&](const Index& at) {
    const double lse = std::abs(attention.lse->value(at));
    if (std::isfinite(lse)) size = std::max(size, lse);
  });
  return 0x1p-24 * (dim + 8.0) * (1.0 + size);
}

}  // namespace fovea::test
