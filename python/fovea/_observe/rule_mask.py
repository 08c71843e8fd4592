# SPDX-License-Identifier: Apache-2.0
"""A mask tensor that stores its rule instead of its elements. Models pass it from the mask function to the attention
function like any other bool tensor: they may slice and copy it, and for everything else it computes its elements."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from .._fovea import Mask
from .rules import Region, Rule

_raw = torch._C.DisableTorchFunctionSubclass

# Properties and methods that depend on shape and type only, not on the elements.
_PROPERTIES = frozenset(
    getattr(Tensor, name).__get__
    for name in (
        *("device", "dtype", "grad_fn", "is_cpu", "is_cuda", "is_leaf", "is_meta", "is_mps", "is_sparse", "is_xpu"),
        *("itemsize", "layout", "nbytes", "ndim", "requires_grad", "shape"),
    )
)
_METHODS = frozenset(
    getattr(Tensor, name)
    for name in (
        *("__hash__", "__len__", "data_ptr", "dim", "element_size", "get_device", "is_complex", "is_contiguous"),
        *("is_floating_point", "numel", "size", "storage_offset", "stride", "untyped_storage"),
    )
)
# Methods whose result has the same elements, unless they change the type or the device.
_COPIES = frozenset(getattr(Tensor, name) for name in ("bool", "clone", "contiguous", "cpu", "detach", "to"))
# Names of methods that change the tensor in place, besides those that end with one underscore.
_IN_PLACE = frozenset(("__setitem__", "__iand__", "__ior__", "__ixor__", "__iadd__", "__isub__", "__imul__"))


class RuleMask(Tensor):
    """A bool mask [batch, 1, q_len, kv_len] of one byte, with the rule of its elements.

    Slices of queries and keys, and copies, keep the rule. Any other operation is applied to the elements, which are
    computed for it; operations in place turn this tensor into an ordinary one.
    """

    rule: Rule | None  # None: the elements are stored
    region: Region
    batch: int
    passed: Any  # what _passed.py makes of it for the attention function, kept for the next layers
    _mask: tuple[Mask | None, int] | None

    @staticmethod
    def of(rule: Rule, batch: int, region: Region) -> RuleMask:
        # False, so that a copy of the stored byte hides everything, and does not pass as a mask that hides nothing.
        shape = (batch, 1, region.q_len, region.kv_len)
        byte = torch.zeros((1,), dtype=torch.bool).as_strided(shape, (0,) * 4)
        mask: RuleMask = byte.as_subclass(RuleMask)
        mask.rule, mask.region, mask.batch = rule, region, batch
        mask.passed = mask._mask = None
        _live[id(mask)] = mask
        return mask

    def mask(self) -> tuple[Mask | None, int]:
        """Returns the options `mask` and `alignment` of fovea.attention(); computed once."""
        if self._mask is None:
            assert self.rule is not None
            self._mask = self.rule.mask(*self.region)
        return self._mask

    def elements(self) -> Tensor:
        """Returns the mask as an ordinary bool tensor [batch, 1, q_len, kv_len]."""
        with _raw():
            if self.rule is None:
                return self.as_subclass(Tensor)
            query = torch.arange(self.region.query_start, self.region.query_end)[:, None]
            key = torch.arange(self.region.key_start, self.region.key_end)
            item = torch.arange(self.batch)[:, None, None, None]
            if Tensor.numel(self) == 0:
                return torch.zeros(Tensor.size(self), dtype=torch.bool)
            return self.rule.visible(item, query, key).expand(Tensor.size(self)).contiguous()

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401, the result of any function
        kwargs = kwargs or {}
        if function in _PROPERTIES or function in _METHODS:
            with _raw():
                return function(*args, **kwargs)
        one = args[0] if args else None
        if isinstance(one, RuleMask) and one.rule is not None:
            if function in _COPIES:
                with _raw():
                    # Not a copy of the elements, which are not stored.
                    like = function(Tensor.as_subclass(one, Tensor)[..., :1, :1], *args[1:], **kwargs)
                if like.dtype == torch.bool and like.device.type == "cpu":
                    return one._clone() if function is Tensor.clone else one
            elif function is Tensor.__getitem__:
                part = one._slice(args[1])
                if part is not None:
                    return part
        name = getattr(function, "__name__", "")
        if isinstance(one, RuleMask) and (name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))):
            one._store()
        if isinstance(kwargs.get("out"), RuleMask):
            kwargs["out"]._store()
        args, kwargs = tree_map(lambda x: x.elements() if isinstance(x, RuleMask) else x, (args, kwargs))
        with _raw():
            return function(*args, **kwargs)

    def _clone(self) -> RuleMask:
        assert self.rule is not None
        copy = RuleMask.of(self.rule, self.batch, self.region)
        copy._mask = self._mask
        return copy

    def _slice(self, index: object) -> RuleMask | None:
        """Returns the part for slices of queries and keys; None for other indices."""
        parts: list[Any] = list(index) if isinstance(index, tuple) else [index]
        shape = (self.batch, 1, self.region.q_len, self.region.kv_len)
        places = [at for at, part in enumerate(parts) if part is Ellipsis]
        at = places[0] if places else len(parts)
        parts[at : at + 1] = [slice(None)] * (4 - len(parts) + len(places))
        if len(parts) != 4 or not all(isinstance(part, slice) and part.step in (None, 1) for part in parts):
            return None
        starts, lengths = [], []
        for part, size in zip(parts, shape, strict=True):
            start, end, _ = part.indices(size)
            starts.append(start)
            lengths.append(max(0, end - start))
        if lengths[:2] != list(shape[:2]):
            return None
        if tuple(lengths) == shape:
            return self
        assert self.rule is not None
        region = self.region
        part = Region(region.query_start + starts[2], lengths[2], region.key_start + starts[3], lengths[3])
        return RuleMask.of(self.rule, self.batch, part)

    def _store(self) -> None:
        """Replaces the stored byte by the elements."""
        if self.rule is not None:
            elements = self.elements()
            with _raw():
                self.set_(elements)
            self.rule = None


# All masks that exist, by id: a set would compare their elements.
_live: weakref.WeakValueDictionary[int, RuleMask] = weakref.WeakValueDictionary()


def live() -> set[tuple[int, int, int]]:
    """Returns batch, q_len and kv_len of all masks that exist in the process."""
    return {(mask.batch, mask.region.q_len, mask.region.kv_len) for mask in list(_live.values())}
