// SPDX-License-Identifier: Apache-2.0
//
// Attention whose scores are a bilinear form.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// The "general" score of Luong, Pham and Manning (2015), eq. 8:
///
///   score = key . W query,  weights = softmax(scores),  context = weights times values
///
/// without storing scores or weights (attention_forward). Conventions and errors as Linear.
class FOVEA_API GeneralAttention {
 public:
  /// query_proj.weight [key_dim, query_dim], uniform within 1 / sqrt(query_dim), as nn.Linear
  /// begins: OpenNMT's linear_in, Fairseq's input_proj.
  GeneralAttention(const Scope& scope, std::int64_t query_dim, std::int64_t key_dim);

  /// query    [batch, q_len,  query_dim]
  /// keys     [batch, kv_len, key_dim]
  /// values   [batch, kv_len, value_dim]; absent: the keys themselves
  /// lengths  one per item, 0 .. kv_len, of its keys that count; empty: all do. What the others
  ///          hold does not matter.
  ///
  /// Returns the context [batch, q_len, value_dim]: zeros where an item has no key.
  MutableTensorView forward(const TensorView& query, const TensorView& keys,
                            const TensorView& values = {},
                            std::span<const std::int64_t> lengths = {});
  /// [batch, q_len, kv_len], zeros from lengths[item] on: computed when asked for, of the last
  /// forward, whose keys have to be there still.
  TensorView weights();

  struct Gradients {
    MutableTensorView query, keys;
    MutableTensorView values;  ///< absent where the values were: that of the keys has both parts
  };
  /// grad_context [batch, q_len, value_dim]
  Gradients backward(const TensorView& grad_context);

 private:
  std::int64_t query_dim_, key_dim_;
  Parameter& weight_;

  std::int64_t batch_ = 0, q_len_ = 0, kv_len_ = 0;
  bool has_values_ = false;
  std::vector<std::int64_t> lengths_;
  AttentionOptions options_;
  TensorView query_, keys_, values_;             // as rows
  MutableTensorView projected_, context_, lse_;  // as rows
  Buffer projected_buffer_, context_buffer_, lse_buffer_, weights_;
  Buffer grad_projected_, grad_query_, grad_keys_, grad_values_;
};

}  // namespace fovea::nn
