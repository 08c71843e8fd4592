// SPDX-License-Identifier: Apache-2.0
//
// A recurrent decoder that attends to what an encoder made of a sentence.

#pragma once

#include <cstdint>
#include <span>

#include "fovea/export.h"
#include "fovea/nn/additive_attention.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/gru.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// The decoder of Bahdanau, Cho and Bengio (2015), appendix A.2.2, with the cell of gru.h. At each
/// step
///
///   context = additive attention of the hidden state before to the encoder's outputs
///   hidden  = cell([embedding; context], hidden before)
///   y       = [hidden; context; embedding]
///
/// of which a model makes the logits of the next token. Conventions and errors as Linear.
class FOVEA_API GruDecoder {
 public:
  struct Dims {
    std::int64_t embed_dim, hidden, encoder_dim;
    std::int64_t attention_dim;  ///< of the tanh
  };
  /// attention.query_proj.weight, attention.key_proj.weight and attention.v as AdditiveAttention's;
  /// cell.weight_ih [3 hidden, embed_dim + encoder_dim], cell.weight_hh, cell.bias_ih and
  /// cell.bias_hh as PyTorch's nn.GRUCell.
  GruDecoder(const Scope& scope, const Dims& dims);

  std::int64_t y_dim() const { return dims_.hidden + dims_.encoder_dim + dims_.embed_dim; }

  /// All steps of sentences that are known (teacher forcing).
  ///
  /// embeddings  [batch, length, embed_dim], of the token before each step's
  /// encoder     [batch, kv_len, encoder_dim]
  /// lengths     one per item, 0 .. kv_len, of its encoder's outputs that count; empty: all do.
  ///             The others have to be finite numbers.
  /// initial     [batch, hidden], before the first step
  ///
  /// Returns [batch, length, y_dim].
  MutableTensorView forward(const TensorView& embeddings, const TensorView& encoder,
                            const TensorView& initial, std::span<const std::int64_t> lengths = {});
  /// [batch, length, kv_len]: where each step looked; until the next forward, prepare or step.
  TensorView weights() const { return attention_.weights(); }

  struct Gradients {
    MutableTensorView embeddings, encoder, initial;
  };
  /// grad_y [batch, length, y_dim]; zeros at steps that do not count.
  Gradients backward(const TensorView& grad_y);

  /// Token by token: `prepare` once for the encoder's outputs, which have to stay, then as many
  /// steps as one likes. There is no backward of these.
  void prepare(const TensorView& encoder, std::span<const std::int64_t> lengths = {});
  struct Step {
    MutableTensorView y;       ///< [batch, y_dim]
    MutableTensorView hidden;  ///< [batch, hidden], of the next step
    TensorView weights;        ///< [batch, kv_len]
  };
  /// embedding [batch, embed_dim]; hidden [batch, hidden], which may be that of the step before.
  Step step(const TensorView& embedding, const TensorView& hidden);

 private:
  void run(const TensorView& embeddings, std::int64_t length, const TensorView& first);

  Dims dims_;
  AdditiveAttention attention_;
  GruParameters cell_;
  std::int64_t batch_ = 0, length_ = 0;
  TensorView embeddings_;                                   // as rows
  MutableTensorView gates_, product_, before_, after_, y_;  // rows of all steps; after_ the last
  Buffer gates_buffer_, product_buffer_, before_buffer_, after_buffer_, y_buffer_, hidden_gates_;
  Buffer grad_gates_, grad_hidden_gates_, grad_embeddings_, grad_context_, grad_hidden_;
};

}  // namespace fovea::nn
