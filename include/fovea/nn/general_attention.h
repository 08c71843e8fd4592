// SPDX-License-Identifier: Apache-2.0
//
// Attention with bilinear scores (Luong et al. 2015).

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
/// Scores and weights are not stored (attention_forward). Conventions and errors as in Linear.
class FOVEA_API GeneralAttention {
 public:
  /// Creates query_proj.weight [key_dim, query_dim], uniform within 1 / sqrt(query_dim), like
  /// nn.Linear. The parameter corresponds to OpenNMT's linear_in and Fairseq's input_proj.
  GeneralAttention(const Scope& scope, std::int64_t query_dim, std::int64_t key_dim);

  /// query    [batch, q_len,  query_dim]
  /// keys     [batch, kv_len, key_dim]
  /// values   [batch, kv_len, value_dim]; if undefined, the keys are the values
  /// lengths  the number of keys that each item attends to, 0 .. kv_len; empty: all kv_len. The
  ///          contents of keys beyond the length do not matter.
  ///
  /// Returns the context [batch, q_len, value_dim]; zeros for items without keys.
  MutableTensorView forward(const TensorView& query, const TensorView& keys,
                            const TensorView& values = {},
                            std::span<const std::int64_t> lengths = {});
  /// Returns [batch, q_len, kv_len], with zeros for keys at or beyond lengths[item]. Computed on
  /// demand from the last forward, whose keys must still be valid.
  TensorView weights();

  struct Gradients {
    MutableTensorView query, keys;
    MutableTensorView values;  ///< undefined if forward had undefined values; then included in
                               ///< the gradient of the keys
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
  TensorView query_, keys_, values_;             // flattened to rows
  MutableTensorView projected_, context_, lse_;  // flattened to rows
  Buffer projected_buffer_, context_buffer_, lse_buffer_, weights_;
  Buffer grad_projected_, grad_query_, grad_keys_, grad_values_;
};

}  // namespace fovea::nn
