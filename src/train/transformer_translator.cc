// SPDX-License-Identifier: Apache-2.0
//
// The transformer translator (transformer_translator.h).

#include "train/transformer_translator.h"

namespace fovea::train {
namespace {

nn::TransformerOptions transformer_options(const TranslatorOptions& options) {
  nn::TransformerOptions result{.width = options.width,
                                .heads = options.heads,
                                .inner = options.inner,
                                .dropout = options.dropout,
                                .norm = nn::NormPlace::kBefore};
  if (options.rotary_base > 0.0) result.rotary = Rotary{.base = options.rotary_base};
  return result;
}

}  // namespace

TransformerTranslator::TransformerTranslator(const TranslatorOptions& options)
    : Translator(options),
      positions_(model_.scope("positions"), nn::PositionKind::kSinusoidal, options.max_length,
                 options.width),
      transformer_(model_.scope("transformer"), options.encoder_layers, options.decoder_layers,
                   transformer_options(options)),
      output_(model_.scope("output"), options.width, options.target_symbols) {}

MutableTensorView TransformerTranslator::encode(const TensorView& source,
                                                const std::vector<std::int64_t>& lengths) {
  const MutableTensorView x = source_embedding_.forward(source);
  positions_.forward(x);
  source_dropout_.forward(x);
  return transformer_.encode(x, lengths);
}

MutableTensorView TransformerTranslator::forward(const Batch& batch) {
  const MutableTensorView memory = encode(batch.source, batch.source_lengths);
  const MutableTensorView x = target_embedding_.forward(batch.target);
  positions_.forward(x);
  target_dropout_.forward(x);
  return output_.forward(transformer_.decode(x, memory, batch.source_lengths));
}

void TransformerTranslator::backward(const TensorView& grad_logits) {
  const nn::Transformer::Gradients grad = transformer_.backward(output_.backward(grad_logits));
  target_dropout_.backward_in_place(grad.target);
  target_embedding_.backward(grad.target);
  source_dropout_.backward_in_place(grad.source);
  source_embedding_.backward(grad.source);
}

void TransformerTranslator::begin(const TensorView& source,
                                  const std::vector<std::int64_t>& lengths,
                                  std::int64_t sequences) {
  const MutableTensorView memory = encode(source, lengths);
  decoding_.emplace(transformer_, memory, sequences, lengths);
}

MutableTensorView TransformerTranslator::step(const TensorView& tokens) {
  const MutableTensorView rows = target_embedding_.forward(tokens);
  const MutableTensorView x(static_cast<float*>(rows.data()), {rows.extent(0), 1, rows.extent(1)});
  positions_.forward(x, decoding_->length());
  const MutableTensorView y = decoding_->step(x);
  return output_.forward(TensorView(static_cast<const float*>(y.data()), rows.shape()));
}

void TransformerTranslator::reorder(std::span<const std::int64_t> rows) {
  decoding_->reorder(rows);
}

Tensor TransformerTranslator::weights() const { return decoding_->weights(); }

}  // namespace fovea::train
