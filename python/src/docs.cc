// SPDX-License-Identifier: Apache-2.0
//
// Docstrings (docs.h). Text that the functions share is written once and replaces the placeholders
// {keywords}, {score} and {problem}.

#include "docs.h"

#include <string>
#include <string_view>
#include <utility>

namespace fovea::python {
namespace {

constexpr std::string_view kScoreKeywords =
    "mask=None, scale=None, softcap=None, bias=None, alibi=None, relative=None, sinks=None, "
    "alignment=\"bottom-right\", ";
constexpr std::string_view kKeywords =
    "mask=None, scale=None, softcap=None, bias=None, alibi=None, relative=None, sinks=None, "
    "alignment=\"bottom-right\", query_starts=None, key_starts=None, dropout=None, ";

constexpr std::string_view kProblem =
    R"(mask       which keys each query may attend to: causal(), window(left, right), prefix(n),
           documents(ids), key_lengths(n), dense(array), combined with & and |; or a bool
           array, True where visible, that broadcasts to [batch, q_heads, q_len, kv_len]
scale      factor on query . key; 1 / sqrt(head_dim) by default
softcap    c > 0 limits a score s to c * tanh(s / c)
bias       floats, added to the scores; broadcasts to [batch, q_heads, q_len, kv_len];
           -inf masks
alibi      True: subtracts slope[head] * |i + offset - j| (Press et al. 2022); or the slopes,
           one per query head
relative   a RelativeTable (T5's buckets)
sinks      one extra logit per query head, added to the denominator only
alignment  the position i + offset of query i among the keys, for causal, window, alibi and
           relative: "bottom-right" aligns the last query with the last key; "top-left" is
           offset 0; or an integer offset, or one per batch item
query_starts, key_starts  packed sequences: 0, ..., length, for tensors of batch 1; sequence s
           has the queries from query_starts[s] to before query_starts[s + 1], which attend only
           to the sequence's own keys
dropout    a Dropout, for training: selects the weights to drop
)";

constexpr std::string_view kAttentionDoc =
    R"(attention(query, key, value, *, {keywords}threads=None, return_lse=False, out=None, lenses=None)
--

context = softmax(scale * Q K^T + bias, masked) V, in one fused pass that never stores the scores.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   same rank for all three; q_heads % kv_heads == 0
value      [batch, kv_heads, kv_len, value_dim]

Accepts NumPy arrays (bfloat16 through ml_dtypes), torch and JAX arrays on the CPU, and any other
object with DLPack or the buffer protocol. Dtypes are float32, float16 and bfloat16, in any mix, or
float64 for all arrays (computed by the slow reference). An array is copied only if its last
dimension is not contiguous; read-only arrays are accepted.

{problem}threads    maximum number of threads; by default OpenMP's (OMP_NUM_THREADS, else one per CPU)
return_lse  also return lse, the natural log of each row's sum of exponentials
out        an array to write the context to and return; must not share memory with the inputs
lenses     a Lenses: weight statistics to collect during the pass, for example each row's entropy
           and largest weights, or a map of all weights; not supported with dropout

Returns [batch, q_heads, q_len, value_dim], with query's array library, rank and dtype; with
return_lse=True also lse [batch, q_heads, q_len], float32 (float64 for float64 inputs). With lenses,
the last result is a Seen of NumPy arrays.

Order      query . key, then scale, softcap, biases, mask.
Masking    causal() with q_len = 2, kv_len = 5, the last query aligned with the last key:
             1 1 1 1 0
             1 1 1 1 1
           A fully masked row has context 0 and lse -inf (with a sink, lse is the sink's logit).
           NaN and infinity in a masked key or value never affect the result; in a visible one
           they propagate.
Gradients  attention_backward(); fovea.torch.attention() is this function for PyTorch's autograd.
Numerics   float32 accumulation, online softmax; docs/numerics.md has the bounds and their tests.
Cost       2 * batch * q_heads * q_len * kv_len * (head_dim + value_dim) flop, less the blocks of
           keys that a mask hides; O(q_len + kv_len) memory.
Threads    bit-identical for any number of threads. Releases the GIL if the call is long enough.
           Ctrl-C interrupts a long call in the main thread.
Raises     TypeError for an unsupported object or dtype; ValueError for shapes, values, devices and
           overlapping memory. The message has the argument, the expected and the actual value, and
           `out` is untouched. KeyboardInterrupt leaves `out` unspecified.
Source     Dao et al. 2022 (FlashAttention); Milakov and Gimelshein 2018 (online softmax).

    >>> import numpy, fovea
    >>> words = numpy.eye(3, dtype=numpy.float32)
    >>> fovea.attention(words, words, words, mask=fovea.causal(), scale=1.0).round(2)
    array([[1.  , 0.  , 0.  ],
           [0.27, 0.73, 0.  ],
           [0.21, 0.21, 0.58]], dtype=float32))";

constexpr std::string_view kAttentionBackwardDoc =
    R"(attention_backward(query, key, value, context, lse, grad_context, *, grad_lse=None, {keywords}threads=None, wanted=None)
--

Computes the gradients of a loss with respect to the inputs of attention(), given the gradients with
respect to its results. Runs one fused pass, which recomputes the weights and never stores them.

query, key, value  the inputs of attention()
context       [batch, q_heads, q_len, value_dim]   the result of attention()
lse           [batch, q_heads, q_len]              its lse, from return_lse=True
grad_context  [batch, q_heads, q_len, value_dim]   gradient of the loss with respect to context
grad_lse      [batch, q_heads, q_len]              gradient with respect to lse; None if the loss
              does not use lse
wanted        list of the gradients to compute, by name; by default all that apply; may also
              contain "relevance" and "magnitude"

The other keywords are those of attention() and must have the same values, dropout included.
All arrays have the rank of query, except that the rank of lse and grad_lse is one less. Query, key,
value, context and grad_context are float32, float16 or bfloat16, in any mix, with lse and grad_lse
in float32; or all arrays are float64 (computed by the slow reference).

Returns Gradients: .query, .key, .value, .bias, .relative and .sinks, each with the array library,
shape and dtype of its input; relative, [buckets, q_heads], and sinks, [q_heads], have query's array
library and the dtype of lse. The gradient of an input that is absent or not in `wanted` is None.

Also .relevance and .magnitude, [batch, q_heads, kv_len], with query's array library and the dtype
of lse: each key's effect on the loss, as the sums over queries of P dP and of |P dP|. To first
order, the loss falls by a key's relevance if the key's weights become 0 and no others change.

With P = exp(S - lse), and Z = 1 / (1 - p) where dropout keeps a weight and 0 elsewhere:
  dV = (Z P)^T dO,  dP = Z dO V^T,  dS = P (dP - rowsum(dO O) + dlse),  dQ = dS K,  dK = dS^T Q
and the chain rule through scale and softcap; dbias = dS, summed over the broadcast dimensions.

Masking    masked keys and fully masked rows have zero gradients and contribute nothing, even if
           they hold NaN or infinity.
Numerics   float32 accumulation; see docs/numerics.md.
Cost       2 * batch * q_heads * q_len * kv_len * (3 head_dim + 2 value_dim) flop, less the blocks
           of keys that a mask hides; O(q_len + kv_len) memory.
Threads    bit-identical for any number of threads. Releases the GIL if the call is long enough.
           Ctrl-C interrupts a long call in the main thread.
Raises     TypeError and ValueError as attention() does; the message has the argument, the expected
           and the actual value.
Source     Dao et al. 2022 (FlashAttention); for relevance Barkan et al. 2021, Chefer et al. 2021.

    >>> import numpy, fovea
    >>> words = numpy.eye(3, dtype=numpy.float32)
    >>> context, lse = fovea.attention(words, words, words, return_lse=True)
    >>> gradients = fovea.attention_backward(words, words, words, context, lse, context)
    >>> gradients.value.round(2)
    array([[0.36, 0.32, 0.32],
           [0.32, 0.36, 0.32],
           [0.32, 0.32, 0.36]], dtype=float32))";

constexpr std::string_view kDecodeDoc =
    R"(decode(query, key, value=None, *, {keywords}threads=None, return_lse=False, out=None, lenses=None)
--

Computes attention() for one or a few queries against many keys, as in text generation. This case is
memory-bound: each key read from memory is used for all queries of its group of heads. attention()
does the same for few queries, usually up to 8.

query      [batch, q_heads, q_len, head_dim], or with fewer dimensions, as in attention()
key        [batch, kv_heads, kv_len, head_dim]; or a KvCache, which also has the values
value      [batch, kv_heads, kv_len, value_dim]; omitted with a KvCache

All keywords, results and errors are those of attention(). Calls attention() if dropout is set, or
if lenses are used with more than a few queries.

Cost       kv_len * (head_dim + value_dim) elements read once per key head; keys that no query
           sees are not read. Lenses read the keys once more for each query.
Source     Dao et al. 2023 (Flash-Decoding): attends to parts of the keys separately, and merges the
           results by lse.)";

constexpr std::string_view kWeightsDoc =
    R"(weights(query, key, *, rows=None, cols=None, batch=0, head=0, lse=None, {score}threads=None)
--

Recomputes a rectangle of one head's weight matrix, which attention() does not store:
exp(score - lse), 0 for masked keys. The cost depends on the size of the rectangle.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   same rank; the dtypes of attention()
rows, cols  ranges of queries and of keys: slices without a step, or pairs (first, end); None for
           all
batch, head  the batch item and the query head
lse        [batch, q_heads, q_len], from attention(..., return_lse=True) with the same options;
           None: computed here, by a pass over all heads

Everything else is as in attention(); packed sequences and dropout are not supported.

Returns [rows, cols], a NumPy array of float32 (float64 for float64 inputs). Overlapping rectangles
are bit-identical where they overlap. Apart from the rounding of lse, a full row adds up to 1
minus the sink's share, if there is a sink; a fully masked row is 0.

Cost       2 * rows * cols * head_dim flop; without lse also 2 * batch * q_heads * q_len * kv_len *
           head_dim, less the masked blocks.
Raises     TypeError and ValueError as attention() does; the message has the argument, the expected
           and the actual value. Ctrl-C interrupts a long call in the main thread.

    >>> words = np.eye(3, dtype=np.float32)
    >>> fovea.weights(words, words, rows=(1, 3), mask=fovea.causal(), scale=1.0).round(2)
    array([[0.27, 0.73, 0.  ],
           [0.21, 0.21, 0.58]], dtype=float32))";

constexpr std::string_view kReceivedDoc =
    R"(received(query, key, *, lse=None, recent=None, bins=None, {score}threads=None)
--

Computes the total weight that each key receives from all queries, per head. Recomputes the product
of queries and keys, and never stores it.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   same rank; the dtypes of attention()
lse        [batch, q_heads, q_len], from attention(..., return_lse=True) with the same options;
           None: computed here, by one more pass
recent     1 to q_len: also returns the sum over the last `recent` queries, as used by methods that
           evict keys from a cache
bins       1 to 4096: also returns a histogram of the visible weights; bin b counts
           2^-(b + 1) < w <= 2^-b, and the last bin also counts all smaller weights

Everything else is as in attention(); packed sequences and dropout are not supported.

Returns a Received of NumPy arrays: sum, largest, and recent [batch, q_heads, kv_len], float32
(float64 for float64 inputs); histogram [batch, q_heads, bins], int64. Recent and histogram are
None unless requested.

Cost       2 * batch * q_heads * q_len * kv_len * head_dim flop, less the masked blocks.
Raises     TypeError and ValueError as attention() does; the message has the argument, the expected
           and the actual value. Ctrl-C interrupts a long call in the main thread.
Source     Zhang et al. 2023 (H2O), who keep the keys with the largest sums; Li et al. 2024
           (SnapKV), who keep the keys that the last queries attend to.

    >>> words = np.eye(3, dtype=np.float32)
    >>> found = fovea.received(words, words, mask=fovea.causal(), scale=1.0, bins=3)
    >>> found.sum.round(2)
    array([1.48, 0.94, 0.58], dtype=float32)
    >>> found.histogram
    array([3, 1, 2]))";

constexpr std::string_view kHeadsDoc =
    R"(heads(query, key, *, blocks=16, {score}threads=None)
--

Summarises where each head attends, in a few statistics. For example, they tell a previous-token
head from an attention sink and from a uniform head. The weight matrix is never stored.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   same rank; the dtypes of attention()
blocks     number of equal blocks of keys for block_diagonal: block b has the keys from
           floor(b kv_len / blocks) to before floor((b + 1) kv_len / blocks); with fewer keys than
           blocks, each key is a block

Everything else is as in attention(); packed sequences and dropout are not supported.

Returns a HeadSummary of arrays [batch, q_heads], float32 (float64 for float64 inputs): means over
each head's rows with a weight above 0. entropy is in nats, and even_entropy is the entropy
of equal weights on all visible keys; maximum is the largest weight; mean_distance is in keys;
first_key, previous_key, own_key and next_key are the weights of key 0 and of the keys before, at
and after the query's own position i + offset; block_diagonal is the weight of all keys in the
query's block. For a position without a key, the weight is 0.

Cost       the cost of attention() without values, plus 1 / blocks of that for block_diagonal.
Raises     TypeError and ValueError as attention() does; the message has the argument, the expected
           and the actual value. Ctrl-C interrupts a long call in the main thread.

    >>> words = np.eye(8, dtype=np.float32)
    >>> query = np.stack([words, np.roll(words, 1, axis=0)])  # of this word, and of the one before
    >>> told = fovea.heads(query, np.stack([words, words]), mask=fovea.causal(), scale=9.0)
    >>> told.own_key.round(1)
    array([1. , 0.1], dtype=float32)
    >>> told.previous_key.round(1)
    array([0. , 0.9], dtype=float32))";

constexpr std::string_view kReferenceAttentionDoc =
    R"(attention(query, key, value, *, {keywords}threads=None, return_lse=False)
--

The oracle for fovea.attention(): the same function in plain scalar float64, one query at a time, in
textbook order. Slow.

Arguments are those of fovea.attention(), of any floating-point dtype; they are converted to
float64. Returns float64 NumPy arrays with query's rank: context, or with return_lse=True (context,
lse).)";

constexpr std::string_view kReferenceStepsDoc =
    R"(attention_steps(query, key, value, *, {keywords}normalization="softmax", arithmetic="float64")
--

Computes attention and keeps every intermediate array: O(q_len * kv_len) memory, for small problems.

normalization  turns a row of scores into weights: "softmax"; "softmax_unshifted", exp(s) / sum,
               which may overflow; "sum", s / sum
arithmetic     "float64"; "float32": rounds every operation, as in the naive computation, whose
               error is an upper bound for the faster kernels; "bfloat16", "float16": the same for
               tensors of these dtypes, with weights rounded before the product with the values

Other arguments are those of fovea.attention(). Returns Steps.)";

constexpr std::string_view kReferenceGradientsDoc =
    R"(attention_gradients(query, key, value, *, grad_context=None, grad_lse=None, grad_weights=None, {keywords}arithmetic="float64")
--

The oracle for fovea.attention_backward(): gradients in plain scalar float64, one query at a time.
Slow.

grad_context, grad_lse, grad_weights  gradients of the loss with respect to the results; None if the
              loss does not use the result:
                context                     [batch, q_heads, q_len, value_dim]
                lse                         [batch, q_heads, q_len]
                the weights before dropout  [batch, q_heads, q_len, kv_len]
arithmetic    as in attention_steps()

Other arguments are those of fovea.attention(), of any floating-point dtype. Returns Gradients of
NumPy arrays: float64, or float32 if arithmetic is not "float64".)";

constexpr std::string_view kScaledDotProductAttentionDoc =
    R"(scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)
--

Equivalent to torch.nn.functional.scaled_dot_product_attention, with the same arguments, semantics
and results, for arrays of torch, NumPy, JAX and others.

query      [..., q_len,  head_dim]    leading dimensions are broadcast
key        [..., kv_len, head_dim]
value      [..., kv_len, value_dim]
attn_mask  broadcasts to [..., q_len, kv_len]: bool, True where the key is visible; or float, added
           to the scores; or a CausalBias of torch
dropout_p  in [0, 1): probability of dropping a weight. Each call drops different weights: it takes
           the next call number of the stream that manual_seed() starts (one for each index of the
           dimensions before batch and heads). For torch tensors, PyTorch's generator gives the seed
is_causal  key j is visible iff j <= i, aligned top left; not supported with attn_mask
scale      1 / sqrt(head_dim) by default
enable_gqa  True: in [..., heads, length, dim], the number of query heads may be a multiple of the
           number of key heads and of value heads

Returns [..., q_len, value_dim], with query's array library and dtype. A fully masked row gives 0.
Torch tensors may require a gradient, attn_mask included; the result is then part of the graph.
Within torch.autocast("cpu"), they are cast as torch casts them.

Raises TypeError and ValueError; the message has the argument, the expected and the actual value.)";

std::string filled_in(std::string text) {
  for (const auto& [mark, common] : {std::pair{std::string_view("{keywords}"), kKeywords},
                                     {"{score}", kScoreKeywords},
                                     {"{problem}", kProblem}}) {
    const std::size_t at = text.find(mark);
    if (at != std::string::npos) text.replace(at, mark.size(), common);
  }
  return text;
}

}  // namespace

const char* attention_doc() {
  static const std::string text = filled_in(std::string(kAttentionDoc));
  return text.c_str();
}

const char* attention_backward_doc() {
  static const std::string text = filled_in(std::string(kAttentionBackwardDoc));
  return text.c_str();
}

const char* decode_doc() {
  static const std::string text = filled_in(std::string(kDecodeDoc));
  return text.c_str();
}

const char* reference_attention_doc() {
  static const std::string text = filled_in(std::string(kReferenceAttentionDoc));
  return text.c_str();
}

const char* reference_steps_doc() {
  static const std::string text = filled_in(std::string(kReferenceStepsDoc));
  return text.c_str();
}

const char* reference_gradients_doc() {
  static const std::string text = filled_in(std::string(kReferenceGradientsDoc));
  return text.c_str();
}

const char* heads_doc() {
  static const std::string text = filled_in(std::string(kHeadsDoc));
  return text.c_str();
}

const char* weights_doc() {
  static const std::string text = filled_in(std::string(kWeightsDoc));
  return text.c_str();
}

const char* received_doc() {
  static const std::string text = filled_in(std::string(kReceivedDoc));
  return text.c_str();
}

const char* scaled_dot_product_attention_doc() {
  static const std::string text = filled_in(std::string(kScaledDotProductAttentionDoc));
  return text.c_str();
}

}  // namespace fovea::python
