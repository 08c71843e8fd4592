// SPDX-License-Identifier: Apache-2.0
//
// Multi-head attention with learned projections, on the fused kernels.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/kv_cache.h"
#include "fovea/mask.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/linear.h"
#include "fovea/nn/model.h"
#include "fovea/rotary.h"

namespace fovea::nn {

struct MultiHeadAttentionOptions {
  std::int64_t width = 0;
  std::int64_t heads = 1;     ///< must divide width
  std::int64_t kv_heads = 0;  ///< must divide heads (grouped heads); 0: equal to heads
  double dropout = 0.0;       ///< dropout probability of the weights
  bool bias = true;
  /// Rotation of queries and keys, for self-attention. In cross-attention, the keys are rotated by
  /// their positions in the memory.
  std::optional<Rotary> rotary = std::nullopt;
};

/// Multi-head attention (Vaswani et al. 2017, sec. 3.2.2), including the output projection.
///
/// Parameters are as in nn.MultiheadAttention: in_proj_weight [(heads + 2 kv_heads) head_dim,
/// width], rows for queries, keys and values, Glorot uniform; in_proj_bias, zeros; out_proj.weight
/// [width, width]; out_proj.bias, zeros.
///
/// Query i is aligned with key i for causal masks and windows, for any lengths. Scores and weights
/// are not stored: memory grows linearly with the lengths, not with their product.
class FOVEA_API MultiHeadAttention {
 public:
  /// Throws InvalidArgument if heads does not divide width, kv_heads does not divide heads, or the
  /// rotation does not fit width / heads. The model is then unchanged.
  MultiHeadAttention(const Scope& scope, const MultiHeadAttentionOptions& options);

  /// Self-attention. Takes x [batch, length, width] and returns the same shape.
  MutableTensorView forward(const TensorView& x, const Mask& mask = {});
  /// Cross-attention: queries from x, keys and values from memory [batch, kv_len, width].
  MutableTensorView forward(const TensorView& x, const TensorView& memory, const Mask& mask);

  /// Returns the gradient of x after self-attention.
  MutableTensorView backward(const TensorView& grad_y);
  /// Returns the gradient of x after cross-attention, and adds that of memory to `grad_memory`,
  /// which has memory's shape.
  MutableTensorView backward(const TensorView& grad_y, const MutableTensorView& grad_memory);

  /// Decodes the next tokens of sequences, x [batch, n, width] in float32, with a small n. Appends
  /// the keys and values of these tokens to `cache`, after those of the earlier tokens. The result
  /// equals the corresponding rows of forward with a causal mask. Stores nothing for backward.
  /// Throws InvalidArgument in training mode with dropout, as look does.
  MutableTensorView step(const TensorView& x, KvCache& cache);
  /// Equivalents for cross-attention: keep_memory appends the keys and values of a memory to a
  /// cache; look lets queries attend to them. If the cache has one item, all items of x share it.
  /// The result of look equals rows first_position, first_position + 1, ... of forward with the
  /// same mask: query i is aligned with key first_position + i.
  void keep_memory(const TensorView& memory, KvCache& cache);
  MutableTensorView look(const TensorView& x, const KvCache& memory, const Mask& mask,
                         std::int64_t first_position = 0);
  /// Returns a cache for these functions, with room for `capacity` tokens; 0: grows on demand.
  KvCache new_cache(std::int64_t batch, std::int64_t capacity = 0) const;

  /// Recomputes the weights of the last forward or look, without dropout: [batch, heads, length,
  /// kv_len]. Meant for inspection: takes the memory and time that fused attention saves.
  Tensor weights() const;

 private:
  /// Queries, keys and values, each [batch, heads, length, head_dim].
  template <class View>
  struct Heads {
    View query, key, value;
  };
  /// A range of rows of in_proj.
  struct Projection {
    MutableTensorView weight, bias, grad_weight, grad_bias;
  };

  Projection projection(std::int64_t first, std::int64_t count);
  /// Views projected rows, or their gradients, as heads. With a memory, keys and values come from
  /// `of_memory`.
  Heads<MutableTensorView> split(const MutableTensorView& of_x,
                                 const MutableTensorView& of_memory) const;
  /// Rotates queries or keys by the angles of their positions, or by the negative angles if `back`.
  void rotate(const MutableTensorView& rows, std::int64_t first_position, bool back) const;
  /// Multiplies x [batch, length, width] by `count` rows of in_proj, starting at `first`, and
  /// stores the result in `to`.
  MutableTensorView project(const TensorView& x, std::string_view name, std::int64_t first,
                            std::int64_t count, Buffer& to);
  /// Throws InvalidArgument in training mode with dropout.
  void check_evaluation() const;
  /// Returns the output of attention to a cache. The queries are the first columns of `projected_`,
  /// and the first of them is aligned with key `first_position`.
  MutableTensorView decode(const Shape& shape, const KvCache& cache, const Mask& mask,
                           std::int64_t first_position);

  Model& model_;
  MultiHeadAttentionOptions options_;
  std::int64_t head_dim_, kv_width_;
  std::uint32_t dropout_;
  Parameter& in_weight_;
  Parameter* in_bias_;
  Linear out_;

  // State of the last forward:
  TensorView x_, memory_;  // flattened to rows; memory_ undefined for self-attention
  Shape shape_;            // shape of x
  Shape memory_shape_;     // shape of the memory; for self-attention, of x
  AttentionOptions attention_;
  Heads<TensorView> heads_;
  Buffer projected_, projected_memory_, context_, lse_;

  Buffer grad_projected_, grad_projected_memory_, grad_x_;
};

}  // namespace fovea::nn
