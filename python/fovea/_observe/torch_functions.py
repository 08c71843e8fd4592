# SPDX-License-Identifier: Apache-2.0
"""Observes the attention of plain PyTorch: calls of scaled_dot_product_attention, flex_attention and
nn.MultiheadAttention, by a mode of torch.overrides.

A mode sees every call of a PyTorch function on its thread, under any name. Three paths would escape:

- multi_head_attention_forward() runs with the mode switched off. It is run as a copy whose scaled_dot_product_attention
  is the observed one.
- The fused inference paths of nn.MultiheadAttention and nn.TransformerEncoderLayer. PyTorch does not take them while a
  mode is active.
- flex_attention() compiles its operator, even if it is called uncompiled. PyTorch's debugging switch makes it call the
  operator directly, where the mode sees it; it is set for the threads with an active mode only.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.overrides import TorchFunctionMode

from .calls import observed
from .torch_calls import Caller, check_tensors, flex_operator, sdpa, sdpa_problem
from .torch_masks import KnownMasks

__all__ = ["ObservedFunctions"]

_COMPILED = (
    "torch.compile: expected uncompiled attention, got a compiled function; pass the original, uncompiled module"
)


class _OfThread(threading.local):
    active: ObservedFunctions | None = None


_of_thread = _OfThread()


class _FlexSwitch:
    """True on threads with an active mode, and otherwise what PyTorch's switch was before."""

    _lock = threading.Lock()
    _users = 0
    _before: object = False

    def __bool__(self) -> bool:
        return _of_thread.active is not None or bool(self._before)

    @classmethod
    @contextlib.contextmanager
    def installed(cls) -> Iterator[None]:
        """Sets the switch inside the `with` block. Versions of PyTorch without it refuse flex_attention below."""
        name = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
        if not hasattr(flex, name):
            yield
            return
        with cls._lock:
            if cls._users == 0:
                cls._before = getattr(flex, name)
                setattr(flex, name, cls())
            cls._users += 1
        try:
            yield
        finally:
            with cls._lock:
                cls._users -= 1
                if cls._users == 0 and isinstance(getattr(flex, name), cls):
                    setattr(flex, name, cls._before)


def _check_not_compiling() -> None:
    if torch.compiler.is_compiling():
        raise ValueError(_COMPILED)
    if torch.jit.is_tracing():
        raise ValueError("torch.jit.trace: expected attention that is computed, got attention that is traced")


def _calling_module() -> torch.nn.Module | None:
    """Returns the module whose method called, directly or through functions: the first argument of the innermost frame
    for which that is a module. Forward hooks would miss a module whose forward() is called directly, and would have to
    be undone after exceptions. Raises ValueError if the call comes from a compiled function that fell back to Python.
    """
    _check_not_compiling()  # Dynamo warns of sys._getframe()
    found = None
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if found is None and code.co_argcount > 0:
            first = frame.f_locals.get(code.co_varnames[0])
            if isinstance(first, torch.nn.Module):
                found = first
        if code.co_name == "compile_wrapper" and code.co_filename.endswith("eval_frame.py"):
            raise ValueError(_COMPILED)
        frame = frame.f_back
    return found


def _weights_of(query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float) -> Tensor:
    """Computes the weights [batch * heads, q_len, kv_len] that multi_head_attention_forward() returns, as it does."""
    scaled, key = query.flatten(0, 1) * math.sqrt(1 / query.shape[-1]), key.flatten(0, 1).mT
    scores = torch.bmm(scaled, key) if attn_mask is None else torch.baddbmm(attn_mask.flatten(0, 1), scaled, key)
    return F.dropout(scores.softmax(-1), dropout_p)


def _multi_head_attention(
    caller: Caller, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """multi_head_attention_forward(), with attention computed as the caller asks."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    wants_weights = given["need_weights"]
    weights: list[Tensor] = []

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
    ) -> Tensor:
        if not wants_weights:
            return sdpa(caller, query, key, value, attn_mask, dropout_p, is_causal)
        weights.append(_weights_of(query, key, attn_mask, dropout_p))
        # Dropped weights are returned, so that the context is computed from them.
        if caller.original is None and dropout_p == 0:
            return sdpa(caller, query, key, value, attn_mask)
        check_tensors(query=query, key=key, value=value)
        if observed():
            sdpa_problem(caller.masks, query, key, value, attn_mask, False, None, False)[0].report(caller)
        return torch.bmm(weights[0], value.flatten(0, 1)).unflatten(0, query.shape[:2])

    if wants_weights:
        given["need_weights"] = False
        if given["attn_mask"] is not None:
            given["is_causal"] = False  # a hint about attn_mask, which PyTorch ignores if weights are wanted
    names = {**vars(F), "scaled_dot_product_attention": attend}
    copy = types.FunctionType(_MULTI_HEAD.__code__, names, argdefs=_MULTI_HEAD.__defaults__)
    names["multi_head_attention_forward"] = copy  # which it passes to other modes
    context, _ = copy(*bound.args, **bound.kwargs)
    if not wants_weights:
        return context, None
    batched = given["query"].dim() == 3
    found = weights[0].unflatten(0, (-1, given["num_heads"]))
    if given["average_attn_weights"]:
        found = found.mean(1)
    return context, found if batched else found.squeeze(0)


_MULTI_HEAD = F.multi_head_attention_forward
_SIGNATURE = inspect.signature(_MULTI_HEAD)
_SDPA = (
    F.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)
_KINDS = {**dict.fromkeys(_SDPA, "sdpa"), _MULTI_HEAD: "multi_head", flex.flex_attention_hop: "flex"}


def _with_modes(function: types.FunctionType) -> types.FunctionType:
    """Returns a copy of a function that does not ask modes to call it."""
    names = {
        **function.__globals__,
        **dict.fromkeys(("has_torch_function", "has_torch_function_unary"), lambda _: False),
    }
    copy = types.FunctionType(function.__code__, names, argdefs=function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


# Functions that may run a forward pass again, for checkpoints.
_BACKWARD = {
    function: _with_modes(function) for function in (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
}


def _forms(*names: str) -> Iterator[object]:
    """Yields the functions that these names of PyTorch's operators stand for."""
    for name in names:
        packet = getattr(torch.ops.aten, name)
        yield from (packet, packet.default)
        if hasattr(torch, name):
            yield getattr(torch, name)


# Operators below those that are observed; calls of these would be missed.
_BELOW = frozenset(
    _forms(
        "_scaled_dot_product_attention_math",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd",
    )
)


class ObservedFunctions(TorchFunctionMode):
    """Observes the attention of PyTorch's functions on this thread, inside a `with` block.

    compute  "fovea": Fovea computes the attention, with gradients where they are wanted; "original": PyTorch does, and
             Fovea computes lse for the observers

    Each call of torch.nn.functional.scaled_dot_product_attention, of flex_attention and of nn.MultiheadAttention passes
    one AttentionCall to the observers of the thread (calls.observe). Tensors of rank 3 have no batch: their first
    dimension is the heads; dimensions before batch and heads are flattened into the batch.

    Results have PyTorch's semantics, except that with compute="fovea" fully masked rows are 0 and dropout drops other
    weights (reproducible by torch.manual_seed). PyTorch's fused inference paths are not taken. Weights that
    nn.MultiheadAttention returns (need_weights=True) are computed by PyTorch. A bool attn_mask, or one of 0 and
    -inf, is compared with causal, window, document and padding rules, in O(q_len kv_len) time. The rules of the last
    masks are kept, for models that pass one mask to many layers.

    A forward pass that a backward pass runs again (torch.utils.checkpoint) is computed alike, if the backward pass is
    inside the block, and is not passed to observers again.

    Raises ValueError for tensors that are not on the CPU, for nested and sparse tensors, inside torch.func, and for
    attention inside torch.compile (with fullgraph=True, PyTorch raises its own error) or torch.jit.trace; RuntimeError
    for a second mode on a thread. Attention of TorchScript modules is not seen; check_eager() finds these.
    """

    def __init__(self, compute: Literal["fovea", "original"] = "fovea") -> None:
        super().__init__()
        if compute not in ("fovea", "original"):
            raise ValueError(f'compute: expected "fovea" or "original", got {compute!r}')
        self.compute = compute
        self._exit = contextlib.ExitStack()
        self._masks = KnownMasks()

    @staticmethod
    def active() -> ObservedFunctions | None:
        """Returns the one on this thread."""
        return _of_thread.active

    def __enter__(self) -> ObservedFunctions:
        if _of_thread.active is not None:
            raise RuntimeError("ObservedFunctions: expected one on each thread, got a second")
        with contextlib.ExitStack() as stack:
            stack.enter_context(_FlexSwitch.installed())
            super().__enter__()
            _of_thread.active = self
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        _of_thread.active = None
        self._masks.clear()
        with self._exit:
            super().__exit__(*error)

    def __torch_function__(
        self, func: Callable[..., Any], kinds: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        given = kwargs or {}
        kind = _KINDS.get(func)
        if kind is None:
            if func in _BACKWARD:
                return self._run_with_mode(_BACKWARD[func], args, given)
            if func in _BELOW:
                _calling_module()  # refuses compiled functions, which take fused paths
                name = func.__name__.removesuffix(".default")
                raise ValueError(f"attention: expected scaled_dot_product_attention, got {name}, which is below it")
            return func(*args, **given)
        _check_not_compiling()
        original = self.compute == "original"
        if original and not observed() and kind != "flex":
            return func(*args, **given)
        module, reports = _calling_module(), torch._C._current_graph_task_id() == -1
        if kind == "multi_head":
            inner = F.scaled_dot_product_attention if original else None
            return _multi_head_attention(Caller(module, inner, reports, self._masks), args, given)
        caller = Caller(module, func if original else None, reports, self._masks)
        return (flex_operator if kind == "flex" else sdpa)(caller, *args, **given)

    def _run_with_mode(self, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Calls a function with this mode active; modes are switched off while they handle a call."""
        super().__enter__()
        try:
            return function(*args, **kwargs)
        finally:
            super().__exit__(None, None, None)
