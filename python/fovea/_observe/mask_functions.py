# SPDX-License-Identifier: Apache-2.0
"""Rules of the mask functions of transformers (masking_utils.py): trees of closures, which are read by the names of
their variables. Each result is compared with the function on sampled pairs of positions. Functions that are not known,
or that no longer do what they did, are evaluated block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from transformers import masking_utils

from .recognize import recognize
from .rules import Causal, Computed, Documents, Region, Rule, Window, padding

_Function = Callable[..., Any]  # of indices of batch item, head, query and key
_MODULE = masking_utils.__name__
_LOCAL = ".<locals>."


def _variables(function: _Function) -> dict[str, Any]:
    """Returns the variables that a closure refers to."""
    cells: tuple[Any, ...] = getattr(function, "__closure__", None) or ()
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in cells), strict=True))


class _UnknownError(Exception):
    """A function that is not one of transformers', or that uses positions in a way that has no rule."""


class _Reader:
    """Reads a tree of closures. `positions` [batch, n] are those within each packed sequence, None if the same."""

    def __init__(self, items: int, region: Region, use_vmap: bool) -> None:
        self.items, self.region, self.use_vmap = items, region, use_vmap
        self.length = max(region.query_end, region.key_end)
        self.packed: list[Tensor] = []  # document ids that apply to the function being read
        self.codes: list[Any] = []  # what the rule was read from
        self.unknown = False

    def read(self, function: _Function, positions: Tensor | None = None) -> Rule:
        """Returns the rule of a function; Computed where it is not known."""
        try:
            rule = self._of(function, positions)
        except (_UnknownError, AttributeError, KeyError, TypeError, ValueError):
            if positions is not None:
                raise _UnknownError from None
            self.unknown = True
            return computed(function, self.items, self.use_vmap)
        return rule

    def _of(self, function: _Function, positions: Tensor | None) -> Rule:
        if function.__module__ != _MODULE:
            raise _UnknownError
        name, given = function.__qualname__.split(_LOCAL)[0], _variables(function)
        self.codes.append(function.__code__)
        if name == "causal_mask_function":
            return Causal()
        if name == "bidirectional_mask_function":
            return Rule()
        if name == "and_masks":
            return self._all(given["mask_functions"], positions)
        if name == "or_masks":
            rules = [self.read(part, positions) for part in given["mask_functions"]]
            found = rules[0]
            for rule in rules[1:]:
                found = found | rule
            return found
        if name == "sliding_window_overlay":
            return Window(int(given["sliding_window"]) - 1, -1)
        if name == "sliding_window_bidirectional_overlay":
            return Window(int(given["sliding_window"]), int(given["sliding_window"]))
        if name == "chunked_overlay":
            at = torch.arange(self.length)[None] if positions is None else positions
            ids = (at - given["left_padding"].reshape(-1, 1).to(torch.int64)) // int(given["chunk_size"])
            return Documents(ids, ids)
        if name == "packed_sequence_mask_function" and positions is None:
            ids = given["packed_sequence_mask"].to(torch.int64)
            return Documents(ids, ids)
        if name == "remap_positions_for_packed_sequence" and positions is None:
            own = given["position_ids"].to(torch.int64)
            if not any(_counts_up(own, ids) for ids in self.packed):
                raise _UnknownError
            return self.read(given["mask_function"], own)
        if name == "blockwise_overlay":
            ids = given["block_sequence_ids"].to(torch.int64)
            ids = ids if positions is None else ids.gather(1, positions)
            return Documents(torch.where(ids >= 0, ids, -1), torch.where(ids >= 0, ids, -2))
        if name == "padding_mask_function" and positions is None:
            return padding(given["padding_mask"], self.length)
        raise _UnknownError

    def _all(self, functions: tuple[_Function, ...], positions: Tensor | None) -> Rule:
        before = self.packed
        names = [getattr(part, "__qualname__", "").split(_LOCAL)[0] for part in functions]
        ids = [
            _variables(part)["packed_sequence_mask"]
            for part, name in zip(functions, names, strict=True)
            if name == "packed_sequence_mask_function"
        ]
        self.packed = before + ids
        found = Rule()
        for part in functions:
            found = found & self.read(part, positions)
        self.packed = before
        return found


def _counts_up(positions: Tensor, ids: Tensor) -> bool:
    """Returns whether positions [batch, n] grow by 1 within each document, and each document is one run of ids. Only
    then do rules about distances mean the same in the document as in the whole sequence."""
    steps = ids.diff()
    return bool(((positions.diff() == 1) | (steps != 0)).all()) and bool((steps >= 0).all())


def computed(function: _Function, items: int, use_vmap: bool) -> Computed:
    """Returns the rule that evaluates a mask function for each region."""

    def evaluate(region: Region) -> Rule:
        keys = torch.arange(region.key_start, region.key_end)
        batch, head = torch.arange(items), torch.arange(1)

        def read(start: int, end: int) -> Tensor:
            queries = torch.arange(start, end) + region.query_start
            if use_vmap:
                each = function
                for place in (3, 2, 1, 0):
                    each = torch.vmap(each, in_dims=tuple(0 if place == at else None for at in range(4)))
                with TransformGetItemToIndex():  # a function may index with what vmap passes as a number
                    shown = each(batch, head, queries, keys)
            else:
                shown = function(batch[:, None, None, None], head[:, None, None], queries[:, None], keys)
            return shown.to(torch.bool).expand(items, 1, end - start, region.kv_len)

        return recognize(read, items, region)

    return Computed(evaluate)


# Fractions of the region at which functions are compared with their rules, and distances from the diagonal.
_COUNT = 64
_AT = torch.arange(_COUNT, dtype=torch.float64)
_QUERY_AT, _KEY_AT = (_AT / (_COUNT - 1)).clamp(max=1 - 1e-12), (_AT * 0.6180339887498949).frac()


def _samples(rule: Rule, region: Region) -> tuple[Tensor, Tensor]:
    """Returns pairs of positions: some anywhere, others at the edges of the rule's windows."""
    edges = {0, 1, -1}
    for leaf in rule.leaves():
        if isinstance(leaf, Window):
            edges |= {-leaf.left, -leaf.left - 1} if leaf.left >= 0 else set()
            edges |= {leaf.right, leaf.right + 1} if leaf.right >= 0 else set()
    query = (_QUERY_AT * region.q_len).long() + region.query_start
    keys = [(_KEY_AT * region.kv_len).long() + region.key_start]
    keys += [(query + edge).clamp(region.key_start, region.key_end - 1) for edge in edges]
    return query.repeat(len(keys)), torch.cat(keys)


def agrees(rule: Rule, function: _Function, items: int, region: Region) -> bool:
    """Returns whether a rule and an index-based function agree on sampled pairs of positions of a region."""
    if items == 0 or region.q_len == 0 or region.kv_len == 0:
        return True
    query, key = _samples(rule, region)
    item = torch.arange(items)[:, None]
    query, key = query[None], key[None]
    shown = function(item, torch.zeros_like(item), query, key)
    return bool((shown == rule.visible(item, query, key)).all())


def read_mask_function(function: _Function, items: int, region: Region, use_vmap: bool = False) -> Rule:
    """Returns the rule of a mask function of transformers for a batch of `items`.

    use_vmap  the function has parts that take numbers, not tensors of indices
    """
    reader = _Reader(items, region, use_vmap)
    try:
        rule = reader.read(function)
        if reader.unknown:
            rule = _verified(function, rule, items, region, use_vmap)
        elif not _trusted(reader.codes, rule, function, items, region):
            rule = computed(function, items, use_vmap)
    except (_UnknownError, IndexError):
        rule = computed(function, items, use_vmap)
    return rule


# Trees of code that agreed with their rules. The comparison is not repeated for each token of a generated text.
_agreed: set[tuple[Any, ...]] = set()


def _trusted(codes: list[Any], rule: Rule, function: _Function, items: int, region: Region) -> bool:
    """Returns whether a rule agrees with the function, or did in an earlier call if the region has one query."""
    tree = tuple(codes)
    if region.q_len == 1 and tree in _agreed:
        return True
    if not agrees(rule, function, items, region):
        return False
    if len(_agreed) < 1000:
        _agreed.add(tree)
    return True


def _verified(function: _Function, rule: Rule, items: int, region: Region, use_vmap: bool) -> Rule:
    """Returns the rule of a function with unknown parts if its known parts agree with theirs."""
    for part in _known_parts(function):
        own = _Reader(items, region, use_vmap).read(part)
        if not agrees(own, part, items, region):
            return computed(function, items, use_vmap)
    return rule


def _known_parts(function: _Function) -> list[_Function]:
    """Returns the largest parts of a tree without unknown functions."""
    reader = _Reader(1, Region(0, 1, 0, 1), False)
    reader.read(function)
    if not reader.unknown:
        return [function]
    parts = _variables(function).get("mask_functions", ()) if function.__module__ == _MODULE else ()
    return [known for part in parts for known in _known_parts(part)]
