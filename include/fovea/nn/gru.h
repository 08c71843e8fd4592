// SPDX-License-Identifier: Apache-2.0
//
// Gated recurrent units.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// One cell, in PyTorch's form of Cho et al. (2014), where the reset gate multiplies a product
/// rather than its operand:
///
///   r  = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
///   z  = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
///   n  = tanh(W_in x + b_in + r (W_hn h + b_hn))
///   h' = (1 - z) n + z h
struct FOVEA_API GruParameters {
  /// "weight_ih" and so on, with `suffix` behind; uniform within 1 / sqrt(hidden), as PyTorch's
  /// nn.GRU and nn.GRUCell.
  GruParameters(const Scope& scope, std::int64_t in, std::int64_t hidden,
                std::string_view suffix = {});

  Parameter& weight_ih;  ///< [3 hidden, in]: of r, z and n
  Parameter& weight_hh;  ///< [3 hidden, hidden]
  Parameter& bias_ih;    ///< [3 hidden]
  Parameter& bias_hh;    ///< [3 hidden]
};

/// A layer of them along sequences, or two of which one goes backwards: PyTorch's nn.GRU of one
/// layer, its batch first, its input packed.
///
/// Of an item's `length` steps the first lengths[item] count; the others, which have to be finite
/// numbers, change nothing. Conventions and errors as Linear.
class FOVEA_API Gru {
 public:
  /// weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0; and the same four with "_reverse" behind.
  Gru(const Scope& scope, std::int64_t in, std::int64_t hidden, bool bidirectional = false);

  /// x        [batch, length, in]
  /// lengths  one per item, 0 .. length; empty: all are `length`
  /// initial  [directions, batch, hidden], where each direction begins; absent: zeros
  ///
  /// Returns [batch, length, directions * hidden]: of each step what the direction forward knows
  /// after it, then what the other one does, which begins at each item's own end; zeros from
  /// lengths[item] on.
  MutableTensorView forward(const TensorView& x, std::span<const std::int64_t> lengths = {},
                            const TensorView& initial = {});
  /// [directions, batch, hidden]: where each direction ended, forward at each item's own end, the
  /// other one at its beginning. Until the next forward.
  MutableTensorView final_hidden() const { return final_; }

  struct Gradients {
    MutableTensorView x;        ///< [batch, length, in]; zeros from lengths[item] on
    MutableTensorView initial;  ///< [directions, batch, hidden]
  };
  /// grad_y      [batch, length, directions * hidden]; absent: zeros. What it holds from
  ///             lengths[item] on does not matter.
  /// grad_final  [directions, batch, hidden]; absent: zeros
  Gradients backward(const TensorView& grad_y, const TensorView& grad_final = {});

 private:
  struct Direction {
    GruParameters parameters;
    bool is_reverse;
    Buffer gates_buffer, product_buffer, before_buffer;
    // Of all steps, [batch * length, ...]: the gates r, z and n; what r multiplies; hidden before.
    MutableTensorView gates = {}, product = {}, before = {};
  };

  std::int64_t step(const Direction& direction, std::int64_t number) const {
    return direction.is_reverse ? length_ - 1 - number : number;
  }
  void run(Direction& direction, const TensorView& initial, const MutableTensorView& final_hidden,
           const MutableTensorView& y);
  void run_back(Direction& direction, const TensorView& grad_y,
                const MutableTensorView& grad_hidden, const MutableTensorView& grad_x);

  std::int64_t in_, hidden_;
  std::vector<Direction> directions_;
  std::int64_t batch_ = 0, length_ = 0;
  std::vector<std::int64_t> lengths_;
  TensorView x_;  // as rows
  MutableTensorView final_;
  Buffer y_buffer_, final_buffer_, hidden_gates_;
  Buffer grad_x_, grad_initial_, grad_gates_, grad_hidden_gates_;
};

}  // namespace fovea::nn
