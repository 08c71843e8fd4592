# SPDX-License-Identifier: Apache-2.0
"""A call of PyTorch's flex_attention as options of fovea.attention(). Its functions mask_mod and score_mod are
evaluated block by block. mask_mod becomes a rule; score_mod becomes a scale, a softcap or biases.

flex_attention computes softmax(score_mod(scale query . key)), masked by mask_mod (Dong et al. 2024, "Flex Attention").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from .rules import Rule
from .torch_masks import KnownMasks, PlacedRule, placed

_Mod = Callable[..., Tensor]
_Block = Callable[[range, range], Tensor]  # of rows and columns; returns [batch or 1, heads or 1, rows, columns]
# Allowed difference of a recognised score_mod from the function itself: some roundings.
_CLOSE = {torch.float32: 1e-5, torch.float64: 1e-12}
# Minimum number of samples; with fewer, a score_mod is also compared on the real scores.
_MIN_SAMPLES = 1 << 12
# Pairs that are evaluated at once; each evaluation costs about a millisecond in vmap().
_BLOCK = 1 << 20
# Limit of the biases of a score_mod: 512 MB of float32.
_MAX_BIASES = 1 << 27


class FlexProblem(NamedTuple):
    """Options of fovea.attention(): score = softcap(scale query . key) + bias, and the mask."""

    place: PlacedRule
    scale: float
    softcap: float | None
    bias: Tensor | None


def _evaluated(mod: _Mod, extents: tuple[int, int], rows: range, columns: range, *scores: Tensor) -> Tensor:
    """Returns the values of a mask_mod, or of a score_mod for scores [..., rows, columns], as a tensor [batch, heads,
    rows, columns]. Batch and heads are 1 if the values do not depend on them."""
    # Imported here because it imports Dynamo, which takes a second.
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    mapped = mod
    for place in (3, 2, 1, 0):  # key, query, head, batch
        of_scores = tuple(0 if place >= 4 - each.dim() else None for each in scores)
        mapped = torch.vmap(mapped, in_dims=of_scores + tuple(0 if other == place else None for other in range(4)))
    places = [torch.arange(each.start, each.stop) for each in (*map(range, extents), rows, columns)]
    # vmap() cannot index a captured tensor by a mapped index; the mode replaces such indexing, as in PyTorch.
    with TransformGetItemToIndex():
        found = mapped(*scores, *places)
    for dim in (0, 1):
        if found.shape[dim] > 1 and found.stride(dim) == 0:  # vmap() expands what does not depend on an index
            found = found.narrow(dim, 0, 1)
    return found


class _ScoreMod:
    """A score_mod for given queries and keys."""

    def __init__(self, mod: _Mod, query: Tensor, key: Tensor, scale: float) -> None:
        self._mod, self._query, self._key, self._scale = mod, query, key, scale
        self._dtype = torch.promote_types(query.dtype, torch.float32)
        self._close = _CLOSE[self._dtype]
        self._extents = query.shape[0], query.shape[1]
        self.q_len, self.kv_len = query.shape[2], key.shape[2]
        self.factor = 1.0
        self.softcap: float | None = None
        # Scores of all magnitudes, to compare functions; every block uses the same ones.
        generator = torch.Generator().manual_seed(0)
        rows, columns = next(_row_blocks(self.q_len, self.kv_len))
        size = len(rows), len(columns)
        normal, power = (one(size, generator=generator, dtype=self._dtype) for one in (torch.randn, torch.rand))
        self._samples = normal * 10 ** (4 * power - 1)

    def of(self, rows: range, columns: range, scores: Tensor) -> Tensor:
        return _evaluated(self._mod, self._extents, rows, columns, scores)

    def at_zero(self, rows: range, columns: range) -> Tensor:
        """Returns the biases if the function adds biases: its values for scores of 0."""
        return self.of(rows, columns, torch.zeros(len(rows), len(columns), dtype=self._dtype))

    def find_form(self) -> None:
        """Reads factor and softcap off the values at one visible pair."""
        for row, column in ((0, 0), (self.q_len - 1, 0), (self.q_len - 1, self.kv_len - 1), (0, self.kv_len - 1)):
            place = range(row, row + 1), range(column, column + 1)
            zero, one, high, low = (
                float(self.of(*place, torch.full((1, 1), score, dtype=self._dtype)).flatten()[0])
                for score in (0.0, 1.0, 1e6, -1e6)
            )
            if zero == -torch.inf:
                continue
            limit = (high - low) / 2
            if 0 < limit < 1e4:  # softcap * tanh(+-1e6 / softcap) = +-softcap
                self.softcap = limit
            else:
                self.factor = 1.0 if math.isclose(one - zero, 1, abs_tol=self._close) else one - zero
            return

    def adds_biases(self) -> tuple[bool, bool, bool]:
        """Returns whether the function is factor or softcap, and then adds the values at 0; whether such a value is not
        0; and whether all are 0 or -inf."""
        any_bias, only_mask = False, True
        for rows, columns in _row_blocks(self.q_len, self.kv_len):
            biases = self.at_zero(rows, columns)
            compared = [self._samples[: len(rows)]]
            if compared[0].numel() < _MIN_SAMPLES:
                compared.append(self._scores(rows, columns))
            for scores in compared:
                cap = self.softcap
                expected = scores * self.factor if cap is None else cap * (scores / cap).tanh()
                found = self.of(rows, columns, scores)
                if not torch.allclose(found, expected + biases, rtol=self._close, atol=self._close):
                    return False, True, False
            any_bias = any_bias or bool(biases.any())
            only_mask = only_mask and bool(((biases == 0) | (biases == -torch.inf)).all())
        return True, any_bias, only_mask

    def difference(self, rows: range, columns: range) -> Tensor:
        """Returns the biases that turn the scores of these queries and keys into the function's values."""
        scores = self._scores(rows, columns)
        return self.of(rows, columns, scores) - scores

    def _scores(self, rows: range, columns: range) -> Tensor:
        group = self._query.shape[1] // self._key.shape[1]
        query = self._query[:, :, rows.start : rows.stop].to(self._dtype)
        key = self._key[:, :, columns.start : columns.stop].to(self._dtype).repeat_interleave(group, 1)
        return query @ key.mT * self._scale


class _Rows:
    """Reads a function of blocks in any rows. Keeps the last block."""

    def __init__(self, block: _Block, q_len: int, kv_len: int) -> None:
        self._block, self._q_len, self._kv_len = block, q_len, kv_len
        self._step = max(1, _BLOCK // kv_len)
        self._kept: tuple[int, Tensor] | None = None

    def __call__(self, first: int, end: int) -> Tensor:
        """Returns [batch or 1, heads or 1, end - first, kv_len]."""
        parts = []
        while first < end:
            start = first - first % self._step
            if self._kept is None or self._kept[0] != start:
                rows = range(start, min(start + self._step, self._q_len))
                self._kept = start, self._block(rows, range(self._kv_len))
            upper = min(end, start + self._step)
            parts.append(self._kept[1][:, :, first - start : upper - start])
            first = upper
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _row_blocks(q_len: int, kv_len: int) -> Iterator[tuple[range, range]]:
    step = max(1, _BLOCK // kv_len)
    for first in range(0, q_len, step):
        yield range(first, min(first + step, q_len)), range(kv_len)


def _biases(block: _Block, q_len: int, kv_len: int) -> Tensor:
    """Evaluates the biases of all pairs. Raises ValueError if they are too many."""
    parts = []
    for rows, columns in _row_blocks(q_len, kv_len):
        parts.append(block(rows, columns))
        count = parts[0].shape[0] * parts[0].shape[1] * q_len * kv_len
        if count > _MAX_BIASES:
            raise ValueError(
                f"score_mod: expected a scale, a softcap, or biases of at most {_MAX_BIASES} pairs, got {count}"
            )
    return torch.cat(parts, 2)


def flex_problem(
    query: Tensor, key: Tensor, score_mod: _Mod, mask_mod: _Mod, scale: float, masks: KnownMasks
) -> FlexProblem:
    """Returns the options for query [batch, q_heads, q_len, head_dim] and key [batch, kv_heads, kv_len, head_dim].

    A score_mod that is none of the known functions becomes a bias per pair of every head, computed from the scores.
    Raises ValueError if there are too many biases.
    """
    batch, heads, q_len, _ = query.shape
    kv_len = key.shape[2]
    empty = 0 in (batch, heads, q_len, kv_len)
    hiding: list[_Mod] = []  # the functions that hide pairs
    softcap, bias = None, None
    if mask_mod is not flex.noop_mask:
        hiding.append(mask_mod)
    if score_mod is not flex._identity and not empty:
        scoring = _ScoreMod(score_mod, query, key, scale)
        with torch.no_grad():
            scoring.find_form()
            known, any_bias, only_mask = scoring.adds_biases()
        if not known:
            bias = _biases(scoring.difference, q_len, kv_len)
        else:
            scale, softcap = scale * scoring.factor, scoring.softcap
            if any_bias and only_mask:
                hiding.append(score_mod)
            elif any_bias:
                bias = _biases(scoring.at_zero, q_len, kv_len)
    if empty or not hiding:
        return FlexProblem(PlacedRule(Rule()), scale, softcap, bias)

    def visible(rows: range, columns: range) -> Tensor:
        parts = []
        for mod in hiding:
            parts.append(
                _evaluated(mod, (batch, heads), rows, columns)
                if mod is mask_mod
                else scoring.at_zero(rows, columns) == 0
            )
        return parts[0] if len(parts) == 1 else parts[0] & parts[1]

    def find() -> PlacedRule:
        read = _Rows(visible, q_len, kv_len)
        return placed(read, read(0, 1).shape[0], q_len, kv_len)

    place = masks.rule(hiding, (batch, heads, q_len, kv_len), find)
    assert place is not None
    return FlexProblem(place, scale, softcap, bias)
