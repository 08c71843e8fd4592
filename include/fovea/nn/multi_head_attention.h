// SPDX-License-Identifier: Apache-2.0
//
// Attention with learned projections, on the fused kernels.

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
  std::int64_t heads = 1;     ///< divides width
  std::int64_t kv_heads = 0;  ///< divides heads, which share them (grouped heads); 0: heads
  double dropout = 0.0;       ///< of the weights
  bool bias = true;
  std::optional<Rotary> rotary = std::nullopt;  ///< of queries and keys, for self-attention
};

/// Multi-head attention (Vaswani et al. 2017, sec. 3.2.2), its context projected once more.
///
/// Parameters, as nn.MultiheadAttention has them: in_proj_weight, rows of queries, keys, values:
/// [(heads + 2 kv_heads) head_dim, width], Glorot's uniform; in_proj_bias, zeros; out_proj.weight
/// [width, width], out_proj.bias, zeros.
///
/// Query i stands at key i, for causal masks and windows, whatever the lengths.
/// Neither scores nor weights are stored: memory grows with the lengths, not with their product.
class FOVEA_API MultiHeadAttention {
 public:
  /// Throws InvalidArgument for numbers that do not divide each other.
  MultiHeadAttention(const Scope& scope, const MultiHeadAttentionOptions& options);

  /// Self-attention. x [batch, length, width]; of the same shape.
  MutableTensorView forward(const TensorView& x, const Mask& mask = {});
  /// Cross-attention: queries of x, keys and values of memory [batch, kv_len, width].
  MutableTensorView forward(const TensorView& x, const TensorView& memory, const Mask& mask);

  /// After the first: the gradient of x.
  MutableTensorView backward(const TensorView& grad_y);
  /// After the second: the same; adds that of memory to `grad_memory`, of its shape.
  MutableTensorView backward(const TensorView& grad_y, const MutableTensorView& grad_memory);

  /// The next tokens of sequences whose keys and values before them `cache` holds, to which theirs
  /// are added: what forward with a causal mask gives for these rows. x [batch, n, width], float32;
  /// n is small. Nothing is kept for backward.
  MutableTensorView step(const TensorView& x, KvCache& cache);
  /// The same in two for cross-attention: a memory's keys and values, and queries that see them.
  /// Where the cache has one item, all of x's share it.
  void keep_memory(const TensorView& memory, KvCache& cache);
  MutableTensorView look(const TensorView& x, const KvCache& memory, const Mask& mask);
  /// A cache for these; `capacity` tokens, or 0 for one that grows.
  KvCache new_cache(std::int64_t batch, std::int64_t capacity = 0) const;

  /// The weights of the last forward or look, without dropout, computed anew:
  /// [batch, heads, length, kv_len]. To be looked at: this costs what fused attention saves.
  Tensor weights() const;

 private:
  /// Queries, keys and values, each [batch, heads, length, head_dim].
  template <class View>
  struct Heads {
    View query, key, value;
  };
  /// Some rows of in_proj.
  struct Projection {
    MutableTensorView weight, bias, grad_weight, grad_bias;
  };

  Projection projection(std::int64_t first, std::int64_t count);
  /// What was projected, or gradients of it, as heads; keys and values are in `of_memory` where
  /// there is a memory.
  Heads<MutableTensorView> split(const MutableTensorView& of_x,
                                 const MutableTensorView& of_memory) const;
  /// Turns queries or keys by the angles of their positions, or back.
  void rotate(const MutableTensorView& rows, std::int64_t first_position, bool back) const;
  /// Rows [batch, length, width] times these rows of in_proj, into `to`.
  MutableTensorView project(const TensorView& x, std::string_view name, std::int64_t first,
                            std::int64_t count, Buffer& to);
  /// What queries, the first of the rows in `projected_`, see of a cache.
  MutableTensorView decode(const Shape& shape, const KvCache& cache, const Mask& mask);

  Model& model_;
  MultiHeadAttentionOptions options_;
  std::int64_t head_dim_, kv_width_;
  std::uint32_t dropout_;
  Parameter& in_weight_;
  Parameter* in_bias_;
  Linear out_;

  // Of the last forward:
  TensorView x_, memory_;  // as rows; memory_ absent for self-attention
  Shape shape_;            // of x
  AttentionOptions attention_;
  Heads<TensorView> heads_;
  Buffer projected_, projected_memory_, context_, lse_;

  Buffer grad_projected_, grad_projected_memory_, grad_x_;
};

}  // namespace fovea::nn
