// SPDX-License-Identifier: Apache-2.0
//
// A transformer translator (Vaswani et al. 2017) with norms before the layers. Positions are
// encoded by sinusoids and, in self-attention, by rotary embeddings.

#pragma once

#include <optional>

#include "fovea/nn/embedding.h"
#include "fovea/nn/linear.h"
#include "fovea/nn/transformer.h"
#include "fovea/nn/transformer_decoding.h"

#include "train/translator.h"

namespace fovea::train {

/// Parameter names: source_embedding, target_embedding, transformer (as nn.Transformer), output.
class TransformerTranslator : public Translator {
 public:
  explicit TransformerTranslator(const TranslatorOptions& options);

  MutableTensorView forward(const Batch& batch) override;
  void backward(const TensorView& grad_logits) override;
  void begin(const TensorView& source, const std::vector<std::int64_t>& lengths,
             std::int64_t sequences) override;
  MutableTensorView step(const TensorView& tokens) override;
  void reorder(std::span<const std::int64_t> rows) override;
  Tensor weights() const override;

 private:
  MutableTensorView encode(const TensorView& source, const std::vector<std::int64_t>& lengths);

  nn::Positions positions_;
  nn::Transformer transformer_;
  nn::Linear output_;
  std::optional<nn::TransformerDecoding> decoding_;
};

}  // namespace fovea::train
