// SPDX-License-Identifier: Apache-2.0
//
// A recurrent decoder with attention (fovea/nn/gru_decoder.h). The cell's input [embedding;
// context] is never concatenated: products with the weight columns of the embedding are computed
// for all steps at once, and products with the columns of the context step by step.

#include "fovea/nn/gru_decoder.h"

#include "nn/gru_cell.h"
#include "nn/items.h"
#include "nn/multiply.h"
#include "nn/rows.h"

namespace fovea::nn {

GruDecoder::GruDecoder(const Scope& scope, const Dims& dims)
    : dims_(dims),
      attention_(scope.in("attention"), dims.hidden, dims.encoder_dim, dims.attention_dim),
      cell_(scope.in("cell"), dims.embed_dim + dims.encoder_dim, dims.hidden) {}

void GruDecoder::prepare(const TensorView& encoder, std::span<const std::int64_t> lengths) {
  as_rows_of_items(encoder, cell_.weight_ih.value.dtype(), -1, dims_.encoder_dim, "encoder");
  attention_.prepare(encoder, {}, lengths);
  batch_ = encoder.extent(0);
}

MutableTensorView GruDecoder::forward(const TensorView& embeddings, const TensorView& encoder,
                                      const TensorView& initial,
                                      std::span<const std::int64_t> lengths) {
  const DType dtype = cell_.weight_ih.value.dtype();
  as_rows_of_items(encoder, dtype, -1, dims_.encoder_dim, "encoder");
  const std::int64_t batch = encoder.extent(0);
  const TensorView rows = as_rows_of_items(embeddings, dtype, batch, dims_.embed_dim, "embeddings");
  const TensorView first = as_rows_of(initial, dtype, {batch, dims_.hidden}, "initial");
  prepare(encoder, lengths);
  run(rows, embeddings.extent(1), first);
  return reshaped(y_, {batch_, length_, y_dim()});
}

GruDecoder::Step GruDecoder::step(const TensorView& embedding, const TensorView& hidden) {
  const DType dtype = cell_.weight_ih.value.dtype();
  const TensorView rows = as_rows_of(embedding, dtype, {batch_, dims_.embed_dim}, "embedding");
  run(rows, 1, as_rows_of(hidden, dtype, {batch_, dims_.hidden}, "hidden"));
  const TensorView weights = attention_.weights();
  const Shape shape{batch_, weights.extent(2)};
  return {y_, after_, {weights.data(), dtype, shape}};
}

/// Runs all steps, starting from the hidden state `first`. `first` may be a view of `after_`, the
/// state after the previous step.
void GruDecoder::run(const TensorView& embeddings, std::int64_t length, const TensorView& first) {
  const DType dtype = cell_.weight_ih.value.dtype();
  const std::int64_t rows = batch_ * length, hidden = dims_.hidden;
  const std::int64_t steps = batch_ == 0 ? 0 : length;
  embeddings_ = embeddings;
  length_ = length;
  gates_ = gates_buffer_.of(dtype, {rows, 3 * hidden});
  product_ = product_buffer_.of(dtype, {rows, hidden});
  before_ = before_buffer_.of(dtype, {rows, hidden});
  y_ = y_buffer_.of(dtype, {rows, y_dim()});
  const MutableTensorView hidden_gates = hidden_gates_.of(dtype, {batch_, 3 * hidden});
  const TensorView weight(cell_.weight_ih.value);
  const TensorView context_weight = columns(weight, dims_.embed_dim, dims_.encoder_dim);
  affine(embeddings_, columns(weight, 0, dims_.embed_dim), cell_.bias_ih.value, gates_);
  if (steps > 0) copy_rows(first, step_of(before_, length, 0));
  after_ = after_buffer_.of(dtype, {batch_, hidden});
  attention_.start(reshaped(before_, {batch_, length, hidden}));
  for (std::int64_t t = 0; t < steps; ++t) {
    const auto at = [&](const MutableTensorView& all) { return step_of(all, length, t); };
    const MutableTensorView context = attention_.attend(t);
    multiply({context}, transposed(context_weight), at(gates_), true);
    affine(at(before_), cell_.weight_hh.value, cell_.bias_hh.value, hidden_gates);
    gru_step({at(gates_), hidden_gates, at(before_), at(product_),
              t + 1 < steps ? step_of(before_, length, t + 1) : after_, at(columns(y_, 0, hidden))},
             {});
  }
  copy_rows(attention_.contexts(), columns(y_, hidden, dims_.encoder_dim));
  copy_rows(embeddings_, columns(y_, hidden + dims_.encoder_dim, dims_.embed_dim));
}

GruDecoder::Gradients GruDecoder::backward(const TensorView& grad_y) {
  const DType dtype = cell_.weight_ih.value.dtype();
  const std::int64_t rows = batch_ * length_, hidden = dims_.hidden;
  const std::int64_t steps = batch_ == 0 ? 0 : length_;
  const TensorView grad = as_rows_of(grad_y, dtype, {batch_, length_, y_dim()}, "grad_y");
  const MutableTensorView grad_gates = grad_gates_.of(dtype, {rows, 3 * hidden});
  const MutableTensorView grad_hidden_gates = grad_hidden_gates_.of(dtype, {rows, 3 * hidden});
  const MutableTensorView grad_embeddings = grad_embeddings_.of(dtype, {rows, dims_.embed_dim});
  const MutableTensorView grad_context = grad_context_.of(dtype, {rows, dims_.encoder_dim});
  const MutableTensorView grad_hidden = grad_hidden_.of(dtype, {batch_, hidden});
  const TensorView weight(cell_.weight_ih.value);
  const MutableTensorView grad_weight(cell_.weight_ih.gradient);
  const TensorView context_weight = columns(weight, dims_.embed_dim, dims_.encoder_dim);

  // Contexts and embeddings receive gradients directly from the outputs. The steps below add the
  // gradients through the cell and the attention.
  copy_rows(columns(grad, hidden, dims_.encoder_dim), grad_context);
  copy_rows(columns(grad, hidden + dims_.encoder_dim, dims_.embed_dim), grad_embeddings);
  zero_rows(grad_hidden);
  attention_.start_backward();
  for (std::int64_t t = steps - 1; t >= 0; --t) {
    const auto at = [&](const MutableTensorView& all) { return step_of(all, length_, t); };
    gru_step_back(
        {at(gates_), at(before_), at(product_), step_of(columns(grad, 0, hidden), length_, t),
         grad_hidden, at(grad_gates), at(grad_hidden_gates)},
        {});
    multiply({at(grad_hidden_gates)}, {cell_.weight_hh.value}, grad_hidden, true);
    multiply({at(grad_gates)}, {context_weight}, at(grad_context), true);
    attention_.attend_backward(t, at(grad_context), grad_hidden);
  }
  multiply(transposed(grad_hidden_gates), {before_}, cell_.weight_hh.gradient, true);
  add_column_sums(grad_hidden_gates, cell_.bias_hh.gradient);
  multiply(transposed(grad_gates), {attention_.contexts()},
           columns(grad_weight, dims_.embed_dim, dims_.encoder_dim), true);
  affine_backward(grad_gates, embeddings_, columns(weight, 0, dims_.embed_dim),
                  columns(grad_weight, 0, dims_.embed_dim), cell_.bias_ih.gradient, grad_embeddings,
                  true);
  return {reshaped(grad_embeddings, {batch_, length_, dims_.embed_dim}),
          attention_.end_backward().keys, grad_hidden};
}

}  // namespace fovea::nn
