# SPDX-License-Identifier: Apache-2.0
"""Models of transformers that report their attention calls: with Fovea as their implementation, or with their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AttentionInterface

from .._observe.calls import observed, unobserved
from ..transformers import attention_modules, missed_modules, report_call

__all__ = ["implementation", "missed_modules", "ran_modules"]


@contextlib.contextmanager
def ran_modules(model: torch.nn.Module) -> Iterator[list[torch.nn.Module]]:
    """Yields a list to which the attention modules are added that run inside the block."""
    ran: list[torch.nn.Module] = []
    hooks: dict[int, Any] = {}

    def add(module: torch.nn.Module, _: object) -> None:
        ran.append(module)
        # Modules with hooks are called in a slower way, and once is enough. A copy of a module has its hooks.
        if id(module) in hooks:
            hooks.pop(id(module)).remove()

    for module in attention_modules(model).values():
        hooks[id(module)] = module.register_forward_pre_hook(add)
    try:
        yield ran
    finally:
        for hook in hooks.values():
            hook.remove()


@contextlib.contextmanager
def implementation(models: list[Any], compute: Literal["fovea", "original"]) -> Iterator[None]:
    """Inside the block, the models report their calls. Their implementations are restored."""
    if compute == "original":
        with _reporting_interface():
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


@contextlib.contextmanager
def _reporting_interface() -> Iterator[None]:
    """Inside the block, the attention functions of every implementation report their calls to the observers of the
    calling thread. Without observers they are those of transformers."""
    get_interface = AttentionInterface.get_interface

    def reporting(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = get_interface(self, name, default)
        if not observed():
            return function

        def call(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
            with unobserved():  # it may call functions of PyTorch that are observed too
                result = function(module, query, key, value, mask, **options)
            report_call(module, query, key, value, mask, **options)
            return result

        return call

    AttentionInterface.get_interface = reporting
    try:
        yield
    finally:
        AttentionInterface.get_interface = get_interface
