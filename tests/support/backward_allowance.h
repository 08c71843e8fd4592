// SPDX-License-Identifier: Apache-2.0
//
// What the 1x rule allows gradients on top of the naive computation's error: docs/numerics.md,
// "Gradients", derives it. Weight by weight, because products of the largest numbers of each factor
// would hide everything.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "core/broadcast.h"
#include "support/exactness.h"
#include "support/forward.h"
#include "support/storage.h"

namespace fovea::test {

struct GradientAllowance {
  double query = 0.0, key = 0.0, value = 0.0, bias = 0.0, relative = 0.0, sinks = 0.0;
};

/// What roundings may move each number of each gradient by.
class GradientErrors {
 public:
  GradientErrors(const reference::Inputs& in, const AttentionOptions& options,
                 const TensorView& grad_context, const TensorView& grad_lse, DType type)
      : options_(options),
        shape_(shape_of(in, options)),
        query_(convert(in.query, DType::kFloat64)),
        key_(convert(in.key, DType::kFloat64)),
        value_(convert(in.value, DType::kFloat64)),
        grad_context_(convert(grad_context, DType::kFloat64)),
        of_storing_(type == DType::kFloat32 ? 0.0 : rounding_of(type)),
        query_errors_(size(query_)),
        key_errors_(size(key_)),
        value_errors_(size(value_)) {
    if (grad_lse.defined()) grad_lse_ = convert(grad_lse, DType::kFloat64);
    const ScoreOptions& score = options.score;
    const auto dim = static_cast<double>(query_.extent(3));
    scale_ = std::abs(score.scale.value_or(dim > 0 ? 1.0 / std::sqrt(dim) : 1.0));
    biases_ = size_of_biases(shape_, options);
    kept_factor_ = 1.0 / (1.0 - options.dropout.probability);
    if (score.bias.defined()) {
      bias_strides_ = broadcast_strides(Tensor(DType::kBool, score.bias->shape()));
      bias_errors_.resize(static_cast<std::size_t>(score.bias->size()));
    }
    if (score.relative) {
      relative_errors_.resize(static_cast<std::size_t>(score.relative->table->size()));
    }
    sink_errors_.resize(score.sinks.size());
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

  /// Their maxima, and what rounding the gradients themselves adds.
  GradientAllowance largest(const reference::Gradients& exact) const {
    const auto of = [&](const std::vector<double>& errors, const Tensor& gradient, bool stored) {
      if (errors.empty()) return 0.0;
      const double largest = *std::ranges::max_element(errors) + 2 * kRounding * size_of(gradient);
      if (!stored || of_storing_ == 0.0) return largest;
      const DType type = of_storing_ == 0x1p-8 ? DType::kBFloat16 : DType::kFloat16;
      return largest + std::max(of_storing_ / 2 * size_of(gradient), rounding_near_zero(type));
    };
    return {of(query_errors_, exact.query, true),        of(key_errors_, exact.key, true),
            of(value_errors_, exact.value, true),        of(bias_errors_, exact.bias, false),
            of(relative_errors_, exact.relative, false), of(sink_errors_, exact.sinks, false)};
  }

 private:
  static std::size_t size(const Tensor& tensor) { return static_cast<std::size_t>(tensor.size()); }
  static std::size_t row_at(const Tensor& tensor, std::int64_t batch, std::int64_t head,
                            std::int64_t row) {
    const Shape& shape = tensor.shape();
    return static_cast<std::size_t>(((batch * shape[1] + head) * shape[2] + row) * shape[3]);
  }

  /// The batch item or packed sequence of a query.
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
    const double of_lse = grad_lse_.defined() ? std::abs(grad_lse_.span<double>()[number]) : 0.0;
    const ScoreOptions& score = options_.score;

    double sum = 0.0, stored_sum = 0.0;  // delta, and what rounding the context moves it by
    for (std::size_t c = 0; c < value_dim; ++c) {
      sum += context[c] * go[c];
      stored_sum += of_storing_ * std::abs(context[c] * go[c]);
    }
    // For each key: by what its weight is off, relatively; the size of dP; dP.
    std::vector<double> off(weights.size()), size(weights.size()), dp(weights.size());
    double mean_size = 0.0, mean_error = 0.0;
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if (weights[j] == 0.0) continue;
      const double* const k = key_.span<double>().data() +
                              row_at(key_, row.batch, kv_head, static_cast<std::int64_t>(j));
      const double* const v = value_.span<double>().data() +
                              row_at(value_, row.batch, kv_head, static_cast<std::int64_t>(j));
      double product = 0.0;
      for (std::size_t c = 0; c < head_dim; ++c) product += std::abs(q[c] * k[c]);
      product *= scale_;
      const double capped = score.softcap > 0 ? 5 * std::min(product, score.softcap) : 0.0;
      off[j] = 2 * kRounding * (1 + product + capped + biases_) + 3 * kRounding * std::abs(lse);
      for (std::size_t c = 0; c < value_dim; ++c) {
        size[j] += std::abs(go[c] * v[c]);
        dp[j] += go[c] * v[c];
      }
      size[j] *= kept_factor_;
      dp[j] = std::abs(dp[j]) * kept_factor_;
      mean_size += weights[j] * size[j];
      mean_error += off[j] * weights[j] * size[j];
    }
    const double slopes = score.softcap > 0 ? 22 * kRounding : 0.0;
    const std::int64_t item = item_of(row);
    const SequenceSpan span = sequence_span(options_, shape_, item);
    const std::int64_t position =
        row.query - span.query_start + query_offset(options_, shape_, item);
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if (weights[j] == 0.0) continue;
      const auto key = static_cast<std::int64_t>(j);
      const double w = weights[j];
      const double sizes = size[j] + mean_size + of_lse;
      const double of_sums =
          w * ((off[j] + 2 * kRounding + slopes) * sizes + mean_error + stored_sum);
      const double of_score =
          scale_ * (of_sums + of_storing_ / 2 * w * (dp[j] + std::abs(sum) + of_lse));
      const std::size_t k_at = row_at(key_, row.batch, kv_head, key);
      const double* const k = key_.span<double>().data() + k_at;
      for (std::size_t c = 0; c < head_dim; ++c) {
        query_errors_[q_at + c] += of_score * std::abs(k[c]);
        key_errors_[k_at + c] += of_score * std::abs(q[c]);
      }
      const std::size_t v_at = row_at(value_, row.batch, kv_head, key);
      for (std::size_t c = 0; c < value_dim; ++c) {
        value_errors_[v_at + c] += (off[j] + of_storing_ / 2) * w * kept_factor_ * std::abs(go[c]);
      }
      if (!bias_errors_.empty()) {
        const std::int64_t at = row.batch * bias_strides_[0] + row.head * bias_strides_[1] +
                                row.query * bias_strides_[2] + key * bias_strides_[3];
        bias_errors_[static_cast<std::size_t>(at)] += of_sums;
      }
      if (!relative_errors_.empty()) {
        const std::int64_t bucket =
            relative_bucket(key - span.key_start - position, *score.relative);
        relative_errors_[static_cast<std::size_t>(bucket * shape_.q_heads + row.head)] += of_sums;
      }
    }
    if (sink_errors_.empty()) return;
    const double sink = score.sinks[static_cast<std::size_t>(row.head)];
    if (!std::isfinite(sink)) return;
    const double off_sink =
        2 * kRounding * (1 + std::abs(sink)) + 3 * kRounding * std::abs(lse) + 2 * kRounding;
    sink_errors_[static_cast<std::size_t>(row.head)] +=
        std::exp(sink - lse) * (off_sink * (mean_size + of_lse) + mean_error + stored_sum);
  }

  const AttentionOptions& options_;
  ProblemShape shape_;
  Tensor query_, key_, value_, grad_context_, grad_lse_;  // of float64
  double of_storing_;                                     // 0: what is stored is not rounded
  double scale_ = 1.0, biases_ = 0.0, kept_factor_ = 1.0;
  std::array<std::int64_t, 4> bias_strides_{};
  std::vector<double> query_errors_, key_errors_, value_errors_;
  std::vector<double> bias_errors_, relative_errors_, sink_errors_;
};

inline GradientAllowance gradient_allowance(const reference::Inputs& in,
                                            const AttentionOptions& options,
                                            const TensorView& grad_context,
                                            const TensorView& grad_lse,
                                            const reference::Gradients& exact, DType type) {
  return GradientErrors(in, options, grad_context, grad_lse, type).largest(exact);
}

}  // namespace fovea::test
