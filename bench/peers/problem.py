# SPDX-License-Identifier: Apache-2.0
"""A cell's inputs and expected results: seeded float32 arrays, and attention and its gradients in float64.

The inputs, the visible keys of each query and the bias of the scores are NumPy arrays here. Each contender
converts them to its own types.
"""

import zlib

import numpy as np

import cells


class Problem:
    """query, key, value, and for gradients grad_context: float32 arrays [1, heads, length, dim], normally
    distributed, seeded by the cell's name and rounded to values of the cell's dtype."""

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
        """Rounds to the cell's dtype, to nearest with ties to even; the result is still a float32 array."""
        if self.cell.dtype == "float32":
            return array
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)

    @property
    def scale(self):
        return self.cell.key_dim**-0.5

    def slopes(self):
        """Returns ALiBi's slopes; the number of heads must be a power of two."""
        heads = self.cell.q_heads
        return np.array([2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)])

    def visible(self, queries):
        """Returns bool [queries, length], true for keys visible to the query."""
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
        """Returns the tensor to add to the scores, float32 [1, q_heads, length, length], or None."""
        if self.cell.score == "bias":
            return self.dense_bias
        if self.cell.score == "alibi":
            place = np.arange(self.cell.length, dtype=np.float32)
            distance = np.abs(place[:, None] - place[None, :])
            return -self.slopes().astype(np.float32)[None, :, None, None] * distance
        return None

    def mask_tensor(self):
        """Returns bool [1, 1, length or 1, length], true for visible keys; None without a mask."""
        if self.cell.mask == "full":
            return None
        queries = [0] if self.cell.mask == "padding" else range(self.cell.length)
        return np.ascontiguousarray(self.visible(queries))[None, None]

    def additive_mask(self):
        """Returns mask_tensor() as float32, 0 or the bias for visible keys and -inf for others; the bias if there is no
        mask; None without either."""
        visible, bias = self.mask_tensor(), self.bias_tensor()
        if visible is None:
            return bias
        mask = np.where(visible, np.float32(0), np.float32(-np.inf))
        return mask if bias is None else mask + bias

    def rows_to_check(self):
        """Returns the first query, the last, and three in between."""
        n = self.cell.q_len
        if n < 5:
            return list(range(n))
        between = np.random.default_rng(1).integers(1, n - 1, 3)
        return sorted({0, n - 1, *map(int, between)})

    def weights(self, head, rows):
        """Returns softmax(scores) of one head, float64 [rows, length], by the plain formula."""
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
        """Returns the context, float64 [q_heads, rows, value_dim], and the same sums with the absolute values of the
        value tensor."""
        cell, group = self.cell, self.cell.q_heads // self.cell.kv_heads
        context = np.empty((cell.q_heads, len(rows), cell.value_dim))
        size = np.empty_like(context)
        for head in range(cell.q_heads):
            weights, value = self.weights(head, rows), self.value[0, head // group].astype(np.float64)
            context[head], size[head] = weights @ value, weights @ np.abs(value)
        return context, size

    def gradients(self):
        """Returns the gradients of query, key and value, float64 [1, heads, length, dim], and the same sums over
        absolute values, in which nothing cancels. Softcap is not supported."""
        cell, group = self.cell, self.cell.q_heads // self.cell.kv_heads
        assert cell.score != "softcap"
        arrays = (self.query, self.key, self.value)
        gradients, sizes = ([np.zeros(array.shape) for array in arrays] for _ in range(2))
        for head in range(cell.q_heads):
            shared = head // group
            weights = self.weights(head, np.arange(cell.q_len))
            for sums, signed, minus in ((gradients, lambda x: x, np.subtract), (sizes, np.abs, np.add)):
                query, grad_context = (signed(array[0, head].astype(np.float64))
                                       for array in (self.query, self.grad_context))  # fmt: skip
                key, value = (signed(array[0, shared].astype(np.float64)) for array in (self.key, self.value))
                grad_weights = grad_context @ value.T
                average = (weights * grad_weights).sum(axis=1, keepdims=True)
                grad_scores = weights * minus(grad_weights, average) * self.scale
                for total, of, term in zip(sums, (head, shared, shared),
                                           (grad_scores @ key, grad_scores.T @ query, weights.T @ grad_context),
                                           strict=True):  # fmt: skip
                    total[0, of] += term
        return gradients, sizes

    def lenses(self, given):
        """Returns for each of cells.LENSES the given result, the float64 result, and the sum of the absolute values of
        its terms, all [1, q_heads, ...]. Top keys are replaced by their weights, because rounding can change
        their order."""
        found = dict(zip(cells.LENSES, given, strict=True))
        rows = []
        n = self.cell.length
        side = n // cells.MAP
        keys = np.arange(n)
        distance = (keys[:, None] - keys[None, :]).astype(np.float64)
        for head in range(self.cell.q_heads):
            weights = self.weights(head, keys)
            of_keys = {name: np.take_along_axis(weights, found[name][0, head].reshape(n, -1), axis=1)
                       for name in ("maximum_key", "top_keys")}  # fmt: skip
            top = -np.sort(-weights, axis=1)[:, : cells.TOP]
            entropy = -(weights * np.log(weights)).sum(axis=1)
            mean, square = (weights * distance).sum(axis=1), (weights * distance**2).sum(axis=1)
            pooled = weights.reshape(cells.MAP, side, cells.MAP, side).sum(axis=(1, 3))
            received = weights.sum(axis=0)
            own = {name: found[name][0, head] for name in cells.LENSES} | of_keys
            own["maximum_key"] = own["maximum_key"][:, 0]
            right = (entropy, top[:, 0], top[:, 0], mean, square - mean**2, weights[:, 0], top, top, pooled, received)
            size = list(right)
            size[0], size[3], size[4] = 1 + entropy, (weights * np.abs(distance)).sum(axis=1), square
            rows.append((tuple(own.values()), right, size))
        return [[np.stack(heads)[None] for heads in zip(*of_all, strict=True)] for of_all in zip(*rows, strict=True)]

    def check(self, results):
        """Returns (error, tolerance) of the number with the largest error relative to its tolerance, among all
        gradients, or among the checked rows of the context and all lens results. The error is infinite for a
        wrong shape or NaN.

        The tolerance is proportional to the sum of the absolute values of the terms. The relative error of a weight
        is the absolute error of its score (a few ulp of |q| |k| scale, which is below 16 here): 64 roundings in
        float32. One key too many or too few among a thousand changes a result by hundreds of roundings. In
        bfloat16, the weights, their intermediate values and the results are also rounded: four bfloat16 roundings."""
        if self.cell.backward:
            rights, sizes = self.gradients()
        else:
            cell, rows = self.cell, self.rows_to_check()
            if results[0].shape != (1, cell.q_heads, cell.q_len, cell.value_dim):
                return float("inf"), 0.0
            watched = results[1:]
            results = [results[0][0][:, rows]]
            rights, sizes = ([array] for array in self.context_rows(rows))
            if cell.lenses:
                for all_of, some in zip((results, rights, sizes), self.lenses(watched), strict=True):
                    all_of += some
        roundings = 64 * 2.0**-24 + (4 * 2.0**-9 if self.cell.dtype == "bfloat16" else 0.0)
        worst = (0.0, 0.0)
        for result, right, size in zip(results, rights, sizes, strict=True):
            if result.shape != right.shape or not np.isfinite(result).all():
                return float("inf"), 0.0
            difference, allowed = np.abs(result - right).ravel(), (roundings * size).ravel()
            place = np.argmax(difference / allowed)
            worst = max(worst, (float(difference[place]), float(allowed[place])),
                        key=lambda pair: pair[0] / (pair[1] or 1))  # fmt: skip
        return worst
