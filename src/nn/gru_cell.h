// SPDX-License-Identifier: Apache-2.0
//
// One step of gated recurrent units (fovea/nn/gru.h) between its products of matrices, forward and
// backward, for all items of a batch. Rows of any stride.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/tensor.h"

namespace fovea::nn {

/// The items that take part in step `step`, those that are longer than that; where there are no
/// lengths, all are.
struct StepItems {
  std::span<const std::int64_t> lengths = {};
  std::int64_t step = 0;

  bool have(std::int64_t item) const {
    return lengths.empty() || step < lengths[static_cast<std::size_t>(item)];
  }
};

struct GruStep {
  MutableTensorView gates;    ///< [batch, 3 hidden] W_ih x + b_ih; becomes r, z and n
  TensorView hidden_gates;    ///< [batch, 3 hidden] W_hh h + b_hh
  TensorView before;          ///< [batch, hidden] h
  MutableTensorView product;  ///< [batch, hidden] becomes what r multiplies
  MutableTensorView after;    ///< [batch, hidden] becomes h', or h where an item takes no part
  MutableTensorView y;        ///< [batch, hidden] becomes h', or zeros
};
void gru_step(const GruStep& at, const StepItems& items);

struct GruStepBack {
  TensorView gates, before, product;    ///< as gru_step left them
  TensorView grad_y;                    ///< [batch, hidden], may be absent
  MutableTensorView grad_hidden;        ///< of h'; becomes that of h, but for the part by W_hh
  MutableTensorView grad_gates;         ///< [batch, 3 hidden] becomes that of W_ih x + b_ih
  MutableTensorView grad_hidden_gates;  ///< [batch, 3 hidden] becomes that of W_hh h + b_hh
};
void gru_step_back(const GruStepBack& at, const StepItems& items);

}  // namespace fovea::nn
