// SPDX-License-Identifier: Apache-2.0
//
// Additive attention: scores from a small feed-forward network (Bahdanau et al. 2015).

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
/// Conventions and errors as in Linear. The backward pass recomputes the tanh of each pair instead
/// of storing it. Memory grows linearly with q_len and kv_len, except for the weights, which need
/// q_len * kv_len elements per item.
class FOVEA_API AdditiveAttention {
 public:
  /// Creates query_proj.weight [dim, query_dim] and key_proj.weight [dim, key_dim], initialised
  /// like nn.Linear; v [dim], uniform within 1 / sqrt(dim); and with `bias`, b [dim], zeros. The
  /// names are those of Espresso's BahdanauAttention, except for key_proj: Espresso calls it
  /// value_proj, because its keys are also the values.
  AdditiveAttention(const Scope& scope, std::int64_t query_dim, std::int64_t key_dim,
                    std::int64_t dim, bool bias = false);

  /// query    [batch, q_len,  query_dim]
  /// keys     [batch, kv_len, key_dim]
  /// values   [batch, kv_len, value_dim]; if undefined, the keys are the values
  /// lengths  the number of keys that each item attends to, 0 .. kv_len; empty: all kv_len. Keys
  ///          beyond the length must be finite.
  ///
  /// Returns the context [batch, q_len, value_dim]; zeros for items without keys.
  MutableTensorView forward(const TensorView& query, const TensorView& keys,
                            const TensorView& values = {},
                            std::span<const std::int64_t> lengths = {});
  /// Returns [batch, q_len, kv_len], with zeros for keys at or beyond lengths[item]. Valid until
  /// the next forward or start.
  TensorView weights() const { return weights_; }

  struct Gradients {
    MutableTensorView query, keys;
    MutableTensorView values;  ///< undefined if forward had undefined values; then included in
                               ///< the gradient of the keys
  };
  /// grad_context [batch, q_len, value_dim]
  Gradients backward(const TensorView& grad_context);

  /// Stepwise API for queries that depend on earlier contexts, as in a decoder. Keys are projected
  /// once. forward is equivalent to prepare, start, and attend for all steps; backward is
  /// equivalent to start_backward, attend_backward for all steps, and end_backward.
  ///
  /// `prepare` sets the keys for any number of calls of `start`. `start` takes a view of the
  /// queries [batch, q_len, query_dim]; the query of step s is first read by attend(s).
  void prepare(const TensorView& keys, const TensorView& values = {},
               std::span<const std::int64_t> lengths = {});
  void start(const TensorView& query);
  /// Returns the context of query `step` of each item, [batch, value_dim], a view into contexts().
  MutableTensorView attend(std::int64_t step);
  /// Returns the contexts of all steps, [batch * q_len, value_dim].
  MutableTensorView contexts() const { return context_; }

  void start_backward();
  /// Must be called once per step, in any order. grad_context [batch, value_dim] and grad_query
  /// [batch, query_dim] may have any row stride. The gradient of the query is added to grad_query.
  void attend_backward(std::int64_t step, const TensorView& grad_context,
                       const MutableTensorView& grad_query);
  /// Must be called after all steps. In the result, the gradient of the query is undefined.
  Gradients end_backward();

 private:
  std::int64_t batch() const { return static_cast<std::int64_t>(lengths_.size()); }
  void check_step(std::int64_t step) const;
  void check_rows(const TensorView& rows, std::int64_t width, std::string_view name) const;
  void attend_to(std::int64_t begin, std::int64_t end);
  void attend_back(std::int64_t begin, std::int64_t end, const TensorView& grad_context);

  std::int64_t query_dim_, key_dim_, dim_;
  Parameter &query_weight_, &key_weight_, &v_;
  Parameter* bias_;  // null without a bias

  std::int64_t kv_len_ = 0, q_len_ = 0;
  bool has_values_ = false;
  std::vector<std::int64_t> lengths_;
  TensorView keys_, values_, query_;                                // flattened to rows
  MutableTensorView projected_keys_, projected_queries_, context_;  // rows of width dim_; context_:
                                                                    // value_dim
  MutableTensorView weights_;
  MutableTensorView grad_projected_keys_, grad_projected_queries_, grad_values_;
  MutableTensorView grad_v_, grad_weights_;  // [batch, dim], [batch, kv_len]: per item
  Buffer projected_keys_buffer_, projected_queries_buffer_, context_buffer_, weights_buffer_;
  Buffer grad_projected_keys_buffer_, grad_projected_queries_buffer_, grad_values_buffer_;
  Buffer grad_v_buffer_, grad_weights_buffer_, grad_keys_buffer_, grad_query_buffer_;
};

}  // namespace fovea::nn
