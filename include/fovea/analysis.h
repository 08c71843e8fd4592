// SPDX-License-Identifier: Apache-2.0
//
// Analyses of recorded attention: how two recordings of the same tokens differ, from which tokens
// the information at one token comes (rollout), which heads repeat earlier text (induction), and
// weights multiplied by the norms of the values. All recompute weights part by part from query, key
// and lse; no N x N matrix is ever stored.
//
// Common to all functions of this header:
//
// Inputs   recorded attentions of float32, float16 or bfloat16, read from a file or filled in by
//          the caller; masks, scores and alignment are those of RecordedAttention::options.
// Numerics weights are those of attention_weights() or differ from them by rounding. Sums over
//          parts of up to 512 keys or 192 queries are in float32, and sums of parts in float64.
// Threads  re-entrant; bit-identical for any number of threads. Execution::workspace is not used.
// Errors   throw InvalidArgument naming the argument, the expected and the actual value; Stopped
//          after Execution::stop.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fovea/execution.h"
#include "fovea/export.h"
#include "fovea/map.h"
#include "fovea/recording.h"
#include "fovea/tensor.h"
#include "fovea/weights.h"

namespace fovea {

/// The difference of two attentions of the same tokens: the Jensen-Shannon divergence (Lin 1991)
/// of their rows, in nats,
///     JSD(p, q) = 1/2 sum p ln(2 p / (p + q)) + 1/2 sum q ln(2 q / (p + q)),
/// from 0 (equal rows) to ln 2 (no key in common). A sink is one more outcome, with the share of
/// the row that the keys do not get. Both definitions and a row's value do not depend on the order
/// of the two attentions.
///
/// A row is NaN, and excluded from the means, if all its weights are 0 in one of the attentions,
/// for example because it sees no key (HeadSummary).
struct AttentionDivergence {
  Tensor rows;  ///< [batch, q_heads, q_len] float32: the divergence of each query
  /// [batch, q_heads] float64: the mean over the rows; NaN if there are none, or if a row of either
  /// attention is NaN.
  Tensor mean;
  Tensor largest;        ///< [batch, q_heads] float64: the maximum over the rows; NaN as the mean
  Tensor largest_query;  ///< [batch, q_heads] int64: its query, the first one of equals; -1 for NaN
};

/// Computes the divergence of every row of two attentions with the same batch, query heads (also
/// the same heads of the model), queries and keys. Masks, scores, types, head dims and the number
/// of key heads may differ.
///
/// Numerics differences p - q count, not logarithms of p and q apart: equal rows have exactly 0,
///          and the rounding of a row is about 2^-22 times the total variation of p and q.
/// Cost     two products of queries and keys, of the pairs in the ranges of keys that either mask
///          shows, and about 60 further operations per pair.
/// Memory   0.8 MB per thread, and the result.
FOVEA_API AttentionDivergence attention_divergence(const RecordedAttention& first,
                                                   const RecordedAttention& second,
                                                   const Execution& execution = {});

/// Returns the attention of the second recording with the name of `attention`, which is one of the
/// first recording. Throws InvalidArgument that begins with the second file's name if there is
/// none, or if query or key tokens differ, by text or id: with the first place where they do. Token
/// lists that either recording lacks are not compared.
FOVEA_API const RecordedAttention& find_counterpart(const RecordedAttention& attention,
                                                    const Recording& first,
                                                    const Recording& second);

/// The start of a rollout.
struct RolloutRequest {
  std::int64_t batch = 0;
  std::int64_t query = 0;  ///< the token after the last layer
  /// The share of a token that each layer passes on unchanged (the residual connection), in [0, 1].
  /// The paper uses 1/2.
  double residual = 0.5;
};

/// Attention rollout (Abnar and Zuidema 2020, "Quantifying attention flow in transformers", section
/// 3): the share of a token's representation after the last layer that comes from each token of the
/// layers before. With W(l) the weights of layer l, averaged over its heads, and r = `residual`, it
/// is row `query` of
///     A(L) A(L - 1) ... A(l),   A(l) = r I + (1 - r) W(l).
/// The product is evaluated from the left: one vector times one matrix per layer, recomputed part
/// by part.
///
/// layers   the self-attentions of one stack, first layer first, each once; each with the same
///          batch, and with as many keys as queries, the same for all
/// Returns  [layers, tokens] float64: row l is the share that each token has as an input of layer
///          l. Row 0 is the rollout to the tokens of the text. Each row sums to 1, minus what sinks
///          and rows that see no key take away.
/// Cost     one product of queries and keys per layer and head, of the pairs that the token depends
///          on; less below layers with windows.
/// Memory   O(heads x tokens), and 0.4 MB per thread.
FOVEA_API Tensor attention_rollout(std::span<const RecordedAttention* const> layers,
                                   const RolloutRequest& request, const Execution& execution = {});

/// How strongly heads attend to the same, the previous or the next token of earlier text (Olsson et
/// al. 2022, "In-context learning and induction heads"). Every score is the mean over queries of a
/// sum of weights, [batch, q_heads] float64, with query i at position p = i + offset
/// (AttentionOptions::alignment):
struct TokenScores {
  /// The weight of the key at p - 1, over the queries that have one.
  Tensor previous;
  /// The weights of all keys j < p with the query's token, over the queries that have such a key.
  Tensor duplicate;
  /// The weights of all keys j <= p whose previous key j - 1 < p has the query's token, over the
  /// same queries: what followed the token before (prefix matching).
  Tensor induction;
  /// [batch] int64: the number of queries with an earlier key of the same token, which duplicate
  /// and induction are means over. Without any, both are NaN.
  Tensor repeated;
};

/// Computes the scores of all heads of a self-attention. Only the weights that a score needs are
/// recomputed, one by one; whole rectangles only where most of their weights are needed. Rows that
/// see no key count with weights of 0.
///
/// query_ids  int64 [q_len] or [batch, q_len]: the tokens of the queries
/// key_ids    int64 [kv_len] or [batch, kv_len]: the tokens of the keys, of the same vocabulary
FOVEA_API TokenScores token_scores(const RecordedAttention& attention, const TensorView& query_ids,
                                   const TensorView& key_ids, const Execution& execution = {});

/// Computes the scores from the tokens of a recording, which has the attention. Token lists without
/// ids are compared by their texts. Returns nothing for cross-attention, for float64, and if a
/// batch item has no tokens of queries or keys.
FOVEA_API std::optional<TokenScores> token_scores(const Recording& recording,
                                                  const RecordedAttention& attention,
                                                  const Execution& execution = {});

/// Returns the Euclidean norm of every value, [batch, q_heads, kv_len] float32, for the query heads
/// that share it. With a projection W, [q_heads, value_dim, model_dim] of any float type, returns
/// the norm of value . W[head] instead: what the layer's output projection makes of the value.
/// Throws InvalidArgument if the attention was recorded without values.
FOVEA_API Tensor value_norms(const RecordedAttention& attention, const TensorView& projection = {});

/// Computes a map of the value-weighted attention (Kobayashi et al. 2020, "Attention is not only a
/// weight"): each weight times the norm of its value, |w f(x)| = w |f(x)|, pooled to cells.
///
/// norms    those of value_norms(), [batch, q_heads, kv_len] float32
/// request  as for attention_map(), of one head; without statistics and top keys
///
/// Cells are float32; without a visible pair they are 0, or NaN with kMean.
FOVEA_API MapCells value_weighted_map(const RecordedAttention& attention, const TensorView& norms,
                                      const MapRequest& request, const Execution& execution = {});

/// Computes one row of the value-weighted attention: [kv_len], or [q_heads, kv_len] for all heads,
/// float32. Arguments as above.
FOVEA_API Tensor value_weighted_row(const RecordedAttention& attention, const TensorView& norms,
                                    const WeightRow& row, const Execution& execution = {});

}  // namespace fovea
