// SPDX-License-Identifier: Apache-2.0
//
// Additive attention, the first there was: scores by a small network.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// Bahdanau, Cho and Bengio (2015), appendix A.1.2:
///
///   score = v . tanh(W_q query + W_k key [+ b]),  weights = softmax(scores),
///   context = weights times values
///
/// Conventions and errors as Linear. The tanh of each pair is computed anew by backward, never
/// stored: memory grows with q_len and kv_len, and with their product for the weights alone.
class FOVEA_API AdditiveAttention {
 public:
  /// query_proj.weight [dim, query_dim] and key_proj.weight [dim, key_dim], as nn.Linear begins;
  /// v [dim], uniform within 1 / sqrt(dim); with `bias`, b [dim], zeros. The names of Espresso's
  /// BahdanauAttention, but for its value_proj, whose values are the keys.
  AdditiveAttention(const Scope& scope, std::int64_t query_dim, std::int64_t key_dim,
                    std::int64_t dim, bool bias = false);

  /// query    [batch, q_len,  query_dim]
  /// keys     [batch, kv_len, key_dim]
  /// values   [batch, kv_len, value_dim]; absent: the keys themselves
  /// lengths  one per item, 0 .. kv_len, of its keys that count; empty: all do. The others have to
  ///          be finite numbers.
  ///
  /// Returns the context [batch, q_len, value_dim]: zeros where an item has no key.
  MutableTensorView forward(const TensorView& query, const TensorView& keys,
                            const TensorView& values = {},
                            std::span<const std::int64_t> lengths = {});
  /// [batch, q_len, kv_len], zeros from lengths[item] on; until the next forward or start.
  TensorView weights() const { return weights_; }

  struct Gradients {
    MutableTensorView query, keys;
    MutableTensorView values;  ///< absent where the values were: that of the keys has both parts
  };
  /// grad_context [batch, q_len, value_dim]
  Gradients backward(const TensorView& grad_context);

  /// The same for queries that depend on contexts before them, as those of a decoder do, with one
  /// product of all keys. forward is prepare, start and attend of all steps in one; backward is
  /// start_backward, attend_backward of all steps and end_backward.
  ///
  /// `prepare` takes the keys, for as many starts as one likes. `start` takes the memory of queries
  /// [batch, q_len, query_dim], of which step s has to be there at attend(s).
  void prepare(const TensorView& keys, const TensorView& values = {},
               std::span<const std::int64_t> lengths = {});
  void start(const TensorView& query);
  /// The context of query `step` of each item, [batch, value_dim]: rows of contexts().
  MutableTensorView attend(std::int64_t step);
  /// Those of all steps, [batch * q_len, value_dim].
  MutableTensorView contexts() const { return context_; }

  void start_backward();
  /// Steps in any order, each once. grad_context [batch, value_dim] and grad_query
  /// [batch, query_dim], to which that of the query is added, are rows of any stride.
  void attend_backward(std::int64_t step, const TensorView& grad_context,
                       const MutableTensorView& grad_query);
  /// After all of them. The gradient of the query is absent.
  Gradients end_backward();

 private:
  std::int64_t batch() const { return static_cast<std::int64_t>(lengths_.size()); }
  void attend_to(std::int64_t begin, std::int64_t end);
  void attend_back(std::int64_t begin, std::int64_t end, const TensorView& grad_context);

  std::int64_t query_dim_, key_dim_, dim_;
  Parameter &query_weight_, &key_weight_, &v_;
  Parameter* bias_;  // null: none

  std::int64_t kv_len_ = 0, q_len_ = 0;
  bool has_values_ = false;
  std::vector<std::int64_t> lengths_;
  TensorView keys_, values_, query_;                                // as rows
  MutableTensorView projected_keys_, projected_queries_, context_;  // rows of dim_, of value_dim
  MutableTensorView weights_;
  MutableTensorView grad_projected_keys_, grad_projected_queries_, grad_values_;
  MutableTensorView grad_v_, grad_weights_;  // [batch, dim], [batch, kv_len]: of each item
  Buffer projected_keys_buffer_, projected_queries_buffer_, context_buffer_, weights_buffer_;
  Buffer grad_projected_keys_buffer_, grad_projected_queries_buffer_, grad_values_buffer_;
  Buffer grad_v_buffer_, grad_weights_buffer_, grad_keys_buffer_, grad_query_buffer_;
};

}  // namespace fovea::nn
