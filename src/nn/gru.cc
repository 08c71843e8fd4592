// SPDX-License-Identifier: Apache-2.0
//
// Gated recurrent units along sequences (fovea/nn/gru.h). Products that do not depend on the
// previous step are computed as one matrix product for all steps: the products with the inputs, and
// all gradients except the gradient of the hidden state.

#include "fovea/nn/gru.h"

#include <cmath>

#include <fmt/format.h>

#include "nn/gru_cell.h"
#include "nn/items.h"
#include "nn/multiply.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

Parameter& add(const Scope& scope, std::string_view name, std::string_view suffix,
               const Shape& shape, std::int64_t hidden) {
  return scope.add_uniform(fmt::format("{}{}", name, suffix), shape,
                           1.0 / std::sqrt(static_cast<double>(hidden)));
}

}  // namespace

GruParameters::GruParameters(const Scope& scope, std::int64_t in, std::int64_t hidden,
                             std::string_view suffix)
    : weight_ih(add(scope, "weight_ih", suffix, {3 * hidden, in}, hidden)),
      weight_hh(add(scope, "weight_hh", suffix, {3 * hidden, hidden}, hidden)),
      bias_ih(add(scope, "bias_ih", suffix, {3 * hidden}, hidden)),
      bias_hh(add(scope, "bias_hh", suffix, {3 * hidden}, hidden)) {}

Gru::Gru(const Scope& scope, std::int64_t in, std::int64_t hidden, bool bidirectional)
    : in_(in), hidden_(hidden) {
  directions_.push_back({GruParameters(scope, in, hidden, "_l0"), false, {}, {}, {}});
  if (bidirectional) {
    directions_.push_back({GruParameters(scope, in, hidden, "_l0_reverse"), true, {}, {}, {}});
  }
}

MutableTensorView Gru::forward(const TensorView& x, std::span<const std::int64_t> lengths,
                               const TensorView& initial) {
  const DType dtype = directions_[0].parameters.weight_ih.value.dtype();
  const auto count = static_cast<std::int64_t>(directions_.size());
  const TensorView rows = as_rows_of_items(x, dtype, -1, in_, "x");
  const std::int64_t batch = x.extent(0), length = x.extent(1);
  const Shape hidden_shape{count, batch, hidden_};
  if (initial.defined()) as_rows_of(initial, dtype, hidden_shape, "initial");
  keep_lengths(lengths, batch, length, lengths_);
  x_ = rows;
  batch_ = batch;
  length_ = length;
  const MutableTensorView y = y_buffer_.of(dtype, {batch * length, count * hidden_});
  final_ = final_buffer_.of(dtype, hidden_shape);
  for (std::int64_t d = 0; d < count; ++d) {
    run(directions_[static_cast<std::size_t>(d)], initial.defined() ? initial[d] : TensorView(),
        final_[d], columns(y, d * hidden_, hidden_));
  }
  return reshaped(y, {batch, length, count * hidden_});
}

void Gru::run(Direction& direction, const TensorView& initial,
              const MutableTensorView& final_hidden, const MutableTensorView& y) {
  const DType dtype = y.dtype();
  const GruParameters& p = direction.parameters;
  const std::int64_t rows = batch_ * length_, steps = batch_ == 0 ? 0 : length_;
  direction.gates = direction.gates_buffer.of(dtype, {rows, 3 * hidden_});
  direction.product = direction.product_buffer.of(dtype, {rows, hidden_});
  direction.before = direction.before_buffer.of(dtype, {rows, hidden_});
  affine(x_, p.weight_ih.value, p.bias_ih.value, direction.gates);
  const MutableTensorView hidden_gates = hidden_gates_.of(dtype, {batch_, 3 * hidden_});

  const auto before = [&](std::int64_t number) {
    return number < steps ? step_of(direction.before, length_, step(direction, number))
                          : final_hidden;
  };
  if (initial.defined()) {
    copy_rows(initial, before(0));
  } else {
    zero_rows(before(0));
  }
  for (std::int64_t number = 0; number < steps; ++number) {
    const std::int64_t t = step(direction, number);
    affine(before(number), p.weight_hh.value, p.bias_hh.value, hidden_gates);
    gru_step({step_of(direction.gates, length_, t), hidden_gates, before(number),
              step_of(direction.product, length_, t), before(number + 1), step_of(y, length_, t)},
             {lengths_, t});
  }
}

Gru::Gradients Gru::backward(const TensorView& grad_y, const TensorView& grad_final) {
  const DType dtype = directions_[0].parameters.weight_ih.value.dtype();
  const auto count = static_cast<std::int64_t>(directions_.size());
  const Shape hidden_shape{count, batch_, hidden_};
  TensorView grad_rows, final_rows;
  if (grad_y.defined()) {
    grad_rows = as_rows_of(grad_y, dtype, {batch_, length_, count * hidden_}, "grad_y");
  }
  if (grad_final.defined()) {
    final_rows = as_rows_of(grad_final, dtype, hidden_shape, "grad_final");
  }
  const MutableTensorView grad_x = grad_x_.of(dtype, {batch_ * length_, in_});
  const MutableTensorView grad_initial = grad_initial_.of(dtype, hidden_shape);
  const MutableTensorView initial_rows = reshaped(grad_initial, {count * batch_, hidden_});
  if (grad_final.defined()) {
    copy_rows(final_rows, initial_rows);
  } else {
    zero_rows(initial_rows);
  }
  for (std::int64_t d = 0; d < count; ++d) {
    run_back(directions_[static_cast<std::size_t>(d)],
             grad_y.defined() ? columns(grad_rows, d * hidden_, hidden_) : TensorView(),
             grad_initial[d], grad_x);
  }
  return {reshaped(grad_x, {batch_, length_, in_}), grad_initial};
}

/// Computes the backward pass of one direction. `grad_hidden` contains the gradient of the final
/// state on entry and the gradient of the initial state on return.
void Gru::run_back(Direction& direction, const TensorView& grad_y,
                   const MutableTensorView& grad_hidden, const MutableTensorView& grad_x) {
  const DType dtype = grad_x.dtype();
  const GruParameters& p = direction.parameters;
  const std::int64_t rows = batch_ * length_, steps = batch_ == 0 ? 0 : length_;
  const MutableTensorView grad_gates = grad_gates_.of(dtype, {rows, 3 * hidden_});
  const MutableTensorView grad_hidden_gates = grad_hidden_gates_.of(dtype, {rows, 3 * hidden_});
  for (std::int64_t number = steps - 1; number >= 0; --number) {
    const std::int64_t t = step(direction, number);
    const auto at = [&](const MutableTensorView& all) { return step_of(all, length_, t); };
    gru_step_back({at(direction.gates), at(direction.before), at(direction.product),
                   grad_y.defined() ? step_of(grad_y, length_, t) : TensorView(), grad_hidden,
                   at(grad_gates), at(grad_hidden_gates)},
                  {lengths_, t});
    multiply({at(grad_hidden_gates)}, {p.weight_hh.value}, grad_hidden, true);
  }
  multiply(transposed(grad_hidden_gates), {direction.before}, p.weight_hh.gradient, true);
  add_column_sums(grad_hidden_gates, p.bias_hh.gradient);
  affine_backward(grad_gates, x_, p.weight_ih.value, p.weight_ih.gradient, p.bias_ih.gradient,
                  grad_x, direction.is_reverse);
}

}  // namespace fovea::nn
