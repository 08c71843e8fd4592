// SPDX-License-Identifier: Apache-2.0
//
// Encoder and decoder of the transformer.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/nn/feed_forward.h"
#include "fovea/nn/layer_norm.h"
#include "fovea/nn/multi_head_attention.h"
#include "fovea/nn/residual.h"

namespace fovea::nn {

/// Options of one block, equivalent to those of PyTorch's nn.TransformerEncoderLayer.
struct TransformerOptions {
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  ///< 0: heads
  std::int64_t inner = 1024;  ///< inner width of the feed-forward block
  double dropout = 0.0;
  Activation activation = Activation::kRelu;
  NormPlace norm = NormPlace::kAfter;
  std::optional<Rotary> rotary = std::nullopt;  ///< only in self-attention
};

/// Self-attention, then feed-forward, each in a residual block. Parameter names are self_attn,
/// linear1, linear2, norm1 and norm2, as in nn.TransformerEncoderLayer.
class FOVEA_API TransformerEncoderLayer {
 public:
  TransformerEncoderLayer(const Scope& scope, const TransformerOptions& options);

  /// Takes x [batch, length, width] and returns the same shape.
  MutableTensorView forward(const TensorView& x, const Mask& mask = {});
  MutableTensorView backward(const TensorView& grad_y);

  const MultiHeadAttention& self_attention() const { return self_attention_; }

 private:
  MultiHeadAttention self_attention_;
  FeedForward feed_forward_;
  Residual around_attention_, around_feed_forward_;
};

/// Self-attention, cross-attention to the encoder's memory, then feed-forward. Parameter names are
/// self_attn, multihead_attn, linear1, linear2 and norm1 to norm3, as in
/// nn.TransformerDecoderLayer.
class FOVEA_API TransformerDecoderLayer {
 public:
  TransformerDecoderLayer(const Scope& scope, const TransformerOptions& options);

  /// Takes x [batch, length, width] and memory [batch, kv_len, width]. Returns x's shape.
  MutableTensorView forward(const TensorView& x, const TensorView& memory, const Mask& mask,
                            const Mask& memory_mask);
  /// Returns the gradient of x and adds the gradient of memory to `grad_memory`.
  MutableTensorView backward(const TensorView& grad_y, const MutableTensorView& grad_memory);

  /// Keys and values of the decoded tokens (own) and of the memory.
  struct Caches {
    KvCache own, memory;
  };
  /// Returns caches for a memory [batch, kv_len, width] and `sequences` sequences without decoded
  /// tokens. `sequences` must equal batch; if batch is 1, any number of sequences can share the
  /// memory.
  Caches begin(const TensorView& memory, std::int64_t sequences);
  /// Computes the next tokens, x [sequences, n, width], as forward does with a causal mask. Tokens
  /// keep their positions: with a causal `memory_mask`, token t attends to keys 0 to t.
  MutableTensorView step(const TensorView& x, Caches& caches, const Mask& memory_mask);

  const MultiHeadAttention& self_attention() const { return self_attention_; }
  const MultiHeadAttention& cross_attention() const { return cross_attention_; }

 private:
  MultiHeadAttention self_attention_, cross_attention_;
  FeedForward feed_forward_;
  Residual around_self_attention_, around_cross_attention_, around_feed_forward_;
};

/// Encoder and decoder, each a stack of layers with a final norm, as in nn.Transformer. Parameter
/// names are encoder.layers.0, encoder.norm, decoder.layers.0, decoder.norm and so on. Matrices are
/// initialised with Glorot's uniform distribution.
class FOVEA_API Transformer {
 public:
  Transformer(const Scope& scope, std::int64_t encoder_layers, std::int64_t decoder_layers,
              const TransformerOptions& options);

  /// Takes source [batch, kv_len, width] and target [batch, length, width]. Source tokens beyond
  /// source_lengths are padding (empty: no padding). Target positions are masked causally. Returns
  /// target's shape.
  MutableTensorView forward(const TensorView& source, const TensorView& target,
                            const std::vector<std::int64_t>& source_lengths = {});
  struct Gradients {
    MutableTensorView source, target;
  };
  Gradients backward(const TensorView& grad_y);

  /// The two halves of forward. The result of encode stays valid until the encoder's next forward.
  MutableTensorView encode(const TensorView& source,
                           const std::vector<std::int64_t>& source_lengths = {});
  MutableTensorView decode(const TensorView& target, const TensorView& memory,
                           const std::vector<std::int64_t>& source_lengths = {});

  std::deque<TransformerEncoderLayer>& encoder_layers() { return encoder_layers_; }
  std::deque<TransformerDecoderLayer>& decoder_layers() { return decoder_layers_; }
  const std::deque<TransformerDecoderLayer>& decoder_layers() const { return decoder_layers_; }
  LayerNorm& decoder_norm() { return decoder_norm_; }

 private:
  std::deque<TransformerEncoderLayer> encoder_layers_;
  LayerNorm encoder_norm_;
  std::deque<TransformerDecoderLayer> decoder_layers_;
  LayerNorm decoder_norm_;
  Shape memory_shape_;
  Buffer grad_memory_;
};

}  // namespace fovea::nn
