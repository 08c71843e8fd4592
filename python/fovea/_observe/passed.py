# SPDX-License-Identifier: Apache-2.0
"""Masks and biases that reach the attention function of transformers, as options of fovea.attention(). What is read off
a tensor is kept for the next layers, which get the same tensor."""

from __future__ import annotations

import collections
import dataclasses
import enum
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import flex_attention as flex

from .. import _fovea
from .. import torch as _torch
from .rule_mask import RuleMask, live
from .rules import Causal, Dense, Region, Rule
from .torch_flex import flex_problem
from .torch_masks import KnownMasks, PlacedRule, fingerprint, placed, placed_tensor

_T = TypeVar("_T")
_HEADS_AND_ROWS = "expected a shape that broadcasts to [batch, q_heads, q_len, kv_len]"


@dataclasses.dataclass(frozen=True)
class Passed:
    """A mask as options of fovea.attention(), and as a rule."""

    mask: _fovea.Mask | None
    alignment: int
    rule: Rule = dataclasses.field(default_factory=Rule)
    query_start: int = 0
    key_start: int = 0
    bias: Tensor | None = None


NOTHING_MASKED = Passed(None, 0)
CAUSAL_FROM_TOP_LEFT = Passed(_fovea.causal(), 0, Causal())


class _Seen:
    """Results for the tensors of the last calls. A tensor is known by its storage, which other tensors cannot take over
    as long as the weak reference exists, by its version, which PyTorch's changes in place increase, and by a hash of
    its elements, because other changes, such as NumPy's, leave the version as it is."""

    LIMIT = 32

    def __init__(self) -> None:
        self._results: dict[Hashable, tuple[StorageWeakRef, Any]] = {}
        self._lock = threading.Lock()

    def get(self, tensor: Tensor, further: Hashable, compute: Callable[[], _T]) -> _T:
        """Returns the result for the tensor; computes it unless it is known."""
        contents = fingerprint(tensor)
        if contents is None:
            return compute()
        storage = tensor.untyped_storage()
        version = None if tensor.is_inference() else tensor._version
        view = tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, version, contents
        key = storage._cdata, view, further
        known = self._results.get(key)
        if known is not None:
            return known[1]  # type: ignore[no-any-return]
        result = compute()
        with self._lock:
            for old in [old for old, (reference, _) in self._results.items() if reference.expired()]:
                del self._results[old]
            while len(self._results) >= self.LIMIT:
                del self._results[next(iter(self._results))]
            self._results[key] = StorageWeakRef(storage), result
        return result


_masks, _biases = _Seen(), _Seen()
_block_masks, _block_masks_lock = KnownMasks(), threading.Lock()


class _Kind(enum.Enum):
    """Masks without a rule. Results that refer to their elements are not kept, because they would keep them alive."""

    DENSE = enum.auto()
    BIAS = enum.auto()


def passed_mask(mask: Tensor | flex.BlockMask, query: Tensor, key: Tensor) -> Passed:
    """Returns the options of an attention mask: a RuleMask, bools, floats that are added to the scores, or the mask of
    flex_attention()."""
    if isinstance(mask, flex.BlockMask):
        with _block_masks_lock:
            place = flex_problem(query, key, flex._identity, mask.mask_mod, 1.0, _block_masks).place
        return _of_rule(place.rule, Region(place.query_start, query.shape[2], place.key_start, key.shape[2]))
    batch, q_heads, q_len, _ = query.shape
    batch, kv_len = max(batch, key.shape[0]), key.shape[2]
    if isinstance(mask, RuleMask):
        if mask.rule is not None:
            return _of_rule_mask(mask, batch, q_len, kv_len)
        mask = mask.elements()
    if mask.dim() > 4 or any(
        own not in (1, wanted)
        for own, wanted in zip(reversed(mask.shape), (kv_len, q_len, q_heads, batch), strict=False)
    ):
        wanted = [batch, q_heads, q_len, kv_len]
        raise ValueError(f"attention_mask: {_HEADS_AND_ROWS} = {wanted}, got {list(mask.shape)}")
    if mask.device.type != "cpu":
        raise ValueError(
            f'attention_mask: expected a tensor on the CPU for attn_implementation="fovea", got {mask.device}'
        )
    full = mask[(None,) * (4 - mask.dim())]
    if mask.dtype == torch.bool:
        found = _masks.get(mask, (q_len, kv_len), lambda: _of_bools(full, q_len, kv_len))
        return _dense(full, q_len, kv_len) if isinstance(found, _Kind) else found
    if not mask.is_floating_point():
        raise ValueError(f"attention_mask: expected bools or floats, got {mask.dtype}")
    bias = full.to(query.dtype) if query.dtype == torch.float64 else full
    if mask.requires_grad:
        return Passed(None, 0, bias=bias)
    found = _masks.get(mask, (q_len, kv_len), lambda: _of_floats(full, q_len, kv_len))
    if found is _Kind.BIAS:
        return Passed(None, 0, bias=bias)
    return _dense(full == 0, q_len, kv_len) if isinstance(found, _Kind) else found


def _of_rule_mask(mask: RuleMask, batch: int, q_len: int, kv_len: int) -> Passed:
    region = mask.region
    if region.kv_len > kv_len:  # a model that passes fewer keys than the mask has
        return _of_rule_mask(mask[:, :, :, :kv_len], batch, q_len, kv_len)
    if mask.batch not in (1, batch) or region.q_len != q_len or region.kv_len != kv_len:
        found = [mask.batch, 1, region.q_len, region.kv_len]
        raise ValueError(f"attention_mask: expected [{batch}, 1, {q_len}, {kv_len}], got {found}")
    if mask.passed is None:
        assert mask.rule is not None
        mask.passed = Passed(*mask.mask(), mask.rule, region.query_start, region.key_start)
    return mask.passed  # type: ignore[no-any-return]


def _of_rule(rule: Rule, region: Region) -> Passed:
    mask, alignment = rule.mask(*region)
    return Passed(mask, alignment, rule, region.query_start, region.key_start)


def _of_placed(placed: PlacedRule, q_len: int, kv_len: int) -> Passed | _Kind:
    if isinstance(placed.rule, Dense):
        return _Kind.DENSE
    return _of_rule(placed.rule, Region(placed.query_start, q_len, placed.key_start, kv_len))


def _dense(mask: Tensor, q_len: int, kv_len: int) -> Passed:
    region = Region(max(0, kv_len - q_len), q_len, 0, kv_len)
    return _of_rule(Dense(mask.expand(-1, -1, q_len, kv_len), region), region)


def _of_bools(mask: Tensor, q_len: int, kv_len: int) -> Passed | _Kind:
    if not bool(mask.any()) and (*mask.shape[:1], *mask.shape[2:]) in live():
        raise ValueError(
            "attention_mask: expected a tensor with its rule, got a copy that lost it and hides everything; "
            "copy masks with PyTorch's functions"
        )
    return _of_placed(placed_tensor(mask, q_len, kv_len), q_len, kv_len)


def _of_floats(mask: Tensor, q_len: int, kv_len: int) -> Passed | _Kind:
    """Floats are a mask if they are 0 where visible, and very low elsewhere."""
    low = max(torch.finfo(mask.dtype).min, torch.finfo(torch.float32).min) / 2
    step = max(1, (1 << 15) // max(1, mask.shape[0] * mask.shape[1] * mask.shape[3]))
    for part in mask.split(step, 2):
        if not bool(((part == 0) | (part <= low)).all()):
            return _Kind.BIAS
    shown = mask.expand(-1, -1, q_len, kv_len)
    found = placed(lambda first, end: shown[:, :, first:end] == 0, mask.shape[0], q_len, kv_len)
    return _of_placed(found, q_len, kv_len)


# The modules of the last tables: the other layers of a stack get the bias, but not the table.
_owners: collections.deque[weakref.ref[torch.nn.Module]] = collections.deque(maxlen=4)


def position_bias(
    module: torch.nn.Module, bias: Tensor, alignment: int
) -> tuple[Tensor | None, _torch.RelativeTable | None]:
    """Returns a position bias as a tensor or as T5's table, and None for the other; both None if the bias is 0.
    `alignment` is that of the call's mask.

    The first layer of a stack computes the bias from its table, and the others get the same tensor.
    """
    if bias.device.type != "cpu":
        raise ValueError(
            f'position_bias: expected a tensor on the CPU for attn_implementation="fovea", got {bias.device}'
        )
    bias = bias[(None,) * (4 - bias.dim())]

    def read() -> tuple[bool, _torch.RelativeTable | None, int]:
        zero = not bias.requires_grad and not bool(bias.any())
        table = None if zero else _table(module, bias, alignment)
        return zero, table, 0 if table is None else table.table._version

    zero, table, version = _biases.get(bias, (alignment, bias.requires_grad), read)
    if table is not None and table.table._version != version:  # another table than the one that gave the bias
        zero, table, _ = read()
    return (None if zero or table is not None else bias), table


def _table(module: torch.nn.Module, bias: Tensor, alignment: int) -> _torch.RelativeTable | None:
    """Returns the table of a T5 layer, of this one or of one that was called lately, that gives exactly this bias."""
    for owner in (module, *(one for one in (reference() for reference in _owners) if one is not None)):
        embedding = getattr(owner, "relative_attention_bias", None)
        distance = getattr(owner, "relative_attention_max_distance", None)
        if not isinstance(embedding, torch.nn.Embedding) or distance is None:
            continue
        weight = embedding.weight if bias.requires_grad else embedding.weight.detach()
        bidirectional = not getattr(owner, "is_decoder", False)
        table = _torch.RelativeTable(weight, bidirectional=bidirectional, max_distance=distance)
        if _gives(table, bias, alignment):
            if owner is module and all(reference() is not module for reference in _owners):
                _owners.appendleft(weakref.ref(module))
            return table
    return None


def _gives(table: _torch.RelativeTable, bias: Tensor, alignment: int) -> bool:
    """Returns whether a bias [1, heads, q_len, kv_len] has exactly the elements that the engine computes."""
    given = bias.detach()
    items, heads, q_len, kv_len = given.shape
    if items != 1 or table.table.shape[1] != heads or 0 in (q_len, kv_len):
        return False
    own = _fovea.RelativeTable(table.table.detach(), bidirectional=table.bidirectional, max_distance=table.max_distance)
    zeros = np.zeros((heads, kv_len, 1), np.float32)
    for row in {0, q_len - 1}:
        steps = _fovea.reference_attention_steps(zeros[:, :1], zeros, zeros, relative=own, alignment=alignment + row)
        if not torch.equal(torch.tensor(steps.biased_scores)[0, :, 0], given[0, :, row].double()):
            return False
    # The first and the last row have all distances. All other rows have the same values if all diagonals are constant.
    return all(bool((head[1:, 1:] == head[:-1, :-1]).all()) for head in given[0])
