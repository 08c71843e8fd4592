// SPDX-License-Identifier: Apache-2.0
//
// Docstrings (docs.h). What the functions have in common is said once and put in where {keywords}
// and {problem} stand.

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
    R"(mask       which query may see which key: causal(), window(left, right), prefix(n),
           documents(ids), key_lengths(n), dense(array), joined by & and |; or an array of
           bool, True where visible, that broadcasts to [batch, q_heads, q_len, kv_len]
scale      factor on query . key; 1 / sqrt(head_dim) by default
softcap    c > 0 squashes a score s to c * tanh(s / c)
bias       floats, added to the scores; broadcasts to [batch, q_heads, q_len, kv_len];
           -inf masks
alibi      True: minus slope[head] * |i + offset - j| (Press et al. 2022); or the slopes,
           one per query head
relative   a RelativeTable (T5's buckets)
sinks      one extra logit per query head, which joins the denominator only
alignment  where query i stands among the keys, at i + offset, for causal, window, alibi and
           relative alike: "bottom-right", the last query at the last key; "top-left",
           offset 0; a number, or one per batch item
query_starts, key_starts  packed sequences: 0, ..., length along tensors of batch 1; sequence
           s has queries query_starts[s] to query_starts[s + 1], and sees its own keys only
dropout    a Dropout: which weights are left out, in training
)";

constexpr std::string_view kAttentionDoc =
    R"(attention(query, key, value, *, {keywords}threads=None, return_lse=False, out=None, lenses=None)
--

context = softmax(scale * Q K^T + bias, masked) V, in one fused pass that never stores the scores.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   all three alike; q_heads % kv_heads == 0
value      [batch, kv_heads, kv_len, value_dim]

Arrays are NumPy's (bfloat16 by ml_dtypes), torch's or JAX's on the CPU, or anything else with
DLPack or the buffer protocol. They are float32, float16 or bfloat16, each as it likes, or all of
them float64, which the reference computes, slowly. None is copied but those whose last dimension
is not contiguous; read-only ones will do.

{problem}threads    at most so many; by default as OpenMP says (OMP_NUM_THREADS, else one per CPU)
return_lse  also return lse, the natural log of each row's sum of exponentials
out        an array for the context, which is then what is returned; it may share no memory with
           the others
lenses     a Lenses: what to see of the weights meanwhile, such as each row's entropy and largest
           weights, or a map of all; not beside dropout

Returns [batch, q_heads, q_len, value_dim], of query's kind, rank and type; with return_lse=True
also lse [batch, q_heads, q_len], of float32 (float64 where query is); with lenses also, last, a
Seen of NumPy arrays.

Order      query . key, then scale, softcap, biases, mask.
Masking    causal() with q_len = 2, kv_len = 5, the last query at the last key:
             1 1 1 1 0
             1 1 1 1 1
           A fully masked row gives context 0 and lse -inf (with a sink: the sink). NaN and inf in
           a masked key or value never leak; in a visible one they propagate.
Gradients  attention_backward(); fovea.torch.attention() is this function for PyTorch's autograd.
Numerics   sums in float32, online softmax; docs/numerics.md has the bounds and their tests.
Cost       2 * batch * q_heads * q_len * kv_len * (head_dim + value_dim) flop, less the blocks of
           keys that a mask hides; O(q_len + kv_len) memory.
Threads    the same bits for any number of them. Other threads of Python run meanwhile. Ctrl-C
           ends a long call of the main thread.
Raises     TypeError for what is no array, or one of another type; ValueError for shapes, values,
           devices and overlapping memory, naming the argument, what was expected and what came,
           before `out` is touched. KeyboardInterrupt leaves `out` unspecified.
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

The gradients of a loss with respect to what attention() was given, from those with respect to what
it returned, in one fused pass that computes the weights anew and never stores them.

query, key, value  those of attention()
context       [batch, q_heads, q_len, value_dim]   what attention() returned
lse           [batch, q_heads, q_len]              with return_lse=True
grad_context  [batch, q_heads, q_len, value_dim]   the gradient of the loss with respect to context
grad_lse      [batch, q_heads, q_len]              and to lse; None: the loss has nothing of lse
wanted        which gradients to compute, a list of their names; by default all that there are; also
              "relevance" and "magnitude"

The other keywords are those of attention(), as they were given there: a Dropout is the same one.
All arrays have as many dimensions as query has, those of lse one less. Query, key, value, context
and grad_context are float32, float16 or bfloat16, each as it likes, and lse and grad_lse float32;
or all are float64, which the reference computes, slowly.

Returns Gradients: .query, .key, .value, .bias, .relative and .sinks, each of the kind, shape and
type of what it is the gradient of; those of relative, [buckets, q_heads], and sinks, [q_heads], are
of query's kind and lse's type. What was not given, or is not wanted, is None.

Also .relevance and .magnitude, [batch, q_heads, kv_len] and of query's kind and lse's type: what
each key did to the loss, the sums over queries of P dP, and of |P dP|. To first order the loss
falls by a key's relevance where its weights become 0 and the others stay as they are.

With P = exp(S - lse), and Z = 1 / (1 - p) where dropout keeps a weight and 0 elsewhere:
  dV = (Z P)^T dO,  dP = Z dO V^T,  dS = P (dP - rowsum(dO O) + dlse),  dQ = dS K,  dK = dS^T Q
with what scale and softcap do to scores in between; dbias = dS, summed where the bias repeats.

Masking    a masked key and a row without a visible key get zeros and give nothing, whatever they
           hold.
Numerics   sums in float32; docs/numerics.md.
Cost       2 * batch * q_heads * q_len * kv_len * (3 head_dim + 2 value_dim) flop, less the blocks
           of keys that a mask hides; O(q_len + kv_len) memory.
Threads    the same bits for any number of them. Other threads of Python run meanwhile. Ctrl-C
           ends a long call of the main thread.
Raises     TypeError and ValueError as attention(), naming the argument, what was expected and what
           came.
Source     Dao et al. 2022 (FlashAttention); of relevance Barkan et al. 2021, Chefer et al. 2021.

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

The same function as attention() for one to a few queries against many keys, as in generating text:
bound by memory, where attention() would leave most of its lanes empty. The faster one up to about
32 queries per head of keys.

query      [batch, q_heads, q_len, head_dim], or with fewer dimensions, as in attention()
key        [batch, kv_heads, kv_len, head_dim]; or a KvCache, which has values as well
value      [batch, kv_heads, kv_len, value_dim]; not beside a KvCache

All keywords, results and errors are those of attention(); with dropout, and with lenses of more
than a few queries, it is that function.

Cost       kv_len * (head_dim + value_dim) numbers read per head of keys, once; keys that no query
           sees are not read. With lenses the keys once more for each query.
Source     Dao et al. 2023 (Flash-Decoding): parts of the keys, merged by their lse.)";

constexpr std::string_view kWeightsDoc =
    R"(weights(query, key, *, rows=None, cols=None, batch=0, head=0, lse=None, {score}threads=None)
--

The weights of some neighbouring queries and keys of one head, which attention() does not keep,
found again at a cost that depends on how many they are: exp(score - lse), 0 where the mask hides
the key.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   both alike, of the types that attention() takes
rows, cols  which queries and which keys: slices without a step, as NumPy takes them, or pairs of
           the first and the end; None: all
batch, head  which item and which of the query heads
lse        [batch, q_heads, q_len], what attention(..., return_lse=True) gave for them with the
           same options; None: it is computed here, by a pass over all heads

All else is as in attention(); packed sequences and dropout do not go here.

Returns [rows, cols], a NumPy array of float32 (float64 where query is). Part of a larger rectangle
has the same bits. A row of the whole matrix adds up to 1, less a sink's share, but for the rounding
of lse; one that sees nothing is 0.

Cost       2 * rows * cols * head_dim flop; without lse also 2 * batch * q_heads * q_len * kv_len *
           head_dim, less what the mask hides.
Raises     TypeError and ValueError as attention(), naming the argument, what was expected and what
           came. Ctrl-C ends a long call of the main thread.

    >>> words = np.eye(3, dtype=np.float32)
    >>> fovea.weights(words, words, rows=(1, 3), mask=fovea.causal(), scale=1.0).round(2)
    array([[0.27, 0.73, 0.  ],
           [0.21, 0.21, 0.58]], dtype=float32))";

constexpr std::string_view kReceivedDoc =
    R"(received(query, key, *, lse=None, recent=None, bins=None, {score}threads=None)
--

What each key received from all queries, in every head: one more product of queries and keys, of
which nothing is stored.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   both alike, of the types that attention() takes
lse        [batch, q_heads, q_len], what attention(..., return_lse=True) gave for them with the
           same options; None: it is computed here, by one more pass
recent     1 to q_len: also the sum over so many last queries, as methods that drop keys from a
           cache have it
bins       1 to 4096: also how many visible weights there are of which size; bin b counts
           2^-(b + 1) < w <= 2^-b, the last one all that are smaller

All else is as in attention(); packed sequences and dropout do not go here.

Returns a Received of NumPy arrays: sum, largest, and recent [batch, q_heads, kv_len], of float32
(float64 where query is); histogram [batch, q_heads, bins], int64. Recent and histogram are None
where they were not asked for.

Cost       2 * batch * q_heads * q_len * kv_len * head_dim flop, less what the mask hides.
Raises     TypeError and ValueError as attention(), naming the argument, what was expected and what
           came. Ctrl-C ends a long call of the main thread.
Source     Zhang et al. 2023 (H2O) keep the keys with the largest sums, Li et al. 2024 (SnapKV)
           those that the last queries look at.

    >>> words = np.eye(3, dtype=np.float32)
    >>> found = fovea.received(words, words, mask=fovea.causal(), scale=1.0, bins=3)
    >>> found.sum.round(2)
    array([1.48, 0.94, 0.58], dtype=float32)
    >>> found.histogram
    array([3, 1, 2]))";

constexpr std::string_view kHeadsDoc =
    R"(heads(query, key, *, blocks=16, {score}threads=None)
--

What each head looks at, in a few numbers: enough to tell one of the previous token from a sink, or
from one that looks everywhere alike. The matrix is never stored.

query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
key        [batch, kv_heads, kv_len, head_dim]   both alike, of the types that attention() takes
blocks     into how many equal blocks the keys are cut for block_diagonal: block b has those from
           floor(b kv_len / blocks) to before floor((b + 1) kv_len / blocks); where there are fewer
           keys, each is a block

All else is as in attention(); packed sequences and dropout do not go here.

Returns a HeadSummary of arrays [batch, q_heads] of float32 (float64 where query is), means over the
rows of each head that see a key: entropy, in nats, and even_entropy, what it would be if all keys
that the mask shows had equal weights; maximum, the largest weight; mean_distance, in keys;
first_key, previous_key, own_key and next_key, the weights of key 0 and of those before, at and
after the query's own position i + offset; block_diagonal, of all keys in the same block. Where a
position has no key, the weight is 0.

Cost       that of attention() without values, and 1 / blocks of it for the blocks.
Raises     TypeError and ValueError as attention(), naming the argument, what was expected and what
           came. Ctrl-C ends a long call of the main thread.

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

What fovea.attention() is judged by: the same in plain scalar float64, one query at a time, in the
order of the textbook. Slow.

Arguments are those of fovea.attention(), of any type of float each; they are converted to float64.
Returns NumPy arrays of float64, of query's rank: context, or with return_lse=True (context, lse).)";

constexpr std::string_view kReferenceStepsDoc =
    R"(attention_steps(query, key, value, *, {keywords}normalization="softmax", arithmetic="float64")
--

Attention with every intermediate array kept: O(q_len * kv_len) memory, for small problems.

normalization  how a row of scores becomes weights: "softmax"; "softmax_unshifted",
               exp(s) / sum, which overflows; "sum", s / sum
arithmetic     "float64"; "float32": every operation rounded, the naive computation that faster
               ones must not be less exact than; "bfloat16", "float16": the same for tensors of
               these types, with weights rounded before they meet the values

Other arguments are those of fovea.attention(). Returns Steps.)";

constexpr std::string_view kReferenceGradientsDoc =
    R"(attention_gradients(query, key, value, *, grad_context=None, grad_lse=None, grad_weights=None, {keywords}arithmetic="float64")
--

What fovea.attention_backward() is judged by: gradients in plain scalar float64, one query at a
time. Slow.

grad_context  [batch, q_heads, q_len, value_dim]  gradients of the loss with respect to context,
grad_lse      [batch, q_heads, q_len]             lse
grad_weights  [batch, q_heads, q_len, kv_len]     and weights, as they are before dropout: a loss
              on where a query looks; None: the loss has nothing of it
arithmetic    that of attention_steps()

Other arguments are those of fovea.attention(), of any type of float each. Returns Gradients of
NumPy arrays, float64 (float32 for the other arithmetics).)";

constexpr std::string_view kScaledDotProductAttentionDoc =
    R"(scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)
--

torch.nn.functional.scaled_dot_product_attention: its arguments, meaning and results, for arrays of
torch, NumPy, JAX and others.

query      [..., q_len,  head_dim]    the leading dimensions of all three broadcast
key        [..., kv_len, head_dim]
value      [..., kv_len, value_dim]
attn_mask  broadcasts to [..., q_len, kv_len]: bool, True where the key takes part; or float, added
           to the scores
dropout_p  in [0, 1): leaves out weights with this probability, others each time: as manual_seed()
           says, with the next number of its stream (dimensions before batch and heads take one
           for each of their indices)
is_causal  key j is visible iff j <= i, from the top left; not beside attn_mask
scale      1 / sqrt(head_dim) by default
enable_gqa  [..., heads, length, dim], where query's heads are a multiple of key's and value's

Returns [..., q_len, value_dim], of query's kind and type. A fully masked row gives 0. Tensors of
torch's may require a gradient, attn_mask too: then the result is part of its graph.

Raises TypeError and ValueError, naming the argument, what was expected and what came.)";

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
