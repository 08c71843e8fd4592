# SPDX-License-Identifier: Apache-2.0
"""Masks as rules in absolute positions. The fovea.Mask of any part of the scores follows from a rule, for example of
the keys that a sliding cache still holds. The modules that read masks of transformers and of PyTorch produce rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _fovea
from .._fovea import Mask


class Region(NamedTuple):
    """A rectangle of scores: q_len queries from position query_start, kv_len keys from position key_start."""

    query_start: int
    q_len: int
    key_start: int
    kv_len: int

    @property
    def query_end(self) -> int:
        return self.query_start + self.q_len

    @property
    def key_end(self) -> int:
        return self.key_start + self.kv_len

    def contains(self, other: Region) -> bool:
        return (
            self.query_start <= other.query_start
            and other.query_end <= self.query_end
            and self.key_start <= other.key_start
            and other.key_end <= self.key_end
        )

    def __str__(self) -> str:
        return f"queries {self.query_start} to {self.query_end}, keys {self.key_start} to {self.key_end}"


# The mask of a region, or whether it shows everything (True) or nothing (False).
_Found = Mask | bool


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """Which key each query sees, in absolute positions: a token's position in its batch item's whole sequence.

    Immutable. Rules are joined by & and |. The rule itself, Rule(), allows everything.
    """

    def mask(self, query_start: int, q_len: int, key_start: int, kv_len: int) -> tuple[Mask | None, int]:
        """Returns the mask of a region, None if everything is visible, and the alignment that it needs: the options
        `mask` and `alignment` of fovea.attention().

        Raises ValueError if the rule does not know the region's positions.
        """
        region = Region(query_start, q_len, key_start, kv_len)
        found = self.on(region)
        mask = (None if found else _fovea.prefix(0)) if isinstance(found, bool) else found
        return mask, query_start - key_start

    def on(self, region: Region) -> _Found:
        """Returns the mask of a region, or a bool if one value applies to all of it."""
        return True

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Returns a bool tensor for batch items and positions, three int64 tensors that broadcast."""
        return torch.ones((), dtype=torch.bool)

    def leaves(self) -> Iterator[Rule]:
        """Yields the rules that this one combines."""
        yield self

    def of_heads(self, heads: list[int]) -> Rule:
        """Returns the rule of some of the query heads: this one unless it differs between heads."""
        return self

    def __and__(self, other: Rule) -> Rule:
        parts = [part for rule in (self, other) for part in (rule.parts if isinstance(rule, AllOf) else (rule,))]
        parts = [part for part in parts if type(part) is not Rule]
        return AllOf(tuple(parts)) if len(parts) > 1 else parts[0] if parts else Rule()

    def __or__(self, other: Rule) -> Rule:
        parts = [part for rule in (self, other) for part in (rule.parts if isinstance(rule, AnyOf) else (rule,))]
        if any(type(part) is Rule for part in parts):
            return Rule()
        return AnyOf(tuple(parts))


@dataclasses.dataclass(frozen=True, eq=False)
class Causal(Rule):
    """A query sees its own position and earlier ones."""

    def on(self, region: Region) -> _Found:
        if region.key_end - 1 <= region.query_start:
            return True
        return region.key_start < region.query_end and _fovea.causal()

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query


@dataclasses.dataclass(frozen=True, eq=False)
class Window(Rule):
    """A query sees `left` positions before its own, its own, and `right` positions after it; -1 is unbounded."""

    left: int
    right: int

    def on(self, region: Region) -> _Found:
        left, right = self.left, self.right
        if region.query_end - 1 - left <= region.key_start:
            left = -1
        if region.key_end - 1 - right <= region.query_start:
            right = -1
        return (left, right) == (-1, -1) or _fovea.window(left, right)

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = torch.ones((), dtype=torch.bool)
        if self.left >= 0:
            found = found & (key >= query - self.left)
        if self.right >= 0:
            found = found & (key <= query + self.right)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class Prefix(Rule):
    """Every query sees the first n positions."""

    n: int

    def on(self, region: Region) -> _Found:
        shown = min(self.n - region.key_start, region.kv_len)
        return shown == region.kv_len or (shown > 0 and _fovea.prefix(shown))

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key < self.n


@dataclasses.dataclass(frozen=True, eq=False)
class Keys(Rule):
    """Every query, at any position, sees the same keys: bool [batch or 1, positions]."""

    shown: Tensor

    def on(self, region: Region) -> _Found:
        if region.key_end > self.shown.shape[1]:
            raise ValueError(f"mask: expected {region.key_end} positions of keys, got {self.shown.shape[1]}")
        shown = self.shown[:, region.key_start : region.key_end]
        if bool(shown.all()) or not bool(shown.any()):
            return bool(shown.all())
        queries = torch.zeros((shown.shape[0], region.q_len), dtype=torch.int64)
        keys = shown.to(torch.int64) - 1
        return _fovea.documents(queries, keys) if shown.shape[0] > 1 else _fovea.documents(queries[0], keys[0])

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.shown[item if self.shown.shape[0] > 1 else item * 0, key]


@dataclasses.dataclass(frozen=True, eq=False)
class Documents(Rule):
    """A query sees the keys with its own id. Ids are int64 [batch or 1, positions], indexed by absolute position."""

    query_ids: Tensor
    key_ids: Tensor

    def on(self, region: Region) -> _Found:
        for name, ids, end in (("query", self.query_ids, region.query_end), ("key", self.key_ids, region.key_end)):
            if end > ids.shape[1]:
                raise ValueError(f"documents: expected {name} ids of {end} positions, got {ids.shape[1]}")
        query = self.query_ids[:, region.query_start : region.query_end]
        key = self.key_ids[:, region.key_start : region.key_end]
        if query.numel() == 0 or key.numel() == 0:
            return True
        first = query[:, :1]
        if bool((query == first).all()):
            same = key == first
            if bool(same.all()):
                return True
            if not bool(same.any()):
                return False
        items = max(query.shape[0], key.shape[0])
        if items == 1:
            return _fovea.documents(query[0], key[0])
        return _fovea.documents(query.expand(items, -1), key.expand(items, -1))

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query_item, key_item = (item if ids.shape[0] > 1 else item * 0 for ids in (self.query_ids, self.key_ids))
        return self.query_ids[query_item, query] == self.key_ids[key_item, key]


def padding(visible: Tensor, positions: int) -> Rule:
    """Returns the rule that hides the keys whose element of a bool tensor [batch, keys] is False. `positions` is the
    number of positions that queries may have."""
    if bool(visible.all()):
        return Rule()
    queries = torch.zeros((visible.shape[0], max(positions, visible.shape[1])), dtype=torch.int64)
    return Documents(queries, visible.to(torch.int64) - 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Dense(Rule):
    """Visibility stored per pair, for masks that no other rule explains: bool, broadcasts to [batch, heads, q_len,
    kv_len] of a region."""

    shown: Tensor
    region: Region

    def on(self, region: Region) -> _Found:
        part = self.shown[self._at(region)]
        return bool(part.all()) or (bool(part.any()) and _fovea.dense(part))

    def _at(self, region: Region) -> tuple[slice, ...]:
        if not self.region.contains(region):
            raise ValueError(f"mask: expected a part of {self.region}, got {region}")
        return (
            slice(None),
            slice(None),
            slice(region.query_start - self.region.query_start, region.query_end - self.region.query_start),
            slice(region.key_start - self.region.key_start, region.key_end - self.region.key_start),
        )

    def of_heads(self, heads: list[int]) -> Rule:
        return self if self.shown.shape[1] == 1 else Dense(self.shown[:, heads], self.region)

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        item = item if self.shown.shape[0] > 1 else item * 0
        return self.shown[item, 0, query - self.region.query_start, key - self.region.key_start]


@dataclasses.dataclass(frozen=True, eq=False)
class Known(Rule):
    """A rule read off a mask tensor, known for the region of that tensor only."""

    rule: Rule
    region: Region

    def on(self, region: Region) -> _Found:
        if not self.region.contains(region):
            raise ValueError(f"mask: expected a part of {self.region}, got {region}")
        return self.rule.on(region)

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.rule.visible(item, query, key)

    def leaves(self) -> Iterator[Rule]:
        return self.rule.leaves()


@dataclasses.dataclass(frozen=True, eq=False)
class Computed(Rule):
    """A function of positions that no rule is known for. It is evaluated block by block for each region that is asked
    for, and the result is recognised there."""

    evaluate: Callable[[Region], Rule]  # returns a rule for the region, without Computed ones
    _found: dict[Region, Rule] = dataclasses.field(default_factory=dict)

    def rule(self, region: Region) -> Rule:
        if region not in self._found:
            self._found[region] = self.evaluate(region)
        return self._found[region]

    def on(self, region: Region) -> _Found:
        return self.rule(region).on(region)

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query_start, key_start = int(query.min()), int(key.min())
        region = Region(query_start, int(query.max()) + 1 - query_start, key_start, int(key.max()) + 1 - key_start)
        return self.rule(region).visible(item, query, key)


@dataclasses.dataclass(frozen=True, eq=False)
class AllOf(Rule):
    """Visible if all parts allow it."""

    parts: tuple[Rule, ...]

    def on(self, region: Region) -> _Found:
        found: Mask | None = None
        for part in self.parts:
            one = part.on(region)
            if one is False:
                return False
            if not isinstance(one, bool):
                found = one if found is None else found & one
        return True if found is None else found

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = torch.ones((), dtype=torch.bool)
        for part in self.parts:
            found = found & part.visible(item, query, key)
        return found

    def leaves(self) -> Iterator[Rule]:
        for part in self.parts:
            yield from part.leaves()


@dataclasses.dataclass(frozen=True, eq=False)
class AnyOf(Rule):
    """Visible if any part allows it."""

    parts: tuple[Rule, ...]

    def on(self, region: Region) -> _Found:
        found: Mask | None = None
        for part in self.parts:
            one = part.on(region)
            if one is True:
                return True
            if not isinstance(one, bool):
                found = one if found is None else found | one
        return False if found is None else found

    def visible(self, item: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = torch.zeros((), dtype=torch.bool)
        for part in self.parts:
            found = found | part.visible(item, query, key)
        return found

    def leaves(self) -> Iterator[Rule]:
        for part in self.parts:
            yield from part.leaves()
