// SPDX-License-Identifier: Apache-2.0
//
// The reference implementation: attention in plain scalar arithmetic, one query at a time, in
// textbook order. It is the oracle for everything else in Fovea and returns every intermediate
// step. The code favours readability over speed (src/reference/row_attention.h, and gradients.cc
// for the gradients).

#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea::reference {

/// score = q . k (Luong et al. 2015, "dot").
struct DotScore {};

/// score = q W k (Luong et al. 2015, "general").
struct GeneralScore {
  /// [head_dim, key_dim]
  TensorRef weights;
};

/// score = v . tanh(q W + k U) (Bahdanau et al. 2015, "additive"; q and k are rows).
struct AdditiveScore {
  /// W [head_dim, hidden_dim]
  TensorRef query_weights;
  /// U [key_dim, hidden_dim]
  TensorRef key_weights;
  /// v [hidden_dim]
  TensorRef v;
};

using ScoreKind = std::variant<DotScore, GeneralScore, AdditiveScore>;

/// The normalization that turns a row of scores into a row of weights.
enum class Normalization : std::uint8_t {
  /// exp(s - max) / sum; does not overflow for scores of any size.
  kSoftmax,
  /// exp(s) / sum, the softmax formula as usually written; overflows to inf / inf = NaN.
  kSoftmaxUnshifted,
  /// s / sum: weights sum to 1 but may be negative. Without an exponential, lse and sinks have no
  /// meaning: lse is NaN, and sinks are rejected.
  kSum,
};

struct ReferenceOptions {
  ScoreKind score_kind = DotScore{};
  Normalization normalization = Normalization::kSoftmax;
  /// kFloat64: the oracle. kFloat32: every product, sum, exponential and division is rounded to
  /// float32, in plain order. This is the naive computation; the engine must be at least as
  /// accurate. kBFloat16, kFloat16: the naive computation for tensors stored in these types, in
  /// float32, except that weights are rounded to the type before they multiply the values, and the
  /// context is rounded at the end.
  DType arithmetic = DType::kFloat64;
};

/// Returns rows times weights; every product and sum is rounded to `arithmetic`, in order.
///
/// rows     [..., dim]      any float type, any strides
/// weights  [dim, columns]
/// returns  [..., columns]  of type `arithmetic`
///
/// Throws InvalidArgument if the widths differ; the message contains both.
FOVEA_API Tensor project(const TensorView& rows, const TensorView& weights,
                         DType arithmetic = DType::kFloat64);

/// The input tensors of a problem: any float type (each element is converted to the arithmetic's
/// type), any strides.
///
/// query  [batch, q_heads,  q_len,  head_dim]
/// key    [batch, kv_heads, kv_len, key_dim]    q_heads % kv_heads == 0: query head h reads key
///                                              head h / (q_heads / kv_heads)
/// value  [batch, kv_heads, kv_len, value_dim]
///
/// key_dim equals head_dim for DotScore. The other score kinds allow different dimensions, because
/// they multiply by weight matrices.
struct Inputs {
  TensorView query;
  TensorView key;
  TensorView value;
};

/// Every intermediate array, of the arithmetic's type (float32 for the 16-bit types). The tensors
/// of unused steps are undefined.
struct Steps {
  Tensor hidden;             ///< [batch, q_heads, q_len, kv_len, hidden_dim]  tanh(q W + k U)
  Tensor scores;             ///< [batch, q_heads, q_len, kv_len]
  Tensor scaled_scores;      ///< the same shape; undefined if scale is 1
  Tensor softcapped_scores;  ///< undefined without softcap
  Tensor custom_scores;      ///< undefined without a custom function
  Tensor biased_scores;      ///< undefined without bias, ALiBi and relative table
  Tensor masked_scores;      ///< -inf where masked; undefined without a mask or packed sequences
  Tensor weights;            ///< rows sum to 1 (with sinks, to 1 minus the sink's share); 0 where
                             ///< masked
  Tensor dropped_weights;    ///< 0 where dropped, else weight / (1 - probability); undefined
                             ///< without dropout
  Tensor row_sums;           ///< [batch, q_heads, q_len]  sum of each row of weights
  Tensor visible;            ///< bool [batch, q_heads, q_len, kv_len]: false where the key is
                             ///< hidden by a mask, a score of -inf or a sequence boundary
  Tensor lse;                ///< [batch, q_heads, q_len]  natural log of the sum of exp(score)
  Tensor context;            ///< [batch, q_heads, q_len, value_dim]  weights (with dropout, dropped
                             ///< weights) times value
};

/// Computes context = normalize(scores, masked) V and returns every intermediate array.
///
/// Order    query . key, then scale, softcap, custom function, bias (additive, ALiBi, relative
///          table), mask.
/// Masking  a masked key is ignored, whatever its key and value contain: NaN and infinity in it
///          never propagate. A key with score -inf, before or after the biases, is also ignored,
///          regardless of the cause of the -inf (an overflow, a key of -inf or a bias). A
///          bias of -inf masks regardless of the score and other biases, even NaN. A fully masked
///          row has context 0 and lse -inf; with a sink, lse equals the sink. NaN in visible keys
///          and values propagates as in plain arithmetic.
/// Dropout  affects only the context, not the weights, their sums or lse. A dropped key is still
///          visible: NaN in its value propagates.
/// Packing  with AttentionOptions::sequences, arrays keep their shapes, with batch 1 and the total
///          lengths. Keys of other sequences are ignored: they have score -inf at every step,
///          weight 0 and a hidden layer of 0.
/// Memory   O(q_len * kv_len * hidden_dim) for all steps. Meant for small problems.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value.
FOVEA_API Steps attention_steps(const Inputs& inputs, const AttentionOptions& options,
                                const ReferenceOptions& how = {});

/// One query of one head of one batch item. For packed sequences, batch is 0 and query is the index
/// in the packed tensor.
struct FOVEA_API Row {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
};

/// The results of attention_rows, one row per requested query, in the arithmetic's type.
struct Rows {
  Tensor context;  ///< [rows, value_dim]
  Tensor lse;      ///< [rows]
  Tensor weights;  ///< [rows, kv_len]
  Tensor scores;   ///< [rows, kv_len], those that enter the softmax; -inf where hidden
  /// The position of each row; `key` is the first key of the row's sequence.
  std::vector<ScorePosition> places = {};
};

/// Computes selected rows of a problem of any size without N x N memory; results are as in
/// attention_steps. The cost is rows * kv_len * (head_dim + value_dim) products (kv_len of the
/// row's own sequence if packed) and one pass over the inputs. Inputs that are strided or of
/// another type are copied. Throws as attention_steps does, and InvalidArgument if a row is outside
/// the problem.
FOVEA_API Rows attention_rows(const Inputs& inputs, const AttentionOptions& options,
                              std::span<const Row> rows, const ReferenceOptions& how = {});

/// The gradients of a loss with respect to attention's outputs: any float type, any strides.
/// Undefined views count as zero.
struct OutputGradients {
  TensorView context = {};  ///< [batch, q_heads, q_len, value_dim]
  TensorView lse = {};      ///< [batch, q_heads, q_len]
  TensorView weights = {};  ///< [batch, q_heads, q_len, kv_len]; of the weights before dropout, for
                            ///< losses on the weights themselves
};

/// The gradients of the loss with respect to attention's inputs, of the arithmetic's type (float32
/// for the 16-bit types). The gradients of inputs that were not used are undefined.
struct Gradients {
  Tensor query = {};     ///< the query's shape
  Tensor key = {};       ///< the key's shape; summed over the query heads that share a key head
  Tensor value = {};     ///< the value's shape; summed in the same way
  Tensor bias = {};      ///< the shape of the bias; summed over the scores that an element is
                         ///< broadcast to
  Tensor relative = {};  ///< [buckets, q_heads]
  Tensor sinks = {};     ///< [q_heads]
  // Not gradients: by-products of the backward pass (BackwardLenses).
  Tensor relevance = {};  ///< [batch, q_heads, kv_len]: sum over queries of P dP
  Tensor magnitude = {};  ///< [batch, q_heads, kv_len]: sum over queries of |P dP|
};

/// Returns the gradients of the loss with respect to attention's inputs, given those with respect
/// to its outputs. The forward pass is recomputed. P are the weights, Z the dropout factors, 0 or
/// 1 / (1 - probability), O the context, and S the scores that enter the softmax:
///
///   dV = (Z P)^T dO,  dP = Z dO V^T + dweights,  dS = P (dP - rowsum(P dP) + dlse),
///   dbias = dS,  dsink = sum over queries of exp(sink - lse) (dlse - rowsum(P dP)),
///   dQ = (dS S') K,  dK = (dS S')^T Q,  S' = scale times the slopes of softcap and custom function
///
/// Options  all AttentionOptions; of ReferenceOptions, only DotScore and kSoftmax. ALiBi's slopes
///          have no gradient. A custom function needs its derivative.
/// Masking  a hidden key (see attention_steps) has zero gradients and contributes nothing, whatever
///          the key, its value and the gradients of its weights contain. A fully masked row
///          contributes nothing either. Exception: with a sink, the gradient of the row's lse is
///          added to the gradient of the sink. NaN in visible keys and values propagates.
/// Numerics every operation is rounded as in the forward pass. Sums run over batch items, heads,
///          queries and keys in this order, each in ascending order. In kBFloat16 and kFloat16, Z P
///          and dS S' are rounded to the type before they multiply dO, K and Q; the gradients of
///          query, key and value are rounded at the end; everything else is float32.
/// Memory   O(kv_len), in addition to the results and copies of inputs that are strided or of
///          another type.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value.
FOVEA_API Gradients attention_gradients(const Inputs& inputs, const OutputGradients& outputs,
                                        const AttentionOptions& options,
                                        const ReferenceOptions& how = {});

}  // namespace fovea::reference
