// SPDX-License-Identifier: Apache-2.0
//
// The docstrings of the functions on arrays. Their first lines are what inspect.signature() reads.

#pragma once

namespace fovea::python {

#define FOVEA_PROBLEM_KEYWORDS                                                                     \
  "mask=None, scale=None, softcap=None, bias=None, alibi=None, relative=None, sinks=None, "        \
  "alignment=\"bottom-right\", query_starts=None, key_starts=None, "

#define FOVEA_PROBLEM_DOC                                                                          \
  "mask       which query may see which key: causal(), window(left, right), prefix(n),\n"          \
  "           documents(ids), key_lengths(n), dense(array), joined by & and |; or an array of\n"   \
  "           bool, True where visible, that broadcasts to [batch, q_heads, q_len, kv_len]\n"      \
  "scale      factor on query . key; 1 / sqrt(head_dim) by default\n"                              \
  "softcap    c > 0 squashes a score s to c * tanh(s / c)\n"                                       \
  "bias       floats, added to the scores; broadcasts to [batch, q_heads, q_len, kv_len];\n"       \
  "           -inf masks\n"                                                                        \
  "alibi      True: minus slope[head] * |i + offset - j| (Press et al. 2022); or the slopes,\n"    \
  "           one per query head\n"                                                                \
  "relative   a RelativeTable (T5's buckets)\n"                                                    \
  "sinks      one extra logit per query head, which joins the denominator only\n"                  \
  "alignment  where query i stands among the keys, at i + offset, for causal, window, alibi and\n" \
  "           relative alike: \"bottom-right\", the last query at the last key; \"top-left\",\n"   \
  "           offset 0; a number, or one per batch item\n"                                         \
  "query_starts, key_starts  packed sequences: 0, ..., length along tensors of batch 1; sequence\n" \
  "           s has queries query_starts[s] to query_starts[s + 1], and sees its own keys only\n"

constexpr const char* kAttentionDoc =
    "attention(query, key, value, *, " FOVEA_PROBLEM_KEYWORDS
    "threads=None, return_lse=False, out=None)\n--\n\n"
    "context = softmax(scale * Q K^T + bias, masked) V, in one fused pass that never stores the scores.\n"
    "\n"
    "query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;\n"
    "key        [batch, kv_heads, kv_len, head_dim]   all three alike; q_heads % kv_heads == 0\n"
    "value      [batch, kv_heads, kv_len, value_dim]\n"
    "\n"
    "Arrays are NumPy's (bfloat16 by ml_dtypes), torch's or JAX's on the CPU, or anything else with\n"
    "DLPack or the buffer protocol. They are float32, float16 or bfloat16, each as it likes, or all of\n"
    "them float64, which the reference computes, slowly. None is copied but those whose last dimension\n"
    "is not contiguous; read-only ones will do.\n"
    "\n" FOVEA_PROBLEM_DOC
    "threads    at most so many; by default as OpenMP says (OMP_NUM_THREADS, else one per CPU)\n"
    "return_lse  also return lse, the natural log of each row's sum of exponentials\n"
    "out        an array for the context, which is then what is returned; it may share no memory with\n"
    "           the others\n"
    "\n"
    "Returns [batch, q_heads, q_len, value_dim], of query's kind, rank and type; with return_lse=True\n"
    "also lse [batch, q_heads, q_len], of float32 (float64 where query is).\n"
    "\n"
    "Order      query . key, then scale, softcap, biases, mask.\n"
    "Masking    causal() with q_len = 2, kv_len = 5, the last query at the last key:\n"
    "             1 1 1 1 0\n"
    "             1 1 1 1 1\n"
    "           A fully masked row gives context 0 and lse -inf (with a sink: the sink). NaN and inf in\n"
    "           a masked key or value never leak; in a visible one they propagate.\n"
    "Numerics   sums in float32, online softmax; docs/numerics.md has the bounds and their tests.\n"
    "Cost       2 * batch * q_heads * q_len * kv_len * (head_dim + value_dim) flop, less the blocks of\n"
    "           keys that a mask hides; O(q_len + kv_len) memory.\n"
    "Threads    the same bits for any number of them. Other threads of Python run meanwhile. Ctrl-C\n"
    "           ends a long call of the main thread.\n"
    "Raises     TypeError for what is no array, or one of another type; ValueError for shapes, values,\n"
    "           devices and overlapping memory, naming the argument, what was expected and what came,\n"
    "           before `out` is touched. KeyboardInterrupt leaves `out` unspecified.\n"
    "Source     Dao et al. 2022 (FlashAttention); Milakov and Gimelshein 2018 (online softmax).\n"
    "\n"
    "    >>> import numpy, fovea\n"
    "    >>> words = numpy.eye(3, dtype=numpy.float32)\n"
    "    >>> fovea.attention(words, words, words, mask=fovea.causal(), scale=1.0).round(2)\n"
    "    array([[1.  , 0.  , 0.  ],\n"
    "           [0.27, 0.73, 0.  ],\n"
    "           [0.21, 0.21, 0.58]], dtype=float32)";

constexpr const char* kDecodeDoc =
    "decode(query, key, value=None, *, " FOVEA_PROBLEM_KEYWORDS
    "threads=None, return_lse=False, out=None)\n--\n\n"
    "The same function as attention() for one to a few queries against many keys, as in generating text:\n"
    "bound by memory, where attention() would leave most of its lanes empty. The faster one up to about\n"
    "32 queries per head of keys.\n"
    "\n"
    "query      [batch, q_heads, q_len, head_dim], or with fewer dimensions, as in attention()\n"
    "key        [batch, kv_heads, kv_len, head_dim]; or a KvCache, which has values as well\n"
    "value      [batch, kv_heads, kv_len, value_dim]; not beside a KvCache\n"
    "\n"
    "All keywords, results and errors are those of attention().\n"
    "\n"
    "Cost       kv_len * (head_dim + value_dim) numbers read per head of keys, once; keys that no query\n"
    "           sees are not read.\n"
    "Source     Dao et al. 2023 (Flash-Decoding): parts of the keys, merged by their lse.";

constexpr const char* kReferenceAttentionDoc =
    "attention(query, key, value, *, " FOVEA_PROBLEM_KEYWORDS
    "threads=None, return_lse=False)\n--\n\n"
    "What fovea.attention() is judged by: the same in plain scalar float64, one query at a time, in the\n"
    "order of the textbook. Slow.\n"
    "\n"
    "Arguments are those of fovea.attention(), of any type of float each; they are converted to float64.\n"
    "Returns NumPy arrays of float64, of query's rank: context, or with return_lse=True (context, lse).";

constexpr const char* kReferenceStepsDoc =
    "attention_steps(query, key, value, *, " FOVEA_PROBLEM_KEYWORDS
    "normalization=\"softmax\", arithmetic=\"float64\")\n--\n\n"
    "Attention with every intermediate array kept: O(q_len * kv_len) memory, for small problems.\n"
    "\n"
    "normalization  how a row of scores becomes weights: \"softmax\"; \"softmax_unshifted\",\n"
    "               exp(s) / sum, which overflows; \"sum\", s / sum\n"
    "arithmetic     \"float64\"; \"float32\": every operation rounded, the naive computation that faster\n"
    "               ones must not be less exact than; \"bfloat16\", \"float16\": the same for tensors of\n"
    "               these types, with weights rounded before they meet the values\n"
    "\n"
    "Other arguments are those of fovea.attention(). Returns Steps.";

constexpr const char* kScaledDotProductAttentionDoc =
    "scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, "
    "scale=None, enable_gqa=False)\n--\n\n"
    "torch.nn.functional.scaled_dot_product_attention: its arguments, meaning and results, for arrays of\n"
    "torch, NumPy, JAX and others.\n"
    "\n"
    "query      [..., q_len,  head_dim]    the leading dimensions of all three broadcast\n"
    "key        [..., kv_len, head_dim]\n"
    "value      [..., kv_len, value_dim]\n"
    "attn_mask  broadcasts to [..., q_len, kv_len]: bool, True where the key takes part; or float, added\n"
    "           to the scores\n"
    "dropout_p  0: NotImplementedError for more, until there is a backward pass\n"
    "is_causal  key j is visible iff j <= i, from the top left; not beside attn_mask\n"
    "scale      1 / sqrt(head_dim) by default\n"
    "enable_gqa  [..., heads, length, dim], where query's heads are a multiple of key's and value's\n"
    "\n"
    "Returns [..., q_len, value_dim], of query's kind and type. A fully masked row gives 0.\n"
    "\n"
    "Raises TypeError and ValueError, naming the argument, what was expected and what came.";

}  // namespace fovea::python
