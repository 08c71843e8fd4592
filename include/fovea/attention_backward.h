// SPDX-License-Identifier: Apache-2.0
//
// Gradients of attention, fused: the weights are computed anew from lse, never stored.

#pragma once

#include <cstddef>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// What attention_backward reads: the inputs and results of attention_forward, and the gradient of
/// a loss with respect to these results.
struct BackwardInputs {
  TensorView query;          ///< [batch, q_heads,  q_len,  head_dim]
  TensorView key;            ///< [batch, kv_heads, kv_len, head_dim]
  TensorView value;          ///< [batch, kv_heads, kv_len, value_dim]
  TensorView context;        ///< [batch, q_heads,  q_len,  value_dim]
  TensorView lse;            ///< [batch, q_heads,  q_len]
  TensorView grad_context;   ///< [batch, q_heads,  q_len,  value_dim]
  TensorView grad_lse = {};  ///< [batch, q_heads, q_len]; absent: the loss has nothing of lse
};

/// What each weight did to the loss, as attention_backward finds it in passing: the weight times
/// the loss' gradient with respect to it, P dP below, summed over the queries. What is absent is
/// not asked for.
///
/// To first order the loss falls by `relevance` where all weights of the key become 0 and the
/// others stay as they are: positive is what raised the loss, negative what kept it down. For a
/// loss that is linear in the context this is exact, and all keys of a head add up to the sum of dO
/// O. dP has the Z of dropout: a weight that was dropped did nothing.
///
/// Both are [batch, q_heads, kv_len], float32 (float64 where the inputs are), last dimension
/// contiguous. A pair that is masked has no part, nor has grad_lse; a key that no query sees gets
/// 0. A row with a nan or inf in its scores makes nan of the keys it sees.
///
/// Source   gradient x input: Shrikumar et al. 2016; of attention: Barkan et al. 2021, Chefer et
///          al. 2021.
struct BackwardLenses {
  MutableTensorView relevance = {};  ///< sum over queries of P dP
  MutableTensorView magnitude = {};  ///< sum over queries of |P dP|
};

/// Where attention_backward writes; what is absent is not asked for.
struct AttentionGradients {
  MutableTensorView grad_query = {};     ///< of the query's shape
  MutableTensorView grad_key = {};       ///< of the key's shape
  MutableTensorView grad_value = {};     ///< of the value's shape
  MutableTensorView grad_bias = {};      ///< of the bias' shape: summed where it repeats
  MutableTensorView grad_relative = {};  ///< [buckets, q_heads]
  MutableTensorView grad_sinks = {};     ///< [q_heads]
  const BackwardLenses* lenses = nullptr;
};

/// The gradients of a loss with respect to what attention_forward was given, from those with
/// respect to what it returned (Dao et al. 2022):
///
///   P = exp(S - lse), Z = 1 / (1 - p) where dropout keeps a weight and 0 elsewhere
///   dV = (Z P)^T dO,  dP = Z dO V^T,  dS = P (dP - rowsum(dO O) + dlse),  dQ = dS K,  dK = dS^T Q
///
/// with what the scale, the softcap and a custom function do to scores in between.
///
/// Query, key, value, context, grad_context and the gradients are float32, float16 or bfloat16,
/// each as it likes, lse and grad_lse float32; or all are float64, which is computed by the
/// reference. Any strides with a contiguous last dimension; lse, grad_lse, grad_bias, grad_relative
/// and grad_sinks of any strides. A gradient's memory is its own; what lies between its rows need
/// not be.
///
/// Options  those of the forward call, all of them; a custom function needs its derivative.
/// Masking  a masked key and a row without a visible key take no part: whatever they hold, they get
///          zeros and give nothing.
/// Numerics float32 accumulation. Where query, key, value and grad_context are bfloat16 and the
///          processor multiplies such numbers, P and dS are rounded to bfloat16 as they meet them.
/// Cost     2 * batch * q_heads * q_len * kv_len * (3 head_dim + 2 value_dim) flop, less what
///          blocks of keys without a visible one save; O(q_len + kv_len) memory.
/// Threads  re-entrant; the result is bit-identical for any number of threads.
/// Errors   throws InvalidArgument naming the argument, what was expected and what came, before any
///          gradient is touched; Stopped after Execution::stop, with gradients unspecified.
FOVEA_API void attention_backward(const BackwardInputs& inputs, const AttentionOptions& options,
                                  const AttentionGradients& gradients);

/// The bytes that Execution::workspace needs for the same call. Errors as attention_backward.
FOVEA_API std::size_t attention_backward_workspace(const BackwardInputs& inputs,
                                                   const AttentionOptions& options,
                                                   const AttentionGradients& gradients);

}  // namespace fovea
