// SPDX-License-Identifier: Apache-2.0
//
// The reference: attention in plain scalar arithmetic, one query at a time, in the order of the
// textbook. It defines what is right for everything else in Fovea, and shows every step. It is
// slow; it is meant to be read (src/reference/row_attention.h, and gradients.cc for its gradients)
// and to judge.

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

/// How a row of scores becomes a row of weights.
enum class Normalization : std::uint8_t {
  /// exp(s - max) / sum: safe for scores of any size.
  kSoftmax,
  /// exp(s) / sum, as first written down by everyone; overflows to inf / inf = nan.
  kSoftmaxUnshifted,
  /// s / sum: weights add up to one, but may be negative. No exponential, so lse and sinks have no
  /// meaning here: lse is nan, sinks are refused.
  kSum,
};

struct ReferenceOptions {
  ScoreKind score_kind = DotScore{};
  Normalization normalization = Normalization::kSoftmax;
  /// kFloat64: the oracle. kFloat32: every product, sum, exponential and division rounded to
  /// float32, in plain order: the naive computation that faster ones must not be less exact than.
  /// kBFloat16, kFloat16: the same for tensors stored in these types, in float32 but for weights,
  /// which are rounded to the type before they meet the values, and the context, rounded at last.
  DType arithmetic = DType::kFloat64;
};

/// rows times weights, every product and sum rounded to the arithmetic's type, from first to last.
///
/// rows     [..., dim]    floats of any type, any strides
/// weights  [dim, columns]
/// returns  [..., columns], of the arithmetic's type
///
/// Throws InvalidArgument when the widths differ, with both.
FOVEA_API Tensor project(const TensorView& rows, const TensorView& weights,
                         DType arithmetic = DType::kFloat64);

/// The tensors of a problem: floats of any type (each element is converted to the arithmetic's
/// type), any strides.
///
/// query  [batch, q_heads,  q_len,  head_dim]
/// key    [batch, kv_heads, kv_len, key_dim]    q_heads % kv_heads == 0: query head h reads
///                                              key head h / (q_heads / kv_heads)
/// value  [batch, kv_heads, kv_len, value_dim]
///
/// key_dim equals head_dim for DotScore; the other kinds bring the weights that join them.
struct Inputs {
  TensorView query;
  TensorView key;
  TensorView value;
};

/// Every intermediate array, of the arithmetic's type (float32 for the types of 16 bits). A step
/// that the options do not have is an absent tensor.
struct Steps {
  Tensor hidden;             ///< [batch, q_heads, q_len, kv_len, hidden_dim]  tanh(q W + k U)
  Tensor scores;             ///< [batch, q_heads, q_len, kv_len]
  Tensor scaled_scores;      ///< the same shape; absent when scale is 1
  Tensor softcapped_scores;  ///< absent without softcap
  Tensor custom_scores;      ///< absent without a custom function
  Tensor biased_scores;      ///< absent without bias, alibi and relative table
  Tensor masked_scores;      ///< -inf where masked; absent without a mask or packed sequences
  Tensor weights;            ///< rows sum to 1 (to 1 - the sink's share with sinks); 0 where masked
  Tensor dropped_weights;    ///< 0 where dropped, the others over 1 - probability; absent without
                             ///< dropout
  Tensor row_sums;           ///< [batch, q_heads, q_len]  the sum of each row of weights
  Tensor visible;            ///< bool [batch, q_heads, q_len, kv_len]: false where a mask, a
                             ///< score of -inf or a sequence's end keeps the key out
  Tensor lse;                ///< [batch, q_heads, q_len]  natural log of the sum of exp(score)
  Tensor context;            ///< [batch, q_heads, q_len, value_dim]  weights times value; dropped
                             ///< weights where there is dropout
};

/// context = normalize(scores, masked) V, with every intermediate array kept.
///
/// Order    query . key, then scale, softcap, custom function, bias (additive, ALiBi, relative
///          table), mask.
/// Masking  a masked key takes no part, whatever its key and value hold: nan and inf there never
///          leak. Nor does a key take part whose score is -inf, before or after the biases,
///          wherever that comes from: a product that overflows, a key of -inf, a bias. A bias of
///          -inf masks whatever the score and other biases are, even nan. A fully masked row gives
///          context 0 and lse -inf, or lse = the sink where there is one. What is visible follows
///          plain arithmetic: nan spreads.
/// Dropout  is the context's alone: weights, their sums and lse know nothing of it. A key that is
///          dropped is visible all the same: nan in its value spreads.
/// Packing  with AttentionOptions::sequences the arrays keep their shapes, with batch 1 and the
///          total lengths. A key of another sequence takes no part: it has the score -inf at
///          every step, weight 0 and a hidden layer of 0.
/// Memory   all steps: O(q_len * kv_len * hidden_dim). For small problems.
/// Errors   throws InvalidArgument naming the argument, what was expected and what came.
FOVEA_API Steps attention_steps(const Inputs& inputs, const AttentionOptions& options,
                                const ReferenceOptions& how = {});

/// One query of one head of one batch item; of packed sequences, one of batch item 0.
struct FOVEA_API Row {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
};

/// What attention_rows found, one row each, in the arithmetic's type.
struct Rows {
  Tensor context;  ///< [rows, value_dim]
  Tensor lse;      ///< [rows]
  Tensor weights;  ///< [rows, kv_len]
  /// Where each stands, and the first key of its sequence.
  std::vector<ScorePosition> places = {};
};

/// The same meaning for a selection of rows of a problem of any size, without N x N memory: beside
/// rows * kv_len * (head_dim + value_dim) products (kv_len of its own sequence where they are
/// packed) it costs one pass over the inputs, which are copied where they are strided or of another
/// type. Errors as attention_steps; a row outside the problem is one.
FOVEA_API Rows attention_rows(const Inputs& inputs, const AttentionOptions& options,
                              std::span<const Row> rows, const ReferenceOptions& how = {});

/// The gradient of a loss with respect to what attention returns: floats of any type, any strides.
/// The loss has nothing of what is absent.
struct OutputGradients {
  TensorView context = {};  ///< [batch, q_heads, q_len, value_dim]
  TensorView lse = {};      ///< [batch, q_heads, q_len]
  TensorView weights = {};  ///< [batch, q_heads, q_len, kv_len]; of weights before dropout: a loss
                            ///< on where a query looks
};

/// The gradient of the loss with respect to what attention is given, of the arithmetic's type
/// (float32 for the types of 16 bits). Absent where the options have no such thing.
struct Gradients {
  Tensor query = {};     ///< of the query's shape
  Tensor key = {};       ///< of the key's shape: the sum over the query heads that read a key
  Tensor value = {};     ///< of the value's shape, summed alike
  Tensor bias = {};      ///< of the bias' shape: the sum over all scores that a number is added to
  Tensor relative = {};  ///< [buckets, q_heads]
  Tensor sinks = {};     ///< [q_heads]
  // No gradients, but what comes of them in passing (BackwardLenses).
  Tensor relevance = {};  ///< [batch, q_heads, kv_len]: the sum over queries of P dP
  Tensor magnitude = {};  ///< [batch, q_heads, kv_len]: the sum over queries of |P dP|
};

/// The gradients of the loss, from those with respect to attention's results; what attention
/// computes is computed anew. P are the weights, Z is what dropout multiplies them by, 0 or
/// 1 / (1 - probability), O the context, and S the scores that the softmax is given:
///
///   dV = (Z P)^T dO,  dP = Z dO V^T + dweights,  dS = P (dP - rowsum(P dP) + dlse),
///   dbias = dS,  dsink = sum over queries of exp(sink - lse) (dlse - rowsum(P dP)),
///   dQ = (dS S') K,  dK = (dS S')^T Q,  S' = scale times the slopes of softcap and custom function
///
/// Options  all of them; for DotScore and kSoftmax. ALiBi's slopes have no gradient; a custom
///          function needs its derivative.
/// Masking  a key that takes no part (see attention_steps) gets zeros and gives nothing, whatever
///          it, its value and the gradients of its weight hold; nor does a fully masked row, but
///          for the gradient of its lse where that is a sink. nan in what is visible spreads.
/// Numerics every operation is rounded, as forward; sums run over batch items, heads, queries and
///          keys in this order, each from first to last. In kBFloat16 and kFloat16, Z P and dS S'
///          are rounded to the type before they meet dO, K and Q, and the gradients of query, key
///          and value at last; all else is float32.
/// Memory   beside the results and copies of what is strided or of another type, O(kv_len).
/// Errors   throws InvalidArgument naming the argument, what was expected and what came.
FOVEA_API Gradients attention_gradients(const Inputs& inputs, const OutputGradients& outputs,
                                        const AttentionOptions& options,
                                        const ReferenceOptions& how = {});

}  // namespace fovea::reference
