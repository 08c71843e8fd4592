// SPDX-License-Identifier: Apache-2.0
//
// A translator of recurrent layers with attention, which learns to align (Bahdanau et al. 2015).

#pragma once

#include "fovea/nn/dropout_layer.h"
#include "fovea/nn/gru.h"
#include "fovea/nn/gru_decoder.h"
#include "fovea/nn/linear.h"

#include "train/translator.h"

namespace fovea::train {

/// A bidirectional GRU encoder and a GRU decoder with additive attention. Parameter names:
/// source_embedding, target_embedding, encoder (as nn.GRU), bridge (maps the final state of the
/// encoder's backward direction to the decoder's initial state), decoder, output.
class GruTranslator : public Translator {
 public:
  explicit GruTranslator(const TranslatorOptions& options);

  MutableTensorView forward(const Batch& batch) override;
  void backward(const TensorView& grad_logits) override;
  void begin(const TensorView& source, const std::vector<std::int64_t>& lengths,
             std::int64_t sequences) override;
  MutableTensorView step(const TensorView& tokens) override;
  void reorder(std::span<const std::int64_t> rows) override;
  Tensor weights() const override;

 private:
  struct Encoded {
    MutableTensorView memory;   // [batch, length, 2 width]
    MutableTensorView initial;  // [batch, width]
  };
  Encoded encode(const TensorView& source, const std::vector<std::int64_t>& lengths);

  nn::DropoutLayer output_dropout_;
  nn::Gru encoder_;
  nn::Linear bridge_;
  nn::GruDecoder decoder_;
  nn::Linear output_;

  MutableTensorView initial_;  // tanh of the bridge's output
  nn::Buffer grad_bridge_, grad_final_;
  Tensor memory_, hidden_, weights_;  // the state of decoding
};

}  // namespace fovea::train
