// SPDX-License-Identifier: Apache-2.0
//
// The translator of recurrent layers (gru_translator.h).

#include "train/gru_translator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fovea::train {
namespace {

std::span<float> numbers(const MutableTensorView& contiguous) {
  return {static_cast<float*>(contiguous.data()), static_cast<std::size_t>(contiguous.size())};
}

/// Returns copies of the batch items `rows` of a tensor.
Tensor items(const Tensor& of, std::span<const std::int64_t> rows) {
  Shape shape = of.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor result(of.dtype(), shape);
  const std::int64_t width = of.size() / of.extent(0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(of.span<float>().begin() + rows[i] * width, width,
                result.span<float>().begin() + static_cast<std::int64_t>(i) * width);
  }
  return result;
}

}  // namespace

GruTranslator::GruTranslator(const TranslatorOptions& options)
    : Translator(options),
      output_dropout_(model_.scope(), options.dropout),
      encoder_(model_.scope("encoder"), options.width, options.width, true),
      bridge_(model_.scope("bridge"), options.width, options.width),
      decoder_(model_.scope("decoder"), {.embed_dim = options.width,
                                         .hidden = options.width,
                                         .encoder_dim = 2 * options.width,
                                         .attention_dim = options.width}),
      output_(model_.scope("output"), decoder_.y_dim(), options.target_symbols) {}

GruTranslator::Encoded GruTranslator::encode(const TensorView& source,
                                             const std::vector<std::int64_t>& lengths) {
  const MutableTensorView x = source_embedding_.forward(source);
  source_dropout_.forward(x);
  const MutableTensorView memory = encoder_.forward(x, lengths);
  const MutableTensorView initial = bridge_.forward(encoder_.final_hidden()[1]);
  for (float& number : numbers(initial)) number = std::tanh(number);
  return {memory, initial};
}

MutableTensorView GruTranslator::forward(const Batch& batch) {
  const Encoded encoded = encode(batch.source, batch.source_lengths);
  initial_ = encoded.initial;
  const MutableTensorView x = target_embedding_.forward(batch.target);
  target_dropout_.forward(x);
  const MutableTensorView y =
      decoder_.forward(x, encoded.memory, encoded.initial, batch.source_lengths);
  output_dropout_.forward(y);
  return output_.forward(y);
}

void GruTranslator::backward(const TensorView& grad_logits) {
  const MutableTensorView grad_y = output_.backward(grad_logits);
  output_dropout_.backward_in_place(grad_y);
  const nn::GruDecoder::Gradients grad = decoder_.backward(grad_y);
  target_dropout_.backward_in_place(grad.embeddings);
  target_embedding_.backward(grad.embeddings);

  const MutableTensorView grad_bridge = grad_bridge_.of(DType::kFloat32, initial_.shape());
  for (std::size_t i = 0; i < numbers(grad_bridge).size(); ++i) {
    const float after = numbers(initial_)[i];
    numbers(grad_bridge)[i] = numbers(grad.initial)[i] * (1.0f - after * after);
  }
  // The final state of the forward direction is not used, so its gradient is 0.
  Shape both = initial_.shape();
  both = {2, both[0], both[1]};
  const MutableTensorView grad_final = grad_final_.of(DType::kFloat32, both);
  std::ranges::fill(numbers(grad_final[0]), 0.0f);
  std::ranges::copy(numbers(bridge_.backward(grad_bridge)), numbers(grad_final[1]).begin());
  const MutableTensorView grad_x = encoder_.backward(grad.encoder, grad_final).x;
  source_dropout_.backward_in_place(grad_x);
  source_embedding_.backward(grad_x);
}

void GruTranslator::begin(const TensorView& source, const std::vector<std::int64_t>& lengths,
                          std::int64_t sequences) {
  const Encoded encoded = encode(source, lengths);
  memory_ = Tensor(TensorView(encoded.memory));
  hidden_ = Tensor(TensorView(encoded.initial));
  std::vector<std::int64_t> all = lengths;
  if (sequences != source.extent(0)) {
    const std::vector<std::int64_t> first(static_cast<std::size_t>(sequences), 0);
    memory_ = items(memory_, first);
    hidden_ = items(hidden_, first);
    all.assign(static_cast<std::size_t>(sequences),
               lengths.empty() ? source.extent(1) : lengths[0]);
  }
  decoder_.prepare(memory_, all);
}

MutableTensorView GruTranslator::step(const TensorView& tokens) {
  const nn::GruDecoder::Step made = decoder_.step(target_embedding_.forward(tokens), hidden_);
  hidden_ = Tensor(TensorView(made.hidden));
  weights_ = Tensor(made.weights);
  return output_.forward(made.y);
}

void GruTranslator::reorder(std::span<const std::int64_t> rows) {
  // All sequences attend to the same memory. It is prepared again only if the number of sequences
  // changes.
  hidden_ = items(hidden_, rows);
  if (static_cast<std::int64_t>(rows.size()) != memory_.extent(0)) {
    memory_ = items(memory_, rows);
    decoder_.prepare(memory_, std::vector<std::int64_t>(rows.size(), memory_.extent(1)));
  }
}

Tensor GruTranslator::weights() const { return weights_; }

}  // namespace fovea::train
