// SPDX-License-Identifier: Apache-2.0
//
// Fused gradients of attention: the weights are recomputed from lse, never stored.

#pragma once

#include <cstddef>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// The inputs of attention_backward: the inputs and results of attention_forward, and the gradients
/// of a loss with respect to these results.
struct BackwardInputs {
  TensorView query;          ///< [batch, q_heads,  q_len,  head_dim]
  TensorView key;            ///< [batch, kv_heads, kv_len, head_dim]
  TensorView value;          ///< [batch, kv_heads, kv_len, value_dim]
  TensorView context;        ///< [batch, q_heads,  q_len,  value_dim]
  TensorView lse;            ///< [batch, q_heads,  q_len]
  TensorView grad_context;   ///< [batch, q_heads,  q_len,  value_dim]
  TensorView grad_lse = {};  ///< [batch, q_heads, q_len]; undefined: the loss is independent of lse
};

/// The first-order effect of each key's weights on the loss, a by-product of attention_backward. It
/// is the sum over the queries of each weight times its gradient (P dP below). Undefined views are
/// skipped.
///
/// If all weights of a key are set to 0 and the others are unchanged, the loss decreases by
/// `relevance`, to first order. A positive relevance means that the key raised the loss, a negative
/// one that it lowered the loss. For a loss that is linear in the context this is exact, and the
/// relevances of all keys of a head sum to the sum of dO O. dP includes the factor Z of dropout, so
/// dropped weights contribute nothing.
///
/// Both are [batch, q_heads, kv_len], float32 (float64 for float64 inputs), last dimension
/// contiguous. Masked pairs and grad_lse contribute nothing; a key that no query sees gets 0. If a
/// row has NaN or +infinity among its scores, the results of all keys visible to it are NaN.
///
/// Source   gradient x input: Shrikumar et al. 2016; of attention: Barkan et al. 2021, Chefer et
///          al. 2021.
struct BackwardLenses {
  MutableTensorView relevance = {};  ///< sum over queries of P dP
  MutableTensorView magnitude = {};  ///< sum over queries of |P dP|
};

/// The outputs of attention_backward. Undefined views are skipped.
struct AttentionGradients {
  MutableTensorView grad_query = {};     ///< the query's shape
  MutableTensorView grad_key = {};       ///< the key's shape
  MutableTensorView grad_value = {};     ///< the value's shape
  MutableTensorView grad_bias = {};      ///< the bias' shape; summed over broadcast dimensions
  MutableTensorView grad_relative = {};  ///< [buckets, q_heads]
  MutableTensorView grad_sinks = {};     ///< [q_heads]
  const BackwardLenses* lenses = nullptr;
};

/// Computes the gradients of a loss with respect to the inputs of attention_forward, given those
/// with respect to its outputs (Dao et al. 2022):
///
///   P = exp(S - lse), Z = 1 / (1 - p) where dropout keeps a weight and 0 elsewhere
///   dV = (Z P)^T dO,  dP = Z dO V^T,  dS = P (dP - rowsum(dO O) + dlse),  dQ = dS K,  dK = dS^T Q
///
/// For dQ and dK, dS is also multiplied by the derivatives of the custom function, the softcap and
/// the scale.
///
/// Query, key, value, context, grad_context and the gradients are float32, float16 or bfloat16
/// (types may be mixed); lse and grad_lse are float32. Alternatively all are float64, which the
/// reference computes. The last dimension must be contiguous, other strides are arbitrary; lse,
/// grad_lse, grad_bias, grad_relative and grad_sinks may have any strides. A gradient must not
/// overlap an input, another gradient or itself; the gaps between its rows may belong to other
/// tensors.
///
/// Options  all must be those of the forward call; a custom function needs its derivative.
/// Masking  masked keys and rows without a visible key get zero gradients and contribute nothing,
///          whatever they contain. Exception: the lse of a fully masked row with a sink is the
///          sink, so its grad_lse is added to grad_sinks.
/// Numerics float32 accumulation. If query, key, value and grad_context are bfloat16 and the CPU
///          has bfloat16 products, P and dS are rounded to bfloat16 before they are multiplied.
/// Cost     2 * batch * q_heads * q_len * kv_len * (3 head_dim + 2 value_dim) flop, less the blocks
///          of keys that are skipped because no key in them is visible; O(q_len + kv_len) memory.
/// Threads  re-entrant; the result is bit-identical for any number of threads.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value, before
///          any gradient is modified; Stopped after Execution::stop, with unspecified gradients.
FOVEA_API void attention_backward(const BackwardInputs& inputs, const AttentionOptions& options,
                                  const AttentionGradients& gradients);

/// Returns the size of Execution::workspace in bytes for the same call. Throws as
/// attention_backward does.
FOVEA_API std::size_t attention_backward_workspace(const BackwardInputs& inputs,
                                                   const AttentionOptions& options,
                                                   const AttentionGradients& gradients);

}  // namespace fovea
