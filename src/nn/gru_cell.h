// SPDX-License-Identifier: Apache-2.0
//
// The element-by-element part of one GRU step (fovea/nn/gru.h), between the matrix products,
// forward and backward, for all items of a batch. Rows may have any stride.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/tensor.h"

namespace fovea::nn {

/// The batch items that are active in step `step`: those longer than `step`. If `lengths` is empty,
/// all items are active.
struct StepItems {
  std::span<const std::int64_t> lengths = {};
  std::int64_t step = 0;

  bool have(std::int64_t item) const {
    return lengths.empty() || step < lengths[static_cast<std::size_t>(item)];
  }
};

struct GruStep {
  MutableTensorView gates;    ///< [batch, 3 hidden] in: W_ih x + b_ih; out: r, z and n
  TensorView hidden_gates;    ///< [batch, 3 hidden] in: W_hh h + b_hh
  TensorView before;          ///< [batch, hidden] in: h
  MutableTensorView product;  ///< [batch, hidden] out: W_hn h + b_hn, which r multiplies
  MutableTensorView after;    ///< [batch, hidden] out: h', or h for inactive items
  MutableTensorView y;        ///< [batch, hidden] out: h', or zeros for inactive items
};
void gru_step(const GruStep& at, const StepItems& items);

struct GruStepBack {
  TensorView gates, before, product;    ///< as computed by gru_step
  TensorView grad_y;                    ///< [batch, hidden]; may be undefined
  MutableTensorView grad_hidden;        ///< in: for h'; out: for h, without the term through W_hh
  MutableTensorView grad_gates;         ///< [batch, 3 hidden] out: for W_ih x + b_ih
  MutableTensorView grad_hidden_gates;  ///< [batch, 3 hidden] out: for W_hh h + b_hh
};
void gru_step_back(const GruStepBack& at, const StepItems& items);

}  // namespace fovea::nn
