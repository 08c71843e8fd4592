# SPDX-License-Identifier: Apache-2.0
"""Rules of the masks of plain PyTorch, which do not say where the queries are among the keys."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ._recognize import Read, recognize
from ._rules import Dense, Region, Rule


class PlacedRule(NamedTuple):
    """A rule, and the absolute positions of the first query and of the first key."""

    rule: Rule
    query_start: int = 0
    key_start: int = 0


def placed(read: Read, batch: int, q_len: int, kv_len: int) -> PlacedRule:
    """Returns the rule of a mask that `read` returns in blocks of rows. The last query has the position of the last key
    if a rule explains the mask then, as for queries that continue a sequence; otherwise the first ones have position 0.
    """
    difference = kv_len - q_len
    starts = [(max(difference, 0), max(-difference, 0))] + ([(0, 0)] if difference else [])
    for query_start, key_start in starts:
        rule = recognize(read, batch, Region(query_start, q_len, key_start, kv_len))
        if not isinstance(rule, Dense):
            break
    return PlacedRule(rule, query_start, key_start)


def placed_tensor(mask: Tensor, q_len: int, kv_len: int) -> PlacedRule:
    """Returns the rule of a bool tensor [batch or 1, heads or 1, q_len or 1, kv_len or 1], as placed() does. A Dense
    rule refers to the tensor."""
    shown = mask.expand(-1, -1, q_len, kv_len)
    found = placed(lambda first, end: shown[:, :, first:end], mask.shape[0], q_len, kv_len)
    if not isinstance(found.rule, Dense):
        return found
    return PlacedRule(Dense(shown, found.rule.region), found.query_start, found.key_start)
