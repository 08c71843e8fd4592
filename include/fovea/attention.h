// SPDX-License-Identifier: Apache-2.0
//
// Exact attention near the hardware's peak speed: one fused pass over the keys, O(N) memory,
// multithreaded.

#pragma once

#include <cstddef>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/lenses.h"
#include "fovea/paged_key_value.h"
#include "fovea/tensor.h"

namespace fovea {

/// The outputs of attention_forward. Undefined views are skipped.
struct AttentionOutputs {
  MutableTensorView context = {};
  MutableTensorView lse = {};
  const Lenses* lenses = nullptr;  ///< lenses to compute in the same pass; null: none
};

/// Computes context = softmax(scale * Q K^T + bias, masked) V without storing the score matrix.
///
/// query    [batch, q_heads,  q_len,  head_dim]   any strides, last dimension contiguous
/// key      [batch, kv_heads, kv_len, head_dim]   q_heads % kv_heads == 0 (grouped heads)
/// value    [batch, kv_heads, kv_len, value_dim]
/// context  [batch, q_heads,  q_len,  value_dim]  optional; last dimension contiguous
/// lse      [batch, q_heads,  q_len]              optional, any strides; natural log of the row's
///                                                sum of exponentials
/// lenses   see fovea/lenses.h                    optional, as is each of its tensors
///
/// An output must not overlap an input, another output or itself. The gaps between its rows may
/// belong to other tensors, for example if the heads of several tensors are interleaved in wide
/// rows.
///
/// Query, key, value and context are float32, float16 or bfloat16 (types may be mixed), and lse is
/// float32. Alternatively, all tensors are float64; the reference implementation then computes the
/// call. Lengths and dimensions may be 0. For packed sequences of different lengths, see
/// AttentionOptions::sequences.
///
/// Masking  causal is bottom-right aligned; q_len = 2, kv_len = 5:
///            1 1 1 1 0
///            1 1 1 1 1
///          A fully masked row gives context = 0, lse = -inf (with a sink: lse = the sink). NaN and
///          infinity in a masked key or value never propagate; in a visible one they do.
/// Numerics float32 accumulation, online softmax; bounds and their tests are in docs/numerics.md.
///          If query, key and value are bfloat16 and the CPU has bfloat16 products (AVX-512's
///          vdpbf16ps), weights are rounded to bfloat16 before they multiply the values. Scores are
///          supported from -2.3e38 to 2.3e38 (float32's largest number / log2(e)). A context sum
///          that overflows float32 is infinite.
/// Cost     2 * batch * q_heads * q_len * kv_len * (head_dim + value_dim) flop, less the blocks of
///          keys that are skipped because no key in them is visible (about half if causal);
///          O(q_len + kv_len) memory.
/// Threads  re-entrant; the result is bit-identical for any number of threads.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value, before
///          any output is modified; Stopped after Execution::stop, with unspecified outputs.
FOVEA_API void attention_forward(const TensorView& query, const TensorView& key,
                                 const TensorView& value, const AttentionOptions& options,
                                 const AttentionOutputs& outputs);

/// Returns the context of attention_forward as a new tensor [batch, q_heads, q_len, value_dim] of
/// the query's type. Throws as attention_forward does.
FOVEA_API Tensor attention(const TensorView& query, const TensorView& key, const TensorView& value,
                           const AttentionOptions& options = {});

/// Returns the size of Execution::workspace in bytes for the same call with the same options and
/// lenses. The size is sufficient for the current maximum thread count and for a single thread.
/// Throws as attention_forward does.
FOVEA_API std::size_t attention_forward_workspace(const TensorView& query, const TensorView& key,
                                                  const TensorView& value,
                                                  const AttentionOptions& options,
                                                  const Lenses& lenses = {});

/// Computes the same as attention_forward, optimized for one or a few queries against a long cache,
/// as in text generation. This case is memory-bound. Each key read from memory is used for all
/// queries of its group of heads. attention_forward does the same for few queries, usually up
/// to 8.
///
/// Arguments and options are those of attention_forward. Calls with dropout, and calls with lenses
/// and more than 4 queries (of a sequence, if packed), are forwarded to attention_forward.
///
/// Cost     kv_len * (head_dim + value_dim) numbers read once per key head; keys that no query sees
///          are not read. With lenses, the keys are read once more for each query.
/// Threads  parts of the keys are computed on several threads and merged by their lse (Dao et al.
///          2023, Flash-Decoding); re-entrant; bit-identical for any number of threads.
FOVEA_API void attention_decode(const TensorView& query, const TensorView& key,
                                const TensorView& value, const AttentionOptions& options,
                                const AttentionOutputs& outputs);

/// As above, with keys and values in blocks of tokens. Each batch item has its own number of keys,
/// which has the same effect as combining the mask with key_lengths() by `&`: the default alignment
/// uses it, and kv_len is the maximum over items. Supports float32, float16 and bfloat16 only.
/// Packed sequences and dropout are not supported.
FOVEA_API void attention_decode(const TensorView& query, const PagedKeyValue& cache,
                                const AttentionOptions& options, const AttentionOutputs& outputs);

/// Returns the size of Execution::workspace in bytes for the call with a contiguous cache. With
/// lenses for more than 4 queries (of a sequence, if packed), attention_forward_workspace applies
/// instead. Throws as attention_decode does.
FOVEA_API std::size_t attention_decode_workspace(const TensorView& query, const TensorView& key,
                                                 const TensorView& value,
                                                 const AttentionOptions& options);

}  // namespace fovea
