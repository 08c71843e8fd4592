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

/// The parameters of a GRU cell, in PyTorch's form of Cho et al. (2014): the reset gate multiplies
/// the matrix product instead of its operand:
///
///   r  = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
///   z  = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
///   n  = tanh(W_in x + b_in + r (W_hn h + b_hn))
///   h' = (1 - z) n + z h
struct FOVEA_API GruParameters {
  /// Names are "weight_ih" and so on, followed by `suffix`. Values are uniform within
  /// 1 / sqrt(hidden), as in PyTorch's nn.GRU and nn.GRUCell.
  GruParameters(const Scope& scope, std::int64_t in, std::int64_t hidden,
                std::string_view suffix = {});

  Parameter& weight_ih;  ///< [3 hidden, in]: rows for r, z and n
  Parameter& weight_hh;  ///< [3 hidden, hidden]
  Parameter& bias_ih;    ///< [3 hidden]
  Parameter& bias_hh;    ///< [3 hidden]
};

/// A GRU layer, optionally bidirectional: PyTorch's single-layer nn.GRU with batch_first and packed
/// input.
///
/// Only the first lengths[item] steps of an item are processed; inputs of later steps have no
/// effect but must be finite. Conventions and errors as in Linear.
class FOVEA_API Gru {
 public:
  /// Creates weight_ih_l0, weight_hh_l0, bias_ih_l0 and bias_hh_l0; if bidirectional, also the same
  /// four with the suffix "_reverse".
  Gru(const Scope& scope, std::int64_t in, std::int64_t hidden, bool bidirectional = false);

  /// x        [batch, length, in]
  /// lengths  one per item, 0 .. length; empty: all are `length`
  /// initial  [directions, batch, hidden], the initial hidden states; undefined: zeros
  ///
  /// Returns [batch, length, directions * hidden]: the hidden state of the forward direction after
  /// each step, then that of the reverse direction, which starts at each item's last step. Zeros
  /// from step lengths[item] on.
  MutableTensorView forward(const TensorView& x, std::span<const std::int64_t> lengths = {},
                            const TensorView& initial = {});
  /// Returns the final hidden states [directions, batch, hidden]: of the forward direction after
  /// each item's last step, of the reverse direction after its first step. Valid until the next
  /// forward.
  MutableTensorView final_hidden() const { return final_; }

  struct Gradients {
    MutableTensorView x;        ///< [batch, length, in]; zeros from lengths[item] on
    MutableTensorView initial;  ///< [directions, batch, hidden]
  };
  /// grad_y      [batch, length, directions * hidden]; undefined: zeros. Steps from lengths[item]
  ///             on are ignored.
  /// grad_final  [directions, batch, hidden]; undefined: zeros
  Gradients backward(const TensorView& grad_y, const TensorView& grad_final = {});

 private:
  struct Direction {
    GruParameters parameters;
    bool is_reverse;
    Buffer gates_buffer, product_buffer, before_buffer;
    // For all steps, [batch * length, ...]: the gates r, z and n; the factor of r; the hidden state
    // before the step.
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
  TensorView x_;  // flattened to rows
  MutableTensorView final_;
  Buffer y_buffer_, final_buffer_, hidden_gates_;
  Buffer grad_x_, grad_initial_, grad_gates_, grad_hidden_gates_;
};

}  // namespace fovea::nn
