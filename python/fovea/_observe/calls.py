# SPDX-License-Identifier: Apache-2.0
"""Observers of the attention calls of a model. The interfaces to transformers and to plain PyTorch report the calls;
recordings are made of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .rules import Rule


class AttentionCall(NamedTuple):
    """One attention call of a model, for an observer."""

    module: torch.nn.Module | None  # the module that attends; None if unknown (plain functions)
    query: Tensor  # [batch, q_heads, q_len, head_dim], after rotary embedding and norms; detached, not copied
    key: Tensor  # [batch, kv_heads, kv_len, head_dim]; grouped heads are not repeated unless the model does so
    value: Tensor | None  # [batch, kv_heads, kv_len, value_dim]
    lse: Tensor  # [batch, q_heads, q_len] float32, natural log; sinks included, without dropout
    options: dict[str, Any]  # keyword arguments of fovea.attention() for these tensors: those that are set of mask,
    # alignment, scale, softcap, bias, relative and sinks
    rule: Rule  # the mask in absolute positions
    query_start: int = 0  # the absolute position of the first query
    key_start: int = 0  # the absolute position of the first key that was passed


_Callback = Callable[[AttentionCall], None]


class _Observers(threading.local):
    callbacks: tuple[_Callback, ...] = ()


_observers = _Observers()


@contextlib.contextmanager
def observe(callback: _Callback) -> Iterator[None]:
    """Calls `callback` with an AttentionCall after each attention call of this thread in the block. Nested blocks all
    receive the calls, the outermost first. What a callback raises ends the model's call.

        with observe(lambda call: print(call.module, call.lse.shape)):
            model(**inputs)
    """
    before = _observers.callbacks
    _observers.callbacks = (*before, callback)
    try:
        yield
    finally:
        _observers.callbacks = before


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Hides the calls in the block from the observers of this thread, because another call reports them."""
    before = _observers.callbacks
    _observers.callbacks = ()
    try:
        yield
    finally:
        _observers.callbacks = before


def observed() -> bool:
    """Returns whether a block of observe() is active in this thread."""
    return bool(_observers.callbacks)


def report(call: AttentionCall) -> None:
    """Passes a call to the active observers."""
    if torch._C._current_graph_task_id() != -1:
        return  # a checkpoint that computes the forward pass again
    for callback in _observers.callbacks:
        callback(call)


def check_eager(model: torch.nn.Module) -> None:
    """Raises ValueError if a part of the model is compiled or scripted, so that its attention cannot be observed."""
    for name, module in model.named_modules():
        kind = None
        if isinstance(module, torch.jit.ScriptModule):
            kind = "a TorchScript module"
        elif module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule":
            kind = "a compiled one"
        if kind is not None:
            raise ValueError(
                f"model: expected uncompiled modules, got {kind}, {name or 'the model'!r}; "
                "pass the original, uncompiled module"
            )
