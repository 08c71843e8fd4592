# SPDX-License-Identifier: Apache-2.0
"""A cell's inputs and what is right for them: seeded float32 arrays, and float64 attention and its
gradients.

Everything a contender needs is here in plain form: the arrays, which keys a query sees, what is
added to the scores; each contender turns that into its own terms.
"""

import zlib

import numpy as np


class Problem:
    """query, key, value, and grad_context where gradients are asked for: float32 [1, heads, length, dim],
    normal, seeded by the cell's name; numbers that the cell's type has, whatever they are to be stored in."""

    def __init__(self, cell):
        self.cell = cell
        self.rng = np.random.default_rng(zlib.crc32(cell.name.encode()))
        self.query = self.stored(self.normal(cell.q_heads, cell.q_len, cell.key_dim))
        self.key = self.stored(self.normal(cell.kv_heads, cell.length, cell.key_dim))
        self.value = self.stored(self.normal(cell.kv_heads, cell.length, cell.value_dim))
        self.grad_context = None
        if cell.backward:
            self.grad_context = self.stored(self.normal(cell.q_heads, cell.q_len, cell.value_dim))
        n = cell.length
        self.dense_bias = self.normal(cell.q_heads, n, n) if cell.score == "bias" else None
        self.document_ids = np.arange(n) // (n // cell.documents) if cell.documents else None

    def normal(self, *shape):
        return self.rng.standard_normal((1, *shape), dtype=np.float32)

    def stored(self, array):
        """Rounded to the cell's type, to nearest, ties to even."""
        if self.cell.dtype == "float32":
            return array
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)

    @property
    def scale(self):
        return self.cell.key_dim**-0.5

    def slopes(self):
        """ALiBi's, for a power of two of heads."""
        heads = self.cell.q_heads
        return np.array([2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)])

    def visible(self, queries):
        """bool [queries, length]: the keys that each of these queries sees."""
        cell, i, j = self.cell, np.asarray(queries)[:, None], np.arange(self.cell.length)[None, :]
        if cell.mask == "causal":
            return j <= i
        if cell.mask == "window":
            return (j <= i) & (j >= i - cell.window)
        if cell.mask == "padding":
            return np.broadcast_to(j < cell.keys, (len(i), cell.length))
        if cell.mask == "documents":
            return self.document_ids[i] == self.document_ids[j]
        return np.ones((len(i), cell.length), bool)

    def bias_tensor(self):
        """What is added to the scores, [1, q_heads, length, length] float32, or None."""
        if self.cell.score == "bias":
            return self.dense_bias
        if self.cell.score == "alibi":
            place = np.arange(self.cell.length, dtype=np.float32)
            distance = np.abs(place[:, None] - place[None, :])
            return -self.slopes().astype(np.float32)[None, :, None, None] * distance
        return None

    def mask_tensor(self):
        """bool [1, 1, length or 1, length], true where visible; None without a mask."""
        if self.cell.mask == "full":
            return None
        queries = [0] if self.cell.mask == "padding" else range(self.cell.length)
        return np.ascontiguousarray(self.visible(queries))[None, None]

    def additive_mask(self):
        """mask_tensor() as float32: 0 where visible, -inf where not; the bias where there is one."""
        visible, bias = self.mask_tensor(), self.bias_tensor()
        if visible is None:
            return bias
        mask = np.where(visible, np.float32(0), np.float32(-np.inf))
        return mask if bias is None else mask + bias

    def rows_to_check(self):
        """The first query, the last and three between."""
        n = self.cell.q_len
        if n < 5:
            return list(range(n))
        between = np.random.default_rng(1).integers(1, n - 1, 3)
        return sorted({0, n - 1, *map(int, between)})

    def weights(self, head, rows):
        """float64 [rows, length]: softmax(scores) of one head as the textbook has it."""
        cell, group = self.cell, self.cell.q_heads // self.cell.kv_heads
        query = self.query[0, head, rows].astype(np.float64)
        key = self.key[0, head // group].astype(np.float64)
        scores = query @ key.T * self.scale
        if cell.score == "softcap":
            scores = cell.softcap * np.tanh(scores / cell.softcap)
        if cell.score == "alibi":
            distance = np.abs(np.asarray(rows)[:, None] - np.arange(cell.length)[None, :])
            scores -= self.slopes()[head] * distance
        if cell.score == "bias":
            scores += self.dense_bias[0, head, rows]
        scores = np.where(self.visible(rows), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def context_rows(self, rows):
        """float64 [q_heads, rows, value_dim]."""
        cell, group = self.cell, self.cell.q_heads // self.cell.kv_heads
        context = np.empty((cell.q_heads, len(rows), cell.value_dim))
        for head in range(cell.q_heads):
            context[head] = self.weights(head, rows) @ self.value[0, head // group].astype(np.float64)
        return context

    def gradients(self):
        """float64 gradients of query, key and value, [1, heads, length, dim], for scores that have no
        softcap; and beside each the sums of its terms without their signs, which its rounding follows."""
        cell, group = self.cell, self.cell.q_heads // self.cell.kv_heads
        assert cell.score != "softcap"
        inputs = (self.query, self.key, self.value)
        gradients = [np.zeros(array.shape) for array in inputs]
        sizes = [np.zeros(array.shape) for array in inputs]
        for head in range(cell.q_heads):
            shared = head // group
            query, grad_context = (array[0, head].astype(np.float64) for array in (self.query, self.grad_context))
            key, value = (array[0, shared].astype(np.float64) for array in (self.key, self.value))
            weights = self.weights(head, np.arange(cell.q_len))
            grad_weights = grad_context @ value.T
            grad_scores = weights * (grad_weights - (weights * grad_weights).sum(axis=1, keepdims=True)) * self.scale
            for place, (of, left, right) in enumerate([(head, grad_scores, key), (shared, grad_scores.T, query),
                                                       (shared, weights.T, grad_context)]):  # fmt: skip
                gradients[place][0, of] += left @ right
                sizes[place][0, of] += np.abs(left) @ np.abs(right)
        return gradients, sizes

    def check(self, results):
        """The largest difference from float64 and how large it may be: of the context in the rows
        checked, or of that gradient which comes nearest to what it may be off by. inf for a wrong
        shape or NaN."""
        if self.cell.backward:
            checks = [(difference(result, right), self.rounding(size)) for result, right, size in
                      zip(results, *self.gradients(), strict=True)]  # fmt: skip
            return max(checks, key=lambda check: check[0] / check[1])
        (context,) = results
        cell, rows = self.cell, self.rows_to_check()
        if context.shape != (1, cell.q_heads, cell.q_len, cell.value_dim):
            return float("inf"), self.rounding(np.abs(self.value))
        return difference(context[0][:, rows], self.context_rows(rows)), self.rounding(np.abs(self.value))

    def rounding(self, size):
        """What rounding explains, of sums of terms of such sizes (of a context: of values, whose average
        it is). Each weight is off by as much as its score is (a few ulp of |q| |k| scale, here below
        16): 64 float32 roundings of the largest. One key too many or too few among a thousand is thirty
        times that. In bfloat16 weights and results are rounded too: four of its roundings of what is
        average."""
        of_type = 4 * 2.0**-9 * float(size.mean()) if self.cell.dtype == "bfloat16" else 0.0
        return 64 * float(np.finfo(np.float32).eps) / 2 * float(size.max()) + of_type


def difference(result, right):
    """The largest; inf for a wrong shape or NaN."""
    if result.shape != right.shape:
        return float("inf")
    largest = float(np.abs(result.astype(np.float64) - right).max())
    return largest if np.isfinite(largest) else float("inf")
