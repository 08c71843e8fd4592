// SPDX-License-Identifier: Apache-2.0
//
// General attention (fovea/nn/general_attention.h): a matrix product, then attention with one head.

#include "fovea/nn/general_attention.h"

#include <algorithm>
#include <cmath>

#include "fovea/attention.h"
#include "fovea/attention_backward.h"
#include "fovea/mask.h"

#include "nn/items.h"
#include "nn/multiply.h"
#include "nn/rows.h"
#include "nn/stop.h"

namespace fovea::nn {
namespace {

/// Returns rows [batch * length, width] as one head, [batch, 1, length, width].
template <class View>
View one_head(const View& rows, std::int64_t batch, std::int64_t length) {
  const Shape shape{batch, 1, length, rows.extent(1)};
  return {rows.data(), rows.dtype(), shape};
}

}  // namespace

GeneralAttention::GeneralAttention(const Scope& scope, std::int64_t query_dim, std::int64_t key_dim)
    : query_dim_(query_dim),
      key_dim_(key_dim),
      weight_(scope.in("query_proj")
                  .add_uniform("weight", {key_dim, query_dim},
                               1.0 / std::sqrt(static_cast<double>(query_dim)))) {
  options_.score.scale = 1.0;
}

MutableTensorView GeneralAttention::forward(const TensorView& query, const TensorView& keys,
                                            const TensorView& values,
                                            std::span<const std::int64_t> lengths) {
  const DType dtype = weight_.value.dtype();
  const TensorView key_rows = as_rows_of_items(keys, dtype, -1, key_dim_, "keys");
  const std::int64_t batch = keys.extent(0), kv_len = keys.extent(1);
  const TensorView query_rows = as_rows_of_items(query, dtype, batch, query_dim_, "query");
  TensorView value_rows = key_rows;
  if (values.defined()) {
    const std::int64_t value_dim = values.rank() == 0 ? 0 : values.extent(values.rank() - 1);
    value_rows = as_rows_of(values, dtype, {batch, kv_len, value_dim}, "values");
  }
  keep_lengths(lengths, batch, kv_len, lengths_);
  options_.mask = lengths.empty() ? Mask() : key_lengths(lengths_);
  batch_ = batch;
  q_len_ = query.extent(1);
  kv_len_ = kv_len;
  has_values_ = values.defined();
  query_ = query_rows;
  keys_ = key_rows;
  values_ = value_rows;
  const std::int64_t rows = batch_ * q_len_;
  projected_ = projected_buffer_.of(dtype, {rows, key_dim_});
  context_ = context_buffer_.of(dtype, {rows, values_.extent(1)});
  lse_ = lse_buffer_.of(dtype, {batch_, 1, q_len_});
  affine(query_, weight_.value, {}, projected_);
  options_.execution.stop = current_stop();
  const engine::OpenMpThreads threads;  // those of the matrix products
  attention_forward(one_head(TensorView(projected_), batch_, q_len_),
                    one_head(keys_, batch_, kv_len_), one_head(values_, batch_, kv_len_), options_,
                    {one_head(context_, batch_, q_len_), lse_});
  return reshaped(context_, {batch_, q_len_, context_.extent(1)});
}

TensorView GeneralAttention::weights() {
  const DType dtype = weight_.value.dtype();
  const MutableTensorView weights = weights_.of(dtype, {batch_, q_len_, kv_len_});
  with_real(dtype, [&](auto zero) {
    using Real = decltype(zero);
    const Real* const lse = static_cast<const Real*>(lse_.data());
    for (std::int64_t item = 0; item < batch_; ++item) {
      const auto item_rows = [&](const TensorView& rows, std::int64_t length) {
        const TensorView all = one_head(rows, batch_, length);
        return all[item][0];
      };
      multiply({item_rows(projected_, q_len_)}, transposed(item_rows(keys_, kv_len_)),
               weights[item]);
      const std::int64_t length = lengths_[static_cast<std::size_t>(item)];
      for (std::int64_t i = 0; i < q_len_; ++i) {
        Real* const of_query = row<Real>(weights[item], i);
        for (std::int64_t j = 0; j < length; ++j) {
          of_query[j] = std::exp(of_query[j] - lse[item * q_len_ + i]);
        }
        std::fill(of_query + length, of_query + kv_len_, Real{0});
      }
    }
  });
  return weights;
}

GeneralAttention::Gradients GeneralAttention::backward(const TensorView& grad_context) {
  const DType dtype = weight_.value.dtype();
  const std::int64_t value_dim = values_.extent(1), keys = batch_ * kv_len_;
  const TensorView grad =
      as_rows_of(grad_context, dtype, {batch_, q_len_, value_dim}, "grad_context");
  const MutableTensorView grad_projected = grad_projected_.of(dtype, {batch_ * q_len_, key_dim_});
  const MutableTensorView grad_query = grad_query_.of(dtype, {batch_ * q_len_, query_dim_});
  const MutableTensorView grad_keys = grad_keys_.of(dtype, {keys, key_dim_});
  const MutableTensorView grad_values = grad_values_.of(dtype, {keys, value_dim});
  options_.execution.stop = current_stop();
  const engine::OpenMpThreads threads;  // those of the matrix products
  attention_backward(
      {one_head(TensorView(projected_), batch_, q_len_), one_head(keys_, batch_, kv_len_),
       one_head(values_, batch_, kv_len_), one_head(TensorView(context_), batch_, q_len_), lse_,
       one_head(grad, batch_, q_len_)},
      options_,
      {one_head(grad_projected, batch_, q_len_), one_head(grad_keys, batch_, kv_len_),
       one_head(grad_values, batch_, kv_len_)});
  affine_backward(grad_projected, query_, weight_.value, weight_.gradient, {}, grad_query);
  Gradients result;
  result.query = reshaped(grad_query, {batch_, q_len_, query_dim_});
  result.keys = reshaped(grad_keys, {batch_, kv_len_, key_dim_});
  if (has_values_) {
    result.values = reshaped(grad_values, {batch_, kv_len_, value_dim});
  } else {
    add_rows(grad_values, grad_keys);
  }
  return result;
}

}  // namespace fovea::nn
