// SPDX-License-Identifier: Apache-2.0
//
// A recurrent decoder with attention to an encoder's outputs.

#pragma once

#include <cstdint>
#include <span>

#include "fovea/export.h"
#include "fovea/nn/additive_attention.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/gru.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// The decoder of Bahdanau, Cho and Bengio (2015), appendix A.2.2, with the cell of gru.h. Each
/// step computes
///
///   context = additive attention of the previous hidden state to the encoder's outputs
///   hidden  = cell([embedding; context], previous hidden state)
///   y       = [hidden; context; embedding]
///
/// A model computes the logits of the next token from y. Conventions and errors as in Linear.
class FOVEA_API GruDecoder {
 public:
  struct Dims {
    std::int64_t embed_dim, hidden, encoder_dim;
    std::int64_t attention_dim;  ///< width of the tanh layer
  };
  /// Creates attention.query_proj.weight, attention.key_proj.weight and attention.v as
  /// AdditiveAttention does, and cell.weight_ih [3 hidden, embed_dim + encoder_dim],
  /// cell.weight_hh, cell.bias_ih and cell.bias_hh as in PyTorch's nn.GRUCell.
  GruDecoder(const Scope& scope, const Dims& dims);

  std::int64_t y_dim() const { return dims_.hidden + dims_.encoder_dim + dims_.embed_dim; }

  /// Processes all steps of known target sentences (teacher forcing).
  ///
  /// embeddings  [batch, length, embed_dim], of the token before each step
  /// encoder     [batch, kv_len, encoder_dim]
  /// lengths     the number of encoder outputs that each item attends to, 0 .. kv_len; empty: all
  ///             kv_len. Outputs beyond the length must be finite.
  /// initial     [batch, hidden], the hidden state before the first step
  ///
  /// Returns [batch, length, y_dim].
  MutableTensorView forward(const TensorView& embeddings, const TensorView& encoder,
                            const TensorView& initial, std::span<const std::int64_t> lengths = {});
  /// Returns the attention weights of each step, [batch, length, kv_len]. Valid until the next
  /// forward, prepare or step.
  TensorView weights() const { return attention_.weights(); }

  struct Gradients {
    MutableTensorView embeddings, encoder, initial;
  };
  /// Takes grad_y [batch, length, y_dim], which must be zero at ignored steps.
  Gradients backward(const TensorView& grad_y);

  /// Stepwise decoding: call `prepare` once for the encoder's outputs, which must stay valid, then
  /// `step` any number of times. These functions have no backward pass.
  void prepare(const TensorView& encoder, std::span<const std::int64_t> lengths = {});
  struct Step {
    MutableTensorView y;       ///< [batch, y_dim]
    MutableTensorView hidden;  ///< [batch, hidden], input of the next step
    TensorView weights;        ///< [batch, kv_len]
  };
  /// Takes embedding [batch, embed_dim] and hidden [batch, hidden], which may be the result of the
  /// previous step.
  Step step(const TensorView& embedding, const TensorView& hidden);

 private:
  void run(const TensorView& embeddings, std::int64_t length, const TensorView& first);

  Dims dims_;
  AdditiveAttention attention_;
  GruParameters cell_;
  std::int64_t batch_ = 0, length_ = 0;
  TensorView embeddings_;                                   // flattened to rows
  MutableTensorView gates_, product_, before_, after_, y_;  // rows of all steps; after_: last step
  Buffer gates_buffer_, product_buffer_, before_buffer_, after_buffer_, y_buffer_, hidden_gates_;
  Buffer grad_gates_, grad_hidden_gates_, grad_embeddings_, grad_context_, grad_hidden_;
};

}  // namespace fovea::nn
