// SPDX-License-Identifier: Apache-2.0
//
// Exact attention at the machine's own speed: one fused pass over the keys, O(N) memory, on every
// core.

#pragma once

#include <cstddef>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/lenses.h"
#include "fovea/paged_key_value.h"
#include "fovea/tensor.h"

namespace fovea {

/// Where attention_forward writes; what is absent is not asked for.
struct AttentionOutputs {
  MutableTensorView context = {};
  MutableTensorView lse = {};
  const Lenses* lenses = nullptr;  ///< what is watched meanwhile; nothing where null
};

/// context = softmax(scale * Q K^T + bias, masked) V, without storing the score matrix.
///
/// query    [batch, q_heads,  q_len,  head_dim]   any strides, last dimension contiguous
/// key      [batch, kv_heads, kv_len, head_dim]   q_heads % kv_heads == 0 (grouped heads)
/// value    [batch, kv_heads, kv_len, value_dim]
/// context  [batch, q_heads,  q_len,  value_dim]  optional; last dimension contiguous
/// lse      [batch, q_heads,  q_len]              optional, any strides; natural log of the row's
///                                                sum of exponentials
/// lenses   what is watched meanwhile             fovea/lenses.h; each optional
///
/// An output's memory is its own: not shared with an input or the other output, nor twice by
/// itself. Between its rows may lie what is another's, as where heads of several tensors share wide
/// rows.
///
/// Query, key, value and context are float32, float16 or bfloat16, each as it likes, and lse is
/// float32; or all are float64, which is computed by the reference. Lengths and dimensions may be
/// 0. Packed sequences of different lengths: AttentionOptions::sequences.
///
/// Masking  causal is bottom-right aligned; q_len = 2, kv_len = 5:
///            1 1 1 1 0
///            1 1 1 1 1
///          A fully masked row gives context = 0, lse = -inf (with a sink: lse = the sink). Nan and
///          inf in a masked key or value never leak; in a visible one they propagate.
/// Numerics float32 accumulation, online softmax; bounds and their tests in docs/numerics.md. Where
///          query, key and value are bfloat16 and the processor multiplies such numbers (AVX-512's
///          vdpbf16ps), weights are rounded to bfloat16 before they meet the values.
///          Scores count from -2.3e38 to 2.3e38 (float32's largest number / log2(e)); a context
///          whose values add up to more than float32 holds is inf.
/// Cost     2 * batch * q_heads * q_len * kv_len * (head_dim + value_dim) flop, less what blocks of
///          keys without a visible one save (about half when causal); O(q_len + kv_len) memory.
/// Threads  re-entrant; the result is bit-identical for any number of threads.
/// Errors   throws InvalidArgument naming the argument, what was expected and what came, before any
///          output is touched; Stopped after Execution::stop, with outputs unspecified.
FOVEA_API void attention_forward(const TensorView& query, const TensorView& key,
                                 const TensorView& value, const AttentionOptions& options,
                                 const AttentionOutputs& outputs);

/// Returns the context of attention_forward as a new tensor [batch, q_heads, q_len, value_dim] of
/// query's type. Throws as attention_forward does.
FOVEA_API Tensor attention(const TensorView& query, const TensorView& key, const TensorView& value,
                           const AttentionOptions& options = {});

/// The bytes that Execution::workspace needs for the same call with the same options and lenses, on
/// as many threads as are now to be had or on one. Errors as attention_forward.
FOVEA_API std::size_t attention_forward_workspace(const TensorView& query, const TensorView& key,
                                                  const TensorView& value,
                                                  const AttentionOptions& options,
                                                  const Lenses& lenses = {});

/// The same function for one to a few queries against a long cache, as in generating text: bound by
/// memory, where attention_forward, bound by arithmetic, would leave most of its lanes empty. The
/// queries of a group of heads share each key that is read.
///
/// Everything is as in attention_forward, options included; with dropout, and with lenses of more
/// than a few queries, it is that function. Up to about 32 queries per head of keys this is the
/// faster one.
///
/// Cost     kv_len * (head_dim + value_dim) numbers read per head of keys, once; keys that no query
///          sees are not read. With lenses the keys once more for each query.
/// Threads  parts of the keys are computed on several threads and merged by their lse (Dao et al.
///          2023, Flash-Decoding); re-entrant; the same bits for any number of threads.
FOVEA_API void attention_decode(const TensorView& query, const TensorView& key,
                                const TensorView& value, const AttentionOptions& options,
                                const AttentionOutputs& outputs);

/// The same with keys and values in blocks of tokens. Each item has keys of its own number, from
/// which the default alignment counts, as if the mask were joined to key_lengths(); kv_len is the
/// largest of them. float32, float16 and bfloat16 only; packed sequences and dropout are not for
/// here.
FOVEA_API void attention_decode(const TensorView& query, const PagedKeyValue& cache,
                                const AttentionOptions& options, const AttentionOutputs& outputs);

/// The bytes that Execution::workspace needs for the call with a cache in one piece. Errors as
/// attention_decode.
FOVEA_API std::size_t attention_decode_workspace(const TensorView& query, const TensorView& key,
                                                 const TensorView& value,
                                                 const AttentionOptions& options);

}  // namespace fovea
