# SPDX-License-Identifier: Apache-2.0
"""Models of transformers that report their attention calls: with Fovea as their implementation, or with their own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AttentionInterface

from .._observe.calls import observed, unobserved
from ..transformers import attention_modules, missed_modules, report_call
from .hooks import Hook

__all__ = ["implementation", "missed_modules", "ran_modules"]


@contextlib.contextmanager
def ran_modules(model: torch.nn.Module) -> Iterator[list[torch.nn.Module]]:
    """Yields a list to which the attention modules are added that run inside the block."""
    ran: list[torch.nn.Module] = []
    hooks: dict[int, Any] = {}

    def add(module: torch.nn.Module, _: object) -> None:
        ran.append(module)
        # Modules with hooks are called in a slower way, and once is enough.
        hooks.pop(id(module)).remove()

    for module in attention_modules(model).values():
        hooks[id(module)] = module.register_forward_pre_hook(Hook(add))
    try:
        yield ran
    finally:
        for hook in hooks.values():
            hook.remove()


@contextlib.contextmanager
def implementation(models: list[Any], compute: Literal["fovea", "original"]) -> Iterator[None]:
    """Inside the block, the models report their calls. Their implementations are restored."""
    if compute == "original":
        with _ReportingInterface.installed():
            yield
        return
    configs = {
        id(module.config): module.config
        for model in models
        for module in model.modules()
        if hasattr(getattr(module, "config", None), "_attn_implementation_internal")
    }
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    try:
        for model in models:
            model.set_attn_implementation("fovea")
        yield
    finally:
        for config, name in before:
            config._attn_implementation_internal = name


class _ReportingInterface:
    """The attention functions of every implementation of transformers, which report their calls to the observers of
    the calling thread. Without observers they are those of transformers."""

    _lock = threading.Lock()
    _users = 0  # blocks of several threads overlap
    _get: Callable[..., Any]

    @classmethod
    @contextlib.contextmanager
    def installed(cls) -> Iterator[None]:
        with cls._lock:
            if cls._users == 0:
                cls._get = AttentionInterface.get_interface
                AttentionInterface.get_interface = cls._reporting
            cls._users += 1
        try:
            yield
        finally:
            with cls._lock:
                cls._users -= 1
                if cls._users == 0:
                    AttentionInterface.get_interface = cls._get

    @staticmethod
    def _reporting(interface: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = _ReportingInterface._get(interface, name, default)
        if not observed():
            return function

        def call(
            module: Any,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            attention_mask: Tensor | None,  # which some models pass by its name
            **options: Any,
        ) -> Any:
            with unobserved():  # it may call functions of PyTorch that are observed too
                result = function(module, query, key, value, attention_mask, **options)
            if name == "eager":
                options["is_causal"] = False  # without a mask, it masks nothing
            report_call(module, query, key, value, attention_mask, **options)
            return result

        return call
