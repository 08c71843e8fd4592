// SPDX-License-Identifier: Apache-2.0
//
// The transformer's encoder and decoder (fovea/nn/transformer.h).

#include "fovea/nn/transformer.h"

#include <cstring>

#include "core/fail.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

MultiHeadAttentionOptions attention_options(const TransformerOptions& options, bool self) {
  return {.width = options.width,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .dropout = options.dropout,
          .rotary = self ? options.rotary : std::nullopt};
}

FeedForward feed_forward(const Scope& scope, const TransformerOptions& options) {
  return {scope, options.width, options.inner, options.activation, options.dropout};
}

Residual residual(const Scope& scope, std::string_view norm, const TransformerOptions& options) {
  return {scope, norm, options.width, options.norm, options.dropout};
}

template <class Layer>
std::deque<Layer> layers(const Scope& scope, std::int64_t count,
                         const TransformerOptions& options) {
  if (count < 0) fail("layers: expected 0 or more, got {}", count);
  std::deque<Layer> result;
  for (std::int64_t i = 0; i < count; ++i) result.emplace_back(scope.in("layers", i), options);
  return result;
}

Mask padding(const std::vector<std::int64_t>& lengths) {
  return lengths.empty() ? Mask() : key_lengths(lengths);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const Scope& scope,
                                                 const TransformerOptions& options)
    : self_attention_(scope.in("self_attn"), attention_options(options, true)),
      feed_forward_(feed_forward(scope, options)),
      around_attention_(residual(scope, "norm1", options)),
      around_feed_forward_(residual(scope, "norm2", options)) {}

MutableTensorView TransformerEncoderLayer::forward(const TensorView& x, const Mask& mask) {
  const MutableTensorView attended = around_attention_.forward(
      x, [&](const TensorView& in) { return self_attention_.forward(in, mask); });
  return around_feed_forward_.forward(
      attended, [&](const TensorView& in) { return feed_forward_.forward(in); });
}

MutableTensorView TransformerEncoderLayer::backward(const TensorView& grad_y) {
  const MutableTensorView grad_attended = around_feed_forward_.backward(
      grad_y, [&](const TensorView& grad) { return feed_forward_.backward(grad); });
  return around_attention_.backward(
      grad_attended, [&](const TensorView& grad) { return self_attention_.backward(grad); });
}

TransformerDecoderLayer::TransformerDecoderLayer(const Scope& scope,
                                                 const TransformerOptions& options)
    : self_attention_(scope.in("self_attn"), attention_options(options, true)),
      cross_attention_(scope.in("multihead_attn"), attention_options(options, false)),
      feed_forward_(feed_forward(scope, options)),
      around_self_attention_(residual(scope, "norm1", options)),
      around_cross_attention_(residual(scope, "norm2", options)),
      around_feed_forward_(residual(scope, "norm3", options)) {}

MutableTensorView TransformerDecoderLayer::forward(const TensorView& x, const TensorView& memory,
                                                   const Mask& mask, const Mask& memory_mask) {
  const MutableTensorView looked_back = around_self_attention_.forward(
      x, [&](const TensorView& in) { return self_attention_.forward(in, mask); });
  const MutableTensorView looked_over = around_cross_attention_.forward(
      looked_back,
      [&](const TensorView& in) { return cross_attention_.forward(in, memory, memory_mask); });
  return around_feed_forward_.forward(
      looked_over, [&](const TensorView& in) { return feed_forward_.forward(in); });
}

MutableTensorView TransformerDecoderLayer::backward(const TensorView& grad_y,
                                                    const MutableTensorView& grad_memory) {
  const MutableTensorView grad_over = around_feed_forward_.backward(
      grad_y, [&](const TensorView& grad) { return feed_forward_.backward(grad); });
  const MutableTensorView grad_back = around_cross_attention_.backward(
      grad_over,
      [&](const TensorView& grad) { return cross_attention_.backward(grad, grad_memory); });
  return around_self_attention_.backward(
      grad_back, [&](const TensorView& grad) { return self_attention_.backward(grad); });
}

TransformerDecoderLayer::Caches TransformerDecoderLayer::begin(const TensorView& memory,
                                                               std::int64_t sequences) {
  Caches caches{self_attention_.new_cache(sequences),
                cross_attention_.new_cache(memory.extent(0), memory.extent(1))};
  cross_attention_.keep_memory(memory, caches.memory);
  return caches;
}

MutableTensorView TransformerDecoderLayer::step(const TensorView& x, Caches& caches,
                                                const Mask& memory_mask) {
  const std::int64_t before = caches.own.length();
  const MutableTensorView looked_back = around_self_attention_.forward(
      x, [&](const TensorView& in) { return self_attention_.step(in, caches.own); });
  const MutableTensorView looked_over =
      around_cross_attention_.forward(looked_back, [&](const TensorView& in) {
        return cross_attention_.look(in, caches.memory, memory_mask, before);
      });
  return around_feed_forward_.forward(
      looked_over, [&](const TensorView& in) { return feed_forward_.forward(in); });
}

Transformer::Transformer(const Scope& scope, std::int64_t encoder_layers,
                         std::int64_t decoder_layers, const TransformerOptions& options)
    : encoder_layers_(
          layers<TransformerEncoderLayer>(scope.in("encoder"), encoder_layers, options)),
      encoder_norm_(scope.in("encoder").in("norm"), options.width),
      decoder_layers_(
          layers<TransformerDecoderLayer>(scope.in("decoder"), decoder_layers, options)),
      decoder_norm_(scope.in("decoder").in("norm"), options.width) {
  scope.redraw_glorot();
}

MutableTensorView Transformer::forward(const TensorView& source, const TensorView& target,
                                       const std::vector<std::int64_t>& source_lengths) {
  return decode(target, encode(source, source_lengths), source_lengths);
}

MutableTensorView Transformer::encode(const TensorView& source,
                                      const std::vector<std::int64_t>& source_lengths) {
  const Mask mask = padding(source_lengths);
  TensorView x = source;
  for (TransformerEncoderLayer& layer : encoder_layers_) x = layer.forward(x, mask);
  return encoder_norm_.forward(x);
}

MutableTensorView Transformer::decode(const TensorView& target, const TensorView& memory,
                                      const std::vector<std::int64_t>& source_lengths) {
  const Mask mask = causal(), memory_mask = padding(source_lengths);
  memory_shape_ = memory.shape();
  TensorView x = target;
  for (TransformerDecoderLayer& layer : decoder_layers_) {
    x = layer.forward(x, memory, mask, memory_mask);
  }
  return decoder_norm_.forward(x);
}

Transformer::Gradients Transformer::backward(const TensorView& grad_y) {
  const MutableTensorView grad_memory = grad_memory_.of(grad_y.dtype(), memory_shape_);
  std::memset(grad_memory.data(), 0,
              static_cast<std::size_t>(grad_memory.size()) * dtype_size(grad_memory.dtype()));
  MutableTensorView grad_target = decoder_norm_.backward(grad_y);
  for (auto layer = decoder_layers_.rbegin(); layer != decoder_layers_.rend(); ++layer) {
    grad_target = layer->backward(grad_target, grad_memory);
  }
  MutableTensorView grad_source = encoder_norm_.backward(grad_memory);
  for (auto layer = encoder_layers_.rbegin(); layer != encoder_layers_.rend(); ++layer) {
    grad_source = layer->backward(grad_source);
  }
  return {grad_source, grad_target};
}

}  // namespace fovea::nn
