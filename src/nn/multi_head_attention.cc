// SPDX-License-Identifier: Apache-2.0
//
// Attention with learned projections (fovea/nn/multi_head_attention.h). One matrix product computes
// queries, keys and values. Attention accesses them in place, through strided views.

#include "fovea/nn/multi_head_attention.h"

#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "fovea/attention.h"
#include "fovea/attention_backward.h"
#include "fovea/error.h"

#include "core/fail.h"
#include "nn/multiply.h"
#include "nn/rows.h"
#include "nn/stop.h"

namespace fovea::nn {
namespace {

MultiHeadAttentionOptions checked_options(MultiHeadAttentionOptions options) {
  const auto check = [](std::string_view name, std::int64_t number, std::string_view of,
                        std::int64_t whole) {
    if (number < 1 || whole < 1 || whole % number != 0) {
      fail("{}: expected a divisor of {} {}, got {}", name, of, whole, number);
    }
  };
  check("heads", options.heads, "width", options.width);
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  check("kv_heads", options.kv_heads, "heads", options.heads);
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    fail("dropout: expected a probability in [0, 1), got {}", options.dropout);
  }
  if (options.rotary) {
    // Checks the rotation now, before there are parameters, instead of in the first forward.
    Tensor row(DType::kFloat32, {1, options.width / options.heads});
    apply_rotary(row, 0, *options.rotary, row);
  }
  return options;
}

/// Returns `count` rows of a matrix, or elements of a vector, starting at `first`.
template <class View>
View part(const View& of, std::int64_t first, std::int64_t count) {
  Shape shape = of.shape();
  shape[0] = count;
  Index at = of.shape();
  for (int dim = 0; dim < at.rank(); ++dim) at[dim] = 0;
  at[0] = first;
  return {of.address(at), of.dtype(), shape, of.strides()};
}

/// Returns columns [first, first + heads * head_dim) of [batch * length, width] as
/// [batch, heads, length, head_dim]. `items` is [batch, length, ...]: without items, the number of
/// rows does not tell the length.
MutableTensorView as_heads(const MutableTensorView& rows, const Shape& items, std::int64_t first,
                           std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t pitch = rows.extent(1), batch = items[0], length = items[1];
  // An empty tensor has no element with an address.
  return {rows.size() == 0 ? rows.data() : rows.address({0, first}),
          rows.dtype(),
          {batch, heads, length, head_dim},
          {length * pitch, head_dim, pitch, 1}};
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const Scope& scope, const MultiHeadAttentionOptions& options)
    : model_(scope.model()),
      options_(checked_options(options)),
      head_dim_(options_.width / options_.heads),
      kv_width_(options_.kv_heads * head_dim_),
      dropout_(model_.new_dropout()),
      in_weight_(scope.add_uniform("in_proj_weight",
                                   {options_.width + 2 * kv_width_, options_.width},
                                   glorot_bound({options_.width + 2 * kv_width_, options_.width}))),
      in_bias_(options_.bias
                   ? &scope.add_constant("in_proj_bias", {options_.width + 2 * kv_width_}, 0.0)
                   : nullptr),
      out_(scope.in("out_proj"), options_.width, options_.width, options_.bias) {
  Parameter* const bias = model_.parameters().find(scope.name("out_proj.bias"));
  if (bias != nullptr) {
    for_each_index(bias->value.shape(), [&](const Index& at) { set_value(bias->value, at, 0.0); });
  }
}

MultiHeadAttention::Projection MultiHeadAttention::projection(std::int64_t first,
                                                              std::int64_t count) {
  Projection result;
  result.weight = part(in_weight_.value.view(), first, count);
  result.grad_weight = part(in_weight_.gradient.view(), first, count);
  if (in_bias_ != nullptr) {
    result.bias = part(in_bias_->value.view(), first, count);
    result.grad_bias = part(in_bias_->gradient.view(), first, count);
  }
  return result;
}

MutableTensorView MultiHeadAttention::forward(const TensorView& x, const Mask& mask) {
  return forward(x, {}, mask);
}

MutableTensorView MultiHeadAttention::forward(const TensorView& x, const TensorView& memory,
                                              const Mask& mask) {
  const DType dtype = in_weight_.value.dtype();
  const std::int64_t width = options_.width;
  const std::int64_t own = memory.defined() ? width : width + 2 * kv_width_;
  const MutableTensorView projected = project(x, "x", 0, own, projected_);
  x_ = as_rows(x, dtype, width, "x");
  shape_ = x.shape();
  const std::int64_t batch = shape_[0], rows = x_.extent(0);
  memory_ = {};
  memory_shape_ = memory.defined() ? memory.shape() : shape_;
  if (memory.defined()) {
    project(memory, "memory", width, 2 * kv_width_, projected_memory_);
    if (memory.extent(0) != batch) {
      fail("memory: expected [{}, kv_len, {}], got {}", batch, width, to_string(memory.shape()));
    }
    memory_ = as_rows(memory, dtype, width, "memory");
  }
  const Heads<MutableTensorView> heads = split(projected, projected_memory_.last());
  rotate(heads.query, 0, false);
  rotate(heads.key, 0, false);
  heads_ = {heads.query, heads.key, heads.value};

  attention_ = {};
  attention_.mask = mask;
  attention_.alignment = Alignment::top_left();
  attention_.dropout = model_.dropout(dropout_, options_.dropout);
  attention_.execution.stop = current_stop();
  const MutableTensorView context = context_.of(dtype, {rows, width});
  const MutableTensorView lse = lse_.of(dtype, {batch, options_.heads, heads_.query.extent(2)});
  const engine::OpenMpThreads threads;  // those of the matrix products
  attention_forward(heads_.query, heads_.key, heads_.value, attention_,
                    {as_heads(context, shape_, 0, options_.heads, head_dim_), lse});
  return out_.forward(reshaped(context, shape_));
}

MutableTensorView MultiHeadAttention::project(const TensorView& x, std::string_view name,
                                              std::int64_t first, std::int64_t count, Buffer& to) {
  const TensorView rows = as_rows(x, in_weight_.value.dtype(), options_.width, name);
  if (x.rank() != 3) {
    fail("{}: expected [batch, length, width], got {}", name, to_string(x.shape()));
  }
  const Projection part = projection(first, count);
  const MutableTensorView projected = to.of(x.dtype(), {rows.extent(0), count});
  affine(rows, part.weight, part.bias, projected);
  return projected;
}

MultiHeadAttention::Heads<MutableTensorView> MultiHeadAttention::split(
    const MutableTensorView& of_x, const MutableTensorView& of_memory) const {
  const MutableTensorView& keys = memory_.defined() ? of_memory : of_x;
  const std::int64_t first = memory_.defined() ? 0 : options_.width;
  return {as_heads(of_x, shape_, 0, options_.heads, head_dim_),
          as_heads(keys, memory_shape_, first, options_.kv_heads, head_dim_),
          as_heads(keys, memory_shape_, first + kv_width_, options_.kv_heads, head_dim_)};
}

void MultiHeadAttention::rotate(const MutableTensorView& rows, std::int64_t first_position,
                                bool back) const {
  if (!options_.rotary) return;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(rows.extent(2)));
  std::iota(positions.begin(), positions.end(), first_position);
  if (back) {
    for (std::int64_t& position : positions) position = -position;
  }
  apply_rotary(rows, TensorView(positions.data(), {rows.extent(2)}), *options_.rotary, rows);
}

MutableTensorView MultiHeadAttention::backward(const TensorView& grad_y) {
  return backward(grad_y, {});
}

MutableTensorView MultiHeadAttention::backward(const TensorView& grad_y,
                                               const MutableTensorView& grad_memory) {
  const DType dtype = in_weight_.value.dtype();
  const std::int64_t width = options_.width;
  const std::int64_t own = memory_.defined() ? width : width + 2 * kv_width_;
  if (memory_.defined() != grad_memory.defined()) {
    throw InvalidArgument("grad_memory", memory_.defined()
                                             ? "expected a tensor, got none"
                                             : "expected none after self-attention, got a tensor");
  }
  if (memory_.defined()) as_rows_of(grad_memory, dtype, memory_shape_, "grad_memory");
  const MutableTensorView grad_context = out_.backward(grad_y);
  const MutableTensorView grad_projected = grad_projected_.of(dtype, {x_.extent(0), own});
  MutableTensorView grad_of_memory;
  if (memory_.defined()) {
    grad_of_memory = grad_projected_memory_.of(dtype, {memory_.extent(0), 2 * kv_width_});
  }
  const Heads<MutableTensorView> to = split(grad_projected, grad_of_memory);
  const auto heads_of = [&](const MutableTensorView& contexts) {
    return as_heads(reshaped(contexts, {x_.extent(0), width}), shape_, 0, options_.heads,
                    head_dim_);
  };
  attention_.execution.stop = current_stop();
  const engine::OpenMpThreads threads;  // those of the matrix products
  attention_backward({heads_.query, heads_.key, heads_.value, heads_of(context_.last()),
                      lse_.last(), heads_of(grad_context)},
                     attention_, {to.query, to.key, to.value});
  rotate(to.query, 0, true);
  rotate(to.key, 0, true);

  if (memory_.defined()) {
    const Projection of_memory = projection(width, 2 * kv_width_);
    const Shape rows{memory_.extent(0), width};
    affine_backward(grad_of_memory, memory_, of_memory.weight, of_memory.grad_weight,
                    of_memory.grad_bias, reshaped(grad_memory, rows), true);
  }
  const Projection of_x = projection(0, own);
  const MutableTensorView grad_x = grad_x_.of(dtype, {x_.extent(0), width});
  affine_backward(grad_projected, x_, of_x.weight, of_x.grad_weight, of_x.grad_bias, grad_x);
  return reshaped(grad_x, shape_);
}

KvCache MultiHeadAttention::new_cache(std::int64_t batch, std::int64_t capacity) const {
  return KvCache(
      {.batch = batch, .kv_heads = options_.kv_heads, .head_dim = head_dim_, .capacity = capacity});
}

MutableTensorView MultiHeadAttention::step(const TensorView& x, KvCache& cache) {
  check_evaluation();
  const std::int64_t width = options_.width, kv_heads = options_.kv_heads;
  const MutableTensorView projected = project(x, "x", 0, width + 2 * kv_width_, projected_);
  const std::int64_t before = cache.length();
  rotate(as_heads(projected, x.shape(), 0, options_.heads, head_dim_), before, false);
  const MutableTensorView key = as_heads(projected, x.shape(), width, kv_heads, head_dim_);
  rotate(key, before, false);
  cache.append(key, as_heads(projected, x.shape(), width + kv_width_, kv_heads, head_dim_));
  return decode(x.shape(), cache, causal(), before);
}

void MultiHeadAttention::keep_memory(const TensorView& memory, KvCache& cache) {
  const MutableTensorView projected =
      project(memory, "memory", options_.width, 2 * kv_width_, projected_memory_);
  const MutableTensorView key =
      as_heads(projected, memory.shape(), 0, options_.kv_heads, head_dim_);
  rotate(key, cache.length(), false);
  cache.append(key, as_heads(projected, memory.shape(), kv_width_, options_.kv_heads, head_dim_));
}

MutableTensorView MultiHeadAttention::look(const TensorView& x, const KvCache& memory,
                                           const Mask& mask, std::int64_t first_position) {
  check_evaluation();
  const MutableTensorView projected = project(x, "x", 0, options_.width, projected_);
  rotate(as_heads(projected, x.shape(), 0, options_.heads, head_dim_), first_position, false);
  return decode(x.shape(), memory, mask, first_position);
}

void MultiHeadAttention::check_evaluation() const {
  if (model_.training() && options_.dropout > 0.0) {
    throw InvalidArgument(
        "model: expected evaluation mode for decoding, which has no dropout, got training mode");
  }
}

MutableTensorView MultiHeadAttention::decode(const Shape& shape, const KvCache& cache,
                                             const Mask& mask, std::int64_t first_position) {
  const std::int64_t batch = shape[0], rows = shape[0] * shape[1];
  // A cache of one batch item is broadcast to all sequences, by a stride of 0.
  const auto shared = [&](const TensorView& of) {
    if (of.extent(0) != 1) return of;
    Shape all = of.shape();
    Strides strides = of.strides();
    all[0] = batch;
    strides[0] = 0;
    return TensorView(of.data(), of.dtype(), all, strides);
  };
  heads_ = {as_heads(projected_.last(), shape, 0, options_.heads, head_dim_), shared(cache.key()),
            shared(cache.value())};
  attention_ = {};
  attention_.mask = mask;
  attention_.alignment = Alignment::offset(first_position);
  attention_.execution.stop = current_stop();
  const MutableTensorView context = context_.of(DType::kFloat32, {rows, options_.width});
  const MutableTensorView lse = lse_.of(DType::kFloat32, {batch, options_.heads, shape[1]});
  const engine::OpenMpThreads threads;  // those of the matrix products
  attention_decode(heads_.query, heads_.key, heads_.value, attention_,
                   {as_heads(context, shape, 0, options_.heads, head_dim_), lse});
  return out_.forward(reshaped(context, shape));
}

Tensor MultiHeadAttention::weights() const {
  const TensorView &query = heads_.query, &key = heads_.key;
  const std::int64_t group = options_.heads / options_.kv_heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  // Empty before the first forward. Otherwise all items have the same offset.
  const std::vector<std::int64_t>& offsets = attention_.alignment.values();
  const std::int64_t offset = offsets.empty() ? 0 : offsets[0];
  Tensor weights(in_weight_.value.dtype(),
                 {query.extent(0), query.extent(1), query.extent(2), key.extent(2)});
  for_each_index(weights.shape(), [&](const Index& at) {
    if (at[3] == 0) throw_if_stopped();
    if (!attention_.mask.visible(
            {.batch = at[0], .head = at[1], .query = at[2], .key = at[3], .offset = offset})) {
      return;
    }
    double score = 0.0;
    for (std::int64_t d = 0; d < head_dim_; ++d) {
      score += query.value({at[0], at[1], at[2], d}) * key.value({at[0], at[1] / group, at[3], d});
    }
    set_value(weights, at, std::exp(scale * score - lse_.last().value({at[0], at[1], at[2]})));
  });
  return weights;
}

}  // namespace fovea::nn
