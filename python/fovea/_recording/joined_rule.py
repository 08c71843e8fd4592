# SPDX-License-Identifier: Apache-2.0
"""The mask of a text that came in parts: prompt and steps of generation, each with a rule of its own. The last rule
usually holds for all of them; queries for which it does not, such as those of a prompt whose first tokens see each
other, keep theirs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._fovea import Mask
from .._observe.recognize import Read, explains, recognize, same_rows
from .._observe.rules import AllOf, AnyOf, Causal, Dense, Documents, Keys, Known, Region, Rule

_MOST_PAIRS = 1 << 22  # compared for each part; of larger ones, evenly spaced rows
_MOST_GROUPS = 8
_CAUSAL = Causal()


class Part(NamedTuple):
    """The rule of some queries, and these queries with the keys that they were computed with."""

    rule: Rule
    region: Region


_Known = dict[tuple[int, int, Region], bool]


def joined_mask(parts: list[Part], batch: int, known: _Known) -> tuple[Mask | None, int]:
    """Returns the mask of all parts together, and its alignment. `known` keeps what was compared, because layers share
    rules.

    Raises ValueError if the rules differ in too many ways, or cannot be continued.
    """
    first, last = parts[0].region, parts[-1].region
    total = Region(first.query_start, last.query_end - first.query_start, first.key_start, 0)
    total = total._replace(kv_len=max(part.region.key_end for part in parts) - first.key_start)
    rule = general(parts[-1].rule)
    groups: list[tuple[Rule, list[Region]]] = []
    for part in parts[:-1]:
        key = (id(part.rule), id(parts[-1].rule), part.region)
        if key not in known:
            known[key] = _agree(part, rule, total, batch)
        if known[key]:
            continue
        own = general(part.rule)
        if groups and groups[-1][0] is own:
            groups[-1][1].append(part.region)
        else:
            groups.append((own, [part.region]))
    if len(groups) > _MOST_GROUPS:
        raise ValueError(
            f"record: expected one mask for a text that comes in parts, got more than {_MOST_GROUPS} different ones; "
            "record the whole text in one forward pass"
        )
    if groups:
        elsewhere = torch.ones(total.query_end, dtype=torch.int64)
        blocks: list[Rule] = []
        for own, regions in groups:
            for region in regions:
                queries = torch.zeros(total.query_end, dtype=torch.int64)
                queries[region.query_start : region.query_end] = 1
                elsewhere[region.query_start : region.query_end] = 0
                keys = torch.full((total.key_end,), 2)
                keys[region.key_start : region.key_end] = 1
                blocks.append(AllOf((Documents(queries[None], keys[None]), _extended(own, total))))
        rest = Documents(elsewhere[None], torch.ones(1, total.key_end, dtype=torch.int64))
        rule = AnyOf((*blocks, AllOf((rest, _extended(rule, total)))))
    return rule.mask(total.query_start, total.q_len, total.key_start, total.kv_len)


def lone_rule(rule: Rule, region: Region) -> Rule:
    """Returns a rule for all queries that shows the single query of `region`, at the last key, what `rule` shows it: a
    causal mask, with the padding of this query's row. A rule of another kind is returned as it is."""
    own = general(rule)
    if type(own) is Rule:
        return _CAUSAL
    row = _one_row(own, region) if region.key_start == 0 else None
    if row is None:
        return rule
    ids = torch.zeros(row.shape[0], region.query_end, dtype=torch.int64)
    return AllOf((_CAUSAL, Documents(ids, torch.where(row, 0, -1))))


def moved_rule(rule: Rule, batch: int, source: Region, target: Region, before: Rule | None) -> Rule:
    """Returns a rule for the positions of `target` that shows the keys that `rule` shows at those of `source`, a region
    of the same size. `before`, the rule of the queries before these, is returned if it holds for them too.

    For cross-attention: a recording numbers the queries of its parts one after another, whereas a rule that was read
    off the mask of one part has other positions.
    """
    own = general(rule)
    if type(own) is Rule or 0 in (batch, source.q_len, source.kv_len):
        return Rule()
    if isinstance(own, Dense):
        shown = own.shown[own._at(source)]
        if shown.shape[1] > 1 and not bool((shown == shown[:, :1]).all()):
            return Dense(shown, target)
        batch = shown.shape[0]
    row = _one_row(own, source)
    if row is None and before is None and source == target:
        return rule
    keys = torch.arange(source.key_start, source.key_end)[None, None]
    items = torch.arange(batch)[:, None, None]

    def read(first: int, end: int) -> Tensor:
        if row is not None:
            return row[:, None, None].expand(batch, 1, end - first, -1)
        queries = torch.arange(source.query_start + first, source.query_start + end)[None, :, None]
        return own.visible(items, queries, keys).expand(batch, end - first, source.kv_len)[:, None]

    if before is not None and _explains(general(before), read, batch, target):
        return before
    if row is None:
        row = same_rows(read, batch, source)
    if row is None:
        return recognize(read, batch, target)
    return Rule() if bool(row.all()) else Keys(torch.nn.functional.pad(row, (target.key_start, 0)))


def _one_row(rule: Rule, region: Region) -> Tensor | None:
    """Returns the keys [batch or 1, kv_len] that all queries of a region see by the form of a rule: padding."""
    if not isinstance(rule, Documents):
        return None
    if rule.query_ids.shape[1] < region.query_end or rule.key_ids.shape[1] < region.key_end:
        return None
    ids = rule.query_ids[:, region.query_start : region.query_end]
    if not bool((ids == ids[:, :1]).all()):
        return None
    return ids[:, :1] == rule.key_ids[:, region.key_start : region.key_end]


def _explains(rule: Rule, read: Read, batch: int, region: Region) -> bool:
    """Returns whether a rule of other queries shows exactly the keys of a region."""
    if any(isinstance(leaf, Dense) for leaf in rule.leaves()):
        return False
    try:
        return explains(rule, read, batch, region)
    except (ValueError, IndexError):  # a rule that does not know these positions
        return False


def general(rule: Rule) -> Rule:
    """Returns a rule read off the mask of a part as one for every position. It is compared before it is used there."""
    if isinstance(rule, Known):
        return rule.rule
    if isinstance(rule, AllOf | AnyOf):
        parts = tuple(general(part) for part in rule.parts)
        return rule if parts == rule.parts else type(rule)(parts)
    return rule


def _extended(rule: Rule, total: Region) -> Rule:
    """Returns a rule that knows all positions. What it says about new ones does not matter."""
    if isinstance(rule, AllOf | AnyOf):
        return type(rule)(tuple(_extended(part, total) for part in rule.parts))
    if isinstance(rule, Dense):
        region = rule.region
        left, top = region.key_start - total.key_start, region.query_start - total.query_start
        sides = (left, total.key_end - region.key_end, top, total.query_end - region.query_end)
        return Dense(torch.nn.functional.pad(rule.shown, sides), total)
    if isinstance(rule, Keys):
        return Keys(torch.nn.functional.pad(rule.shown, (0, max(0, total.key_end - rule.shown.shape[1]))))
    if not isinstance(rule, Documents):
        return rule
    # Ids that no rule uses: a new position sees none of the known ones, and none of them sees it.
    ids = [
        torch.nn.functional.pad(own, (0, max(0, end - own.shape[1])), value=new)
        for own, end, new in ((rule.query_ids, total.query_end, -5), (rule.key_ids, total.key_end, -6))
    ]
    return Documents(*ids)


def _agree(part: Part, rule: Rule, total: Region, batch: int) -> bool:
    """Returns whether `rule` shows the queries of a part the keys that the part's own rule shows, and no others."""
    own, region = general(part.rule), part.region
    # A stored mask says nothing about other queries, and may differ between heads.
    if any(isinstance(leaf, Dense) for leaf in (*rule.leaves(), *own.leaves())):
        return False
    q_len, start = region.q_len, region.query_start
    step = max(1, q_len * total.key_end * batch // _MOST_PAIRS)
    queries = torch.arange(start, start + q_len, step)[None, :, None]
    items = torch.arange(batch)[:, None, None]
    keys = torch.arange(total.key_start, total.key_end)[None, None]
    try:
        wanted = rule.visible(items, queries, keys)
        within = torch.arange(region.key_start, region.key_end)[None, None]
        seen = own.visible(items, queries, within)
    except (ValueError, IndexError):  # a rule that does not know these positions
        return False
    expected = torch.zeros(batch, queries.shape[1], keys.shape[2], dtype=torch.bool)
    begin = region.key_start - total.key_start
    expected[:, :, begin : begin + region.kv_len] = seen
    agree: bool = torch.equal(wanted.expand_as(expected), expected)
    return agree
