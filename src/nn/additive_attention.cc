// SPDX-License-Identifier: Apache-2.0
//
// Additive attention (fovea/nn/additive_attention.h): matrix products project queries and keys,
// then loops compute the score of each pair.

#include "fovea/nn/additive_attention.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "nn/elementary.h"
#include "nn/items.h"
#include "nn/multiply.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

/// Number of partial sums of a dot product; compilers keep them in vectors. The number is fixed, so
/// that sums have the same order on every machine.
constexpr std::int64_t kLanes = 16;

template <class Real, class Term>
Real sum_of(std::int64_t count, const Term& term) {
  Real lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  Real sum = 0;
  for (const Real lane : lanes) sum += lane;
  return sum;
}

template <class Real>
Real dot(const Real* a, const Real* b, std::int64_t count) {
  return sum_of<Real>(count, [=](std::int64_t i) { return a[i] * b[i]; });
}

template <class Real>
void add_scaled(Real factor, const Real* __restrict from, Real* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

template <class Real>
void softmax(Real* scores, std::int64_t count) {
  const Real largest = *std::max_element(scores, scores + count);
  Real sum = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    scores[j] = elementary::exp(scores[j] - largest);
    sum += scores[j];
  }
  for (std::int64_t j = 0; j < count; ++j) scores[j] /= sum;
}

/// Adds the contribution of one score's gradient to the gradients of v and of the projected query
/// and key.
template <class Real>
void score_back(Real grad, std::int64_t dim, const Real* __restrict query,
                const Real* __restrict key, const Real* __restrict v, Real* __restrict grad_query,
                Real* __restrict grad_key, Real* __restrict grad_v) {
  for (std::int64_t i = 0; i < dim; ++i) {
    const Real t = elementary::tanh(query[i] + key[i]);
    const Real grad_sum = grad * v[i] * (1 - t * t);
    grad_v[i] += grad * t;
    grad_query[i] += grad_sum;
    grad_key[i] += grad_sum;
  }
}

}  // namespace

AdditiveAttention::AdditiveAttention(const Scope& scope, std::int64_t query_dim,
                                     std::int64_t key_dim, std::int64_t dim, bool bias)
    : query_dim_(query_dim),
      key_dim_(key_dim),
      dim_(dim),
      query_weight_(scope.in("query_proj")
                        .add_uniform("weight", {dim, query_dim},
                                     1.0 / std::sqrt(static_cast<double>(query_dim)))),
      key_weight_(scope.in("key_proj")
                      .add_uniform("weight", {dim, key_dim},
                                   1.0 / std::sqrt(static_cast<double>(key_dim)))),
      v_(scope.add_uniform("v", {dim}, 1.0 / std::sqrt(static_cast<double>(dim)))),
      bias_(bias ? &scope.add_constant("b", {dim}, 0.0) : nullptr) {}

void AdditiveAttention::prepare(const TensorView& keys, const TensorView& values,
                                std::span<const std::int64_t> lengths) {
  const DType dtype = v_.value.dtype();
  const TensorView key_rows = as_rows_of_items(keys, dtype, -1, key_dim_, "keys");
  const std::int64_t batch = keys.extent(0), kv_len = keys.extent(1);
  TensorView value_rows = key_rows;
  if (values.defined()) {
    const std::int64_t value_dim = values.rank() == 0 ? 0 : values.extent(values.rank() - 1);
    value_rows = as_rows_of(values, dtype, {batch, kv_len, value_dim}, "values");
  }
  keep_lengths(lengths, batch, kv_len, lengths_);
  has_values_ = values.defined();
  q_len_ = 0;  // until start()
  keys_ = key_rows;
  values_ = value_rows;
  kv_len_ = kv_len;
  projected_keys_ = projected_keys_buffer_.of(dtype, {batch * kv_len, dim_});
  affine(keys_, key_weight_.value, {}, projected_keys_);
}

void AdditiveAttention::start(const TensorView& query) {
  const DType dtype = v_.value.dtype();
  if (!keys_.defined()) throw InvalidArgument("keys", "expected prepare() before start()");
  grad_projected_queries_ = {};  // until start_backward()
  query_ = as_rows_of_items(query, dtype, batch(), query_dim_, "query");
  q_len_ = query.extent(1);
  const std::int64_t rows = batch() * q_len_;
  projected_queries_ = projected_queries_buffer_.of(dtype, {rows, dim_});
  context_ = context_buffer_.of(dtype, {rows, values_.extent(1)});
  weights_ = weights_buffer_.of(dtype, {batch(), q_len_, kv_len_});
}

MutableTensorView AdditiveAttention::forward(const TensorView& query, const TensorView& keys,
                                             const TensorView& values,
                                             std::span<const std::int64_t> lengths) {
  prepare(keys, values, lengths);
  start(query);
  affine(query_, query_weight_.value, bias_ ? TensorView(bias_->value) : TensorView(),
         projected_queries_);
  attend_to(0, q_len_);
  return reshaped(context_, {batch(), q_len_, context_.extent(1)});
}

void AdditiveAttention::check_step(std::int64_t step) const {
  if (step < 0 || step >= q_len_) {
    fail_argument("step", "expected one of the {} of start(), got {}", q_len_, step);
  }
}

/// Checks that `rows` is [batch, width], with contiguous rows at any stride.
void AdditiveAttention::check_rows(const TensorView& rows, std::int64_t width,
                                   std::string_view name) const {
  const Shape expected{batch(), width};
  if (rows.dtype() != v_.value.dtype() || rows.shape() != expected ||
      (width > 1 && rows.strides()[1] != 1)) {
    fail_argument(name, "expected {} {} with contiguous rows, got {} {}",
                  dtype_name(v_.value.dtype()), to_string(expected), dtype_name(rows.dtype()),
                  to_string(rows.shape()));
  }
}

MutableTensorView AdditiveAttention::attend(std::int64_t step) {
  check_step(step);
  affine(step_of(query_, q_len_, step), query_weight_.value,
         bias_ ? TensorView(bias_->value) : TensorView(),
         step_of(projected_queries_, q_len_, step));
  attend_to(step, step + 1);
  return step_of(context_, q_len_, step);
}

/// Computes the contexts of the projected queries [begin, end) of each item.
void AdditiveAttention::attend_to(std::int64_t begin, std::int64_t end) {
  with_real(context_.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const Real* const v = v_.value.span<Real>().data();
    const std::int64_t value_dim = values_.extent(1), steps = end - begin;
    const auto attend_row = [&](std::int64_t item, std::int64_t step) {
      const std::int64_t first_key = item * kv_len_, number = item * q_len_ + step;
      const std::int64_t length = lengths_[static_cast<std::size_t>(item)];
      const Real* const query = row<Real>(projected_queries_, number);
      Real* const weights = static_cast<Real*>(weights_.data()) + number * kv_len_;
      Real* const context = row<Real>(context_, number);
      for (std::int64_t j = 0; j < length; ++j) {
        const Real* const key = row<Real>(projected_keys_, first_key + j);
        weights[j] = sum_of<Real>(
            dim_, [=](std::int64_t i) { return v[i] * elementary::tanh(query[i] + key[i]); });
      }
      if (length > 0) softmax(weights, length);
      std::fill(weights + length, weights + kv_len_, Real{0});
      std::fill_n(context, value_dim, Real{0});
      for (std::int64_t j = 0; j < length; ++j) {
        add_scaled(weights[j], row<Real>(values_, first_key + j), context, value_dim);
      }
    };
    for_each_rows(batch() * steps, kv_len_ * dim_, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t r = from; r < to; ++r) attend_row(r / steps, begin + r % steps);
    });
  });
}

void AdditiveAttention::start_backward() {
  const DType dtype = v_.value.dtype();
  const std::int64_t keys = batch() * kv_len_;
  grad_projected_keys_ = grad_projected_keys_buffer_.of(dtype, {keys, dim_});
  grad_projected_queries_ = grad_projected_queries_buffer_.of(dtype, {batch() * q_len_, dim_});
  grad_values_ = grad_values_buffer_.of(dtype, {keys, values_.extent(1)});
  grad_v_ = grad_v_buffer_.of(dtype, {batch(), dim_});
  grad_weights_ = grad_weights_buffer_.of(dtype, {batch(), kv_len_});
  zero_rows(grad_projected_keys_);
  zero_rows(grad_values_);
  zero_rows(grad_v_);
}

/// Adds the contributions of queries [begin, end) of each item to the gradients. `grad_context`,
/// [batch * (end - begin), value_dim], contains the gradients of the contexts of these queries.
void AdditiveAttention::attend_back(std::int64_t begin, std::int64_t end,
                                    const TensorView& grad_context) {
  with_real(context_.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    const Real* const v = v_.value.span<Real>().data();
    const std::int64_t value_dim = values_.extent(1), steps = end - begin;
    const auto back = [&](std::int64_t item, std::int64_t step) {
      const std::int64_t first_key = item * kv_len_, number = item * q_len_ + step;
      const std::int64_t length = lengths_[static_cast<std::size_t>(item)];
      const Real* const grad = row<Real>(grad_context, item * steps + step - begin);
      const Real* const query = row<Real>(projected_queries_, number);
      const Real* const weights = static_cast<const Real*>(weights_.data()) + number * kv_len_;
      Real* const grad_query = row<Real>(grad_projected_queries_, number);
      Real* const grad_weights = row<Real>(grad_weights_, item);
      Real mean = 0;  // mean of the gradients of the weights, each weighted by its weight
      for (std::int64_t j = 0; j < length; ++j) {
        grad_weights[j] = dot(grad, row<Real>(values_, first_key + j), value_dim);
        mean += weights[j] * grad_weights[j];
        add_scaled(weights[j], grad, row<Real>(grad_values_, first_key + j), value_dim);
      }
      std::fill_n(grad_query, dim_, Real{0});
      for (std::int64_t j = 0; j < length; ++j) {
        score_back(weights[j] * (grad_weights[j] - mean), dim_, query,
                   row<Real>(projected_keys_, first_key + j), v, grad_query,
                   row<Real>(grad_projected_keys_, first_key + j), row<Real>(grad_v_, item));
      }
    };
    // Items share no gradients, so they can be processed in parallel.
    for_each_rows(batch(), steps * kv_len_ * dim_, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t item = from; item < to; ++item) {
        for (std::int64_t step = begin; step < end; ++step) back(item, step);
      }
    });
  });
}

void AdditiveAttention::attend_backward(std::int64_t step, const TensorView& grad_context,
                                        const MutableTensorView& grad_query) {
  check_step(step);
  if (!grad_projected_queries_.defined()) {
    throw InvalidArgument("step", "expected start_backward() before the gradient of a step");
  }
  check_rows(grad_context, values_.extent(1), "grad_context");
  check_rows(grad_query, query_dim_, "grad_query");
  attend_back(step, step + 1, grad_context);
  multiply({step_of(grad_projected_queries_, q_len_, step)}, {query_weight_.value}, grad_query,
           true);
}

AdditiveAttention::Gradients AdditiveAttention::end_backward() {
  const DType dtype = v_.value.dtype();
  add_column_sums(grad_v_, v_.gradient);
  multiply(transposed(grad_projected_queries_), {query_}, query_weight_.gradient, true);
  if (bias_) add_column_sums(grad_projected_queries_, bias_->gradient);
  // If the keys are also the values, their gradient as keys is added to their gradient as values.
  const MutableTensorView grad_keys =
      has_values_ ? grad_keys_buffer_.of(dtype, {batch() * kv_len_, key_dim_}) : grad_values_;
  affine_backward(grad_projected_keys_, keys_, key_weight_.value, key_weight_.gradient, {},
                  grad_keys, !has_values_);
  Gradients result;
  result.keys = reshaped(grad_keys, {batch(), kv_len_, key_dim_});
  if (has_values_) {
    result.values = reshaped(grad_values_, {batch(), kv_len_, values_.extent(1)});
  }
  return result;
}

AdditiveAttention::Gradients AdditiveAttention::backward(const TensorView& grad_context) {
  const DType dtype = v_.value.dtype();
  const TensorView rows =
      as_rows_of(grad_context, dtype, {batch(), q_len_, values_.extent(1)}, "grad_context");
  start_backward();
  attend_back(0, q_len_, rows);
  Gradients result = end_backward();
  const MutableTensorView grad_query = grad_query_buffer_.of(dtype, {batch() * q_len_, query_dim_});
  multiply({grad_projected_queries_}, {query_weight_.value}, grad_query);
  result.query = reshaped(grad_query, {batch(), q_len_, query_dim_});
  return result;
}

}  // namespace fovea::nn
