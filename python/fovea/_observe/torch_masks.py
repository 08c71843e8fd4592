# SPDX-License-Identifier: Apache-2.0
"""Rules of the masks of plain PyTorch, which do not say where the queries are among the keys. The layers of a model
often share a mask; its rule is kept (KnownMasks)."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _fovea
from .recognize import Read, recognize
from .rules import Dense, Region, Rule

_engine: Any = _fovea  # includes the private functions that the stubs omit


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


def fingerprint(tensor: Tensor) -> int | None:
    """Returns a hash of the elements; None unless they are in CPU memory, at strides."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_nested:
        return None
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:  # FakeTensor and others
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None
    span = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if span > 2 * tensor.numel():  # a part of a larger tensor, or empty
        tensor = tensor.detach().contiguous()
        span = tensor.numel()
    address = tensor.data_ptr()
    contents: int | None = _engine._fingerprint(address, span * tensor.element_size()) if address else None
    return contents


class _UnknownStateError(Exception):
    """A function that refers to something whose changes cannot be seen."""


# Constants, and functions and types that do not change.
_CONSTANT = (bool, int, float, str, bytes, torch.dtype, torch.device, types.BuiltinFunctionType, type)
_MODULES = ("torch", "math")


def _names(code: types.CodeType) -> set[str]:
    """Returns the names that a function, and functions inside it, may look up as globals."""
    inside = (_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*inside)


def _state(value: object, seen: dict[int, object]) -> Hashable:
    """Returns a key that changes if what a function computes, or the elements of a tensor, may change, as long as the
    functions and tensors that it adds to `seen` exist."""
    if value is None or isinstance(value, _CONSTANT):
        return type(value), value
    if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in _MODULES:
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_state(each, seen) for each in value)
    if isinstance(value, functools.partial):
        return tuple(_state(each, seen) for each in (value.func, value.args, *sorted(value.keywords.items())))
    known = id(value) in seen
    seen[id(value)] = value
    if isinstance(value, Tensor):
        # The version is not enough: changes by NumPy or through `.data` leave it as it is.
        contents = fingerprint(value)
        if contents is None:
            raise _UnknownStateError
        return id(value), value.shape, value.stride(), value.dtype, contents
    if not isinstance(value, types.FunctionType):
        raise _UnknownStateError
    if known:
        return id(value)
    captured = [cell.cell_contents for cell in value.__closure__ or ()]
    names = sorted(_names(value.__code__) & value.__globals__.keys())
    parts = captured, value.__defaults__, *sorted((value.__kwdefaults__ or {}).items())
    return id(value), _state(parts, seen), *((name, _state(value.__globals__[name], seen)) for name in names)


class KnownMasks:
    """The rules of the last masks: tensors, or functions of positions whose captured variables are constants, tensors
    and such functions. A mask that was changed in place is another one. Does not keep masks alive."""

    _MOST = 8

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[list[weakref.ref[Any]], PlacedRule | None]] = {}

    def rule(self, mask: object, extents: tuple[int, ...], find: Callable[[], PlacedRule | None]) -> PlacedRule | None:
        """Returns the rule of a mask of these extents, or what find() returns if it is not known."""
        seen: dict[int, object] = {}
        try:
            key = _state(mask, seen), extents
        except (_UnknownStateError, ValueError):  # ValueError: a captured variable without a value
            return find()
        references, rule = self._found.get(key, ([], None))
        if references and all(reference() is not None for reference in references):
            return rule
        rule = find()
        if rule is None or not isinstance(rule.rule, Dense):  # which refers to the mask, and is as large
            if len(self._found) == self._MOST:
                del self._found[next(iter(self._found))]
            self._found[key] = [weakref.ref(each) for each in seen.values()], rule
        return rule

    def clear(self) -> None:
        """Forgets all masks."""
        self._found.clear()
