// SPDX-License-Identifier: Apache-2.0
//
// The 1x rule's allowance for gradients, on top of the error of the naive computation (derived in
// docs/numerics.md, "Gradients"). The allowance is summed weight by weight: a product of each
// factor's maximum would be far too permissive.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "problem/broadcast.h"
#include "problem/dropout.h"
#include "support/exactness.h"
#include "support/forward.h"
#include "support/storage.h"

namespace fovea::test {

struct GradientAllowance {
  double query = 0.0, key = 0.0, value = 0.0, bias = 0.0, relative = 0.0, sinks = 0.0;
};

/// Error bounds for each element of each gradient. Independent errors add in squares; errors of
/// lse and delta, which a whole row shares, add linearly.
class GradientErrors {
 public:
  GradientErrors(const reference::Inputs& in, const AttentionOptions& options,
                 const TensorView& grad_context, const TensorView& grad_lse, DType type)
      : options_(options),
        shape_(shape_of(in, options)),
        type_(type),
        query_(convert(in.query, DType::kFloat64)),
        key_(convert(in.key, DType::kFloat64)),
        value_(convert(in.value, DType::kFloat64)),
        grad_context_(convert(grad_context, DType::kFloat64)),
        of_storing_(type == DType::kFloat32 ? 0.0 : rounding_of(type)),
        of_query_(query_),
        of_key_(key_),
        of_value_(value_) {
    if (grad_lse.defined()) grad_lse_ = convert(grad_lse, DType::kFloat64);
    const ScoreOptions& score = options.score;
    const auto dim = static_cast<double>(query_.extent(3));
    scale_ = std::abs(score.scale.value_or(dim > 0 ? 1.0 / std::sqrt(dim) : 1.0));
    biases_ = size_of_biases(shape_, options);
    if (score.bias.defined()) {
      bias_strides_ = broadcast_strides(Tensor(DType::kBool, score.bias->shape()));
      of_bias_ = Squares(score.bias);
    }
    if (score.relative) of_relative_ = Squares(score.relative->table);
    of_sinks_.sums.resize(score.sinks.size());
    if (shape_.kv_len == 0) return;
    const RowList rows = all_rows(shape_);
    const reference::Rows exact = reference::attention_rows(in, options, rows);
    const auto dims = static_cast<std::size_t>(value_.extent(3));
    const auto keys = static_cast<std::size_t>(shape_.kv_len);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      add(rows[r], r, exact.weights.span<double>().subspan(r * keys, keys),
          exact.context.span<double>().subspan(r * dims, dims), exact.lse.span<double>()[r]);
    }
  }

  /// Returns the maximum over each gradient, plus the rounding of the gradients themselves.
  GradientAllowance largest(const reference::Gradients& exact) const {
    const auto of = [&](const Squares& squares, const Tensor& gradient, bool stored) {
      if (squares.sums.empty()) return 0.0;
      const double largest = 2 * std::sqrt(*std::ranges::max_element(squares.sums)) +
                             2 * kRounding * size_of(gradient);
      if (!stored || of_storing_ == 0.0) return largest;
      return largest + std::max(of_storing_ / 2 * size_of(gradient), rounding_near_zero(type_));
    };
    return {of(of_query_, exact.query, true),        of(of_key_, exact.key, true),
            of(of_value_, exact.value, true),        of(of_bias_, exact.bias, false),
            of(of_relative_, exact.relative, false), of(of_sinks_, exact.sinks, false)};
  }

 private:
  static double square(double x) { return x * x; }

  /// Sums of squares, one per element of a tensor.
  struct Squares {
    Squares() = default;
    explicit Squares(const TensorView& tensor) : sums(static_cast<std::size_t>(tensor.size())) {}
    std::vector<double> sums;
  };
  /// Sums over the scores of one row that share an element of a bias.
  struct Common {
    double weight = 0.0, gradient = 0.0;
  };

  /// The sum of products, and of their magnitudes.
  struct Products {
    double sum = 0.0, magnitude = 0.0;
  };
  static Products products_of(const double* a, const double* b, std::size_t count) {
    double sum = 0.0, magnitude = 0.0;
    for (std::size_t c = 0; c < count; ++c) {
      sum += a[c] * b[c];
      magnitude += std::abs(a[c] * b[c]);
    }
    return {sum, magnitude};
  }

  static std::size_t row_at(const Tensor& tensor, std::int64_t batch, std::int64_t head,
                            std::int64_t row) {
    const Shape& shape = tensor.shape();
    return static_cast<std::size_t>(((batch * shape[1] + head) * shape[2] + row) * shape[3]);
  }

  /// Returns the batch item or packed sequence of a query.
  std::int64_t item_of(const reference::Row& row) const {
    for (std::int64_t item = 0; item < shape_.items(); ++item) {
      const SequenceSpan span = sequence_span(options_, shape_, item);
      const std::int64_t q = row.query - span.query_start;
      if (span.batch == row.batch && q >= 0 && q < span.q_len) return item;
    }
    return 0;
  }

  void add(const reference::Row& row, std::size_t number, std::span<const double> weights,
           std::span<const double> context, double lse) {
    if (!std::isfinite(lse)) return;
    const std::int64_t kv_head = row.head / (shape_.q_heads / shape_.kv_heads);
    const auto head_dim = static_cast<std::size_t>(query_.extent(3));
    const std::size_t value_dim = context.size();
    const std::size_t q_at = row_at(query_, row.batch, row.head, row.query);
    const double* const q = query_.span<double>().data() + q_at;
    const double* const go =
        grad_context_.span<double>().data() + row_at(grad_context_, row.batch, row.head, row.query);
    const double of_lse = grad_lse_.defined() ? grad_lse_.span<double>()[number] : 0.0;
    const ScoreOptions& score = options_.score;
    const std::int64_t item = item_of(row);
    const SequenceSpan span = sequence_span(options_, shape_, item);
    const std::int64_t in_item = row.query - span.query_start;
    const DropoutRule dropout(options_.dropout, item, row.head, shape_.q_heads);
    const bool drops = options_.dropout.probability > 0;

    double mean = 0.0, squares = 0.0;
    for (std::size_t c = 0; c < value_dim; ++c) {
      mean += context[c] * go[c];
      squares += square(of_storing_ * context[c] * go[c]);
    }
    // For each key: the relative error of its weight; the magnitude of dP; dP - delta.
    std::vector<double> off(weights.size()), size(weights.size()), above(weights.size());
    std::vector<double> kept(weights.size(), 1.0);
    // The derivative of the softcap, and its error.
    std::vector<double> slope(weights.size(), 1.0), slope_off(weights.size());
    double mean_size = 0.0;
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if (weights[j] == 0.0) continue;
      const auto key = static_cast<std::int64_t>(j);
      if (drops) kept[j] = dropout.keeps(in_item, key - span.key_start) ? dropout.factor() : 0.0;
      const double* const k = key_.span<double>().data() + row_at(key_, row.batch, kv_head, key);
      const double* const v =
          value_.span<double>().data() + row_at(value_, row.batch, kv_head, key);
      const Products scores = products_of(q, k, head_dim), values = products_of(go, v, value_dim);
      const double product = scale_ * scores.magnitude, score_now = scale_ * scores.sum;
      const double dp = values.sum * kept[j];
      size[j] = values.magnitude * kept[j];
      if (score.softcap > 0) {
        const double t = std::abs(std::tanh(score_now / score.softcap));
        slope[j] = 1 - t * t;
        // The error of tanh itself, and the propagated error of the score.
        slope_off[j] = 18 * kRounding + 2 * t * slope[j] * 2 * kRounding * product / score.softcap;
      }
      const double capped = score.softcap > 0 ? 4 * std::min(product, score.softcap) : 0.0;
      off[j] = 2 * kRounding * (1 + product + capped + biases_);
      above[j] = dp - mean;
      mean_size += weights[j] * size[j];
      // The forward pass may have rounded the weights of the context.
      squares += square(off[j] * weights[j] * above[j]) + square(of_storing_ * weights[j] * dp);
    }
    const double of_mean = std::sqrt(squares) + 2 * kRounding * (mean_size + std::abs(of_lse));
    const double off_lse = 3 * kRounding * std::abs(lse);

    // Sums over the row's keys, per dimension.
    std::vector<Common> common(head_dim);
    std::map<std::size_t, Common> of_bias, of_bucket;
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if (weights[j] == 0.0) continue;
      const auto key = static_cast<std::int64_t>(j);
      const double w = weights[j];
      const double gradient = w * (above[j] + of_lse);
      const double own = square(off[j] * gradient) +
                         square(2 * kRounding * w * (size[j] + mean_size + std::abs(of_lse)));
      const double shared = square(off_lse * gradient) + square(w * of_mean);
      const double sloped = square(slope[j]);
      const double of_product =
          sloped * (own + square(of_storing_ / 2 * gradient)) + square(slope_off[j] * gradient);
      const std::size_t k_at = row_at(key_, row.batch, kv_head, key);
      const double* const k = key_.span<double>().data() + k_at;
      // The loops over dimensions are the slowest part of many tests.
      const double query_factor = square(scale_) * of_product;
      const double key_factor = square(scale_) * (of_product + sloped * shared);
      const double by_weight = scale_ * slope[j] * w, by_gradient = scale_ * slope[j] * gradient;
      double* const to_query = of_query_.sums.data() + q_at;
      double* const to_key = of_key_.sums.data() + k_at;
      for (std::size_t c = 0; c < head_dim; ++c) {
        to_query[c] += square(k[c]) * query_factor;
        common[c].weight += by_weight * k[c];
        common[c].gradient += by_gradient * k[c];
        to_key[c] += square(q[c]) * key_factor;
      }
      const std::size_t v_at = row_at(value_, row.batch, kv_head, key);
      const double of_value =
          square(w * kept[j]) * (square(off[j]) + square(off_lse) + square(of_storing_ / 2));
      double* const to_value = of_value_.sums.data() + v_at;
      for (std::size_t c = 0; c < value_dim; ++c) to_value[c] += of_value * square(go[c]);
      const auto add_to = [&](Squares& sums, std::map<std::size_t, Common>& of_row,
                              std::int64_t at) {
        const auto index = static_cast<std::size_t>(at);
        sums.sums[index] += own;
        of_row[index].weight += w;
        of_row[index].gradient += gradient;
      };
      if (!of_bias_.sums.empty()) {
        add_to(of_bias_, of_bias,
               row.batch * bias_strides_[0] + row.head * bias_strides_[1] +
                   row.query * bias_strides_[2] + key * bias_strides_[3]);
      }
      if (!of_relative_.sums.empty()) {
        const std::int64_t distance =
            key - span.key_start - in_item - query_offset(options_, shape_, item);
        add_to(of_relative_, of_bucket,
               relative_bucket(distance, *score.relative) * shape_.q_heads + row.head);
      }
    }
    const auto of_common = [&](const Common& one) {
      return square(off_lse * one.gradient) + square(of_mean * one.weight);
    };
    for (std::size_t c = 0; c < head_dim; ++c) of_query_.sums[q_at + c] += of_common(common[c]);
    for (const auto& [at, one] : of_bias) of_bias_.sums[at] += of_common(one);
    for (const auto& [at, one] : of_bucket) of_relative_.sums[at] += of_common(one);
    if (of_sinks_.sums.empty()) return;
    const double sink = score.sinks[static_cast<std::size_t>(row.head)];
    if (!std::isfinite(sink)) return;
    const double w = std::exp(sink - lse);
    const double off_sink = 2 * kRounding * (1 + std::abs(sink)) + off_lse;
    of_sinks_.sums[static_cast<std::size_t>(row.head)] +=
        square(off_sink * w * (of_lse - mean)) + square(w * of_mean);
  }

  const AttentionOptions& options_;
  ProblemShape shape_;
  DType type_;
  Tensor query_, key_, value_, grad_context_, grad_lse_;  // float64
  double of_storing_;                                     // 0 if stored values are not rounded
  double scale_ = 1.0, biases_ = 0.0;
  std::array<std::int64_t, 4> bias_strides_{};
  Squares of_query_, of_key_, of_value_, of_bias_, of_relative_, of_sinks_;
};

inline GradientAllowance gradient_allowance(const reference::Inputs& in,
                                            const AttentionOptions& options,
                                            const TensorView& grad_context,
                                            const TensorView& grad_lse,
                                            const reference::Gradients& exact, DType type) {
  return GradientErrors(in, options, grad_context, grad_lse, type).largest(exact);
}

}  // namespace fovea::test
