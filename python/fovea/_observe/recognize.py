# SPDX-License-Identifier: Apache-2.0
"""Recognizes the rule of a mask that is given element by element, as a tensor or as a function of positions. Reads it
in blocks of rows, so that a mask of long sequences is never held in several copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .rules import Causal, Dense, Documents, Known, Prefix, Region, Rule, Window

# Number of elements in a block. PyTorch processes at most this many in the calling thread. Waking other threads for a
# pass over a mask costs more time than they save.
_BLOCK = 1 << 15

# Returns the bool mask [batch, heads, rows, kv_len] of the rows first to before end.
Read = Callable[[int, int], Tensor]


class _Extent(NamedTuple):
    """Results of one pass over a mask [batch, q_len, kv_len], in absolute positions."""

    first: Tensor  # [batch, q_len] the first visible key of each query; meaningless for fully masked rows
    last: Tensor  # [batch, q_len] the last one
    rows: Tensor  # [batch, q_len] bool: the query sees a key
    keys: Tensor  # [batch, kv_len] bool: a query sees the key
    seen_by: Tensor  # [batch, kv_len] index of the first query that sees the key


def _blocks(region: Region, batch: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK // max(1, region.kv_len * batch))
    for first in range(0, region.q_len, step):
        yield first, min(first + step, region.q_len)


def _extent(read: Read, batch: int, region: Region) -> _Extent | None:
    """Returns None if the mask differs between heads."""
    # NumPy's argmax of bools stops at the first True.
    first, last = (np.zeros((batch, region.q_len), np.int64) for _ in range(2))
    rows = np.zeros((batch, region.q_len), np.bool_)
    keys = np.zeros((batch, region.kv_len), np.bool_)
    seen_by = np.zeros((batch, region.kv_len), np.int64)
    for start, end in _blocks(region, batch):
        block = read(start, end).numpy()
        shown = block[:, 0]
        if block.shape[1] > 1 and not (block == block[:, :1]).all():
            return None
        rows[:, start:end] = shown.any(-1)
        first[:, start:end] = shown.argmax(-1) + region.key_start
        last[:, start:end] = region.key_end - 1 - shown[..., ::-1].argmax(-1)
        new = shown.any(-2) & ~keys
        if new.any():
            seen_by = np.where(new, shown.argmax(-2) + start, seen_by)
            keys |= new
    return _Extent(*map(torch.from_numpy, (first, last, rows, keys, seen_by)))


def _documents(region: Region, query_ids: Tensor, key_ids: Tensor) -> Rule:
    """Returns the documents rule with ids of the region; positions before it get ids without a partner."""
    query_ids = torch.nn.functional.pad(query_ids, (region.query_start, 0), value=-3)
    key_ids = torch.nn.functional.pad(key_ids, (region.key_start, 0), value=-4)
    return Documents(query_ids, key_ids)


def _bands(extent: _Extent, query: Tensor) -> Iterator[Rule]:
    """Yields rules whose visible keys are an interval around the query's position, widest first."""
    yield Rule()
    yield Causal()
    before = int((query - extent.first)[extent.rows].max())
    after = int((extent.last - query)[extent.rows].max())
    if before >= 0 and after == 0:
        yield Causal() & Window(before, 0)
    if before >= 0 and after > 0:
        yield Window(before, after)
        yield Window(-1, after)
        yield Window(before, -1)


def _with_blocks(extent: _Extent, region: Region, query: Tensor) -> Iterator[Rule]:
    """Yields causal rules with blocks of tokens that also see later tokens of their block: prefix language models, and
    images in a text."""
    late = extent.rows & (extent.last > query)
    if not bool(late.any()):
        return
    ends = extent.last[late].unique()
    if ends.numel() == 1:
        yield Causal() | Prefix(int(ends) + 1)
    # The end of a block is its id. Text tokens, whose last visible key is their own, are blocks of one.
    query_ids = torch.where(extent.rows, extent.last, -2)
    key = torch.arange(region.key_start, region.key_end)
    at = key - region.query_start
    inside = (at >= 0) & (at < region.q_len)
    key_ids = torch.where(inside, query_ids[:, at.clamp(0, region.q_len - 1)], -1)
    blocks = _documents(region, query_ids, key_ids)
    yield Causal() | blocks
    # The last token of a block sees no later ones either; its window is the block.
    item, row = late.nonzero(as_tuple=True)
    last = extent.last[item, row] - region.query_start
    text = extent.rows & (extent.last == query)
    text[item[last < region.q_len], last[last < region.q_len]] = False
    if bool(text.any()):
        yield (Causal() & Window(int((query - extent.first)[text].max()), 0)) | blocks


def _candidates(extent: _Extent, region: Region) -> Iterator[Rule]:
    """Yields rules that may explain the mask, the simplest first."""
    query = torch.arange(region.query_start, region.query_end)[None]
    if not bool(extent.rows.any()):
        yield Prefix(0)
        return
    # Padding hides keys from all queries; padded queries may see nothing.
    zeros = torch.zeros_like(extent.first)
    key_ids = extent.keys.to(torch.int64) - 1
    paddings = [Rule()]
    if not bool(extent.keys.all()):
        paddings.append(_documents(region, zeros, key_ids))
    if not bool(extent.rows.all()):
        paddings.append(_documents(region, torch.where(extent.rows, zeros, -2), key_ids))
    for band in _bands(extent, query):
        for padded in paddings:
            yield band & padded
    # Without a window, the first visible key identifies a document.
    ids = torch.where(extent.rows, extent.first, -2)
    of_keys = torch.where(extent.keys, ids.gather(1, extent.seen_by), -1)
    documents = _documents(region, ids, of_keys)
    yield documents
    yield Causal() & documents
    for blocks in _with_blocks(extent, region, query):
        for padded in paddings:
            yield blocks & padded


def explains(rule: Rule, read: Read, batch: int, region: Region) -> bool:
    """Returns whether a rule is that of a mask that does not differ between heads, in every element of a region."""
    item = torch.arange(batch)[:, None, None]
    key = torch.arange(region.key_start, region.key_end)[None, None]
    # The first and the last rows differ most; wrong rules end there.
    blocks = list(_blocks(region, batch))
    for start, end in (blocks[-1], *blocks[:-1]):
        query = torch.arange(start, end)[None, :, None] + region.query_start
        shown = rule.visible(item, query, key).expand(batch, end - start, region.kv_len)
        if not np.array_equal(read(start, end)[:, 0].numpy(), shown.numpy()):
            return False
    return True


def same_rows(read: Read, batch: int, region: Region) -> Tensor | None:
    """Returns the row [batch, kv_len] of a mask that does not differ between heads, if all its rows are equal."""
    row = read(0, 1)[:, 0]
    equal = all(bool((read(start, end)[:, 0] == row).all()) for start, end in _blocks(region, batch))
    return row[:, 0] if equal else None


def recognize(read: Read, batch: int, region: Region) -> Rule:
    """Returns the rule of the mask that `read` returns block by block, verified for every element. A mask that no rule
    explains becomes a Dense rule, one byte per element.

    Two passes over the mask, and further ones over a few blocks for each rule that does not explain it.
    """
    if batch == 0 or region.q_len == 0 or region.kv_len == 0:
        return Rule()
    extent = _extent(read, batch, region)
    if extent is not None:
        for rule in _candidates(extent, region):
            if explains(rule, read, batch, region):
                return Known(rule, region)
    parts = [read(start, end) for start, end in _blocks(region, batch)]
    return Dense(torch.cat(parts, 2) if len(parts) > 1 else parts[0].contiguous(), region)
