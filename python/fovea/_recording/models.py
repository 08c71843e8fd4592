# SPDX-License-Identifier: Apache-2.0
"""Makes a model report its attention calls inside a block, and checks that none was missed."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from .._observe.calls import check_eager
from .hooks import Hook

if TYPE_CHECKING:
    from .record import Recorder

_MOST_NAMES = 5  # of missed modules in a message


@contextlib.contextmanager
def observed_model(model: torch.nn.Module, recorder: Recorder, compute: Literal["fovea", "original"]) -> Iterator[None]:
    """Inside the block, the attention calls of the model reach the observers of this thread.

    Raises ValueError if the model cannot be observed. At the end of a block without an exception, raises ValueError if
    an attention module ran without an observed call.
    """
    check_eager(model)
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise ValueError(
                f"model: expected parameters on the CPU, got {parameter.device} for {name}; use model.cpu()"
            )
    with contextlib.ExitStack() as stack:
        pretrained = _pretrained_models(model)
        for one in pretrained:
            stack.enter_context(_OnOneThread.held(one))
        stack.enter_context(_passes([model, *model.children(), *pretrained], recorder))
        for one in pretrained:
            stack.enter_context(_one_sequence(one))
        if pretrained:
            from . import interface

            ran = stack.enter_context(interface.ran_modules(model))
            stack.enter_context(interface.implementation(pretrained, compute))
        # A model of transformers computes its attention through the interface or with modules of PyTorch, or is refused
        # below. The mode costs a few microseconds for every function of PyTorch that the model calls.
        plain = any(isinstance(module, torch.nn.MultiheadAttention) for module in model.modules())
        if plain or model not in pretrained:
            from .._observe.torch_functions import ObservedFunctions  # imports much of PyTorch

            outer = ObservedFunctions.active()  # of a block around this one, whose calls reach both
            if outer is None:
                stack.enter_context(ObservedFunctions(compute))
            elif outer.compute != compute:
                raise ValueError(
                    f'compute: expected "{outer.compute}" as the block of record() around this one, got "{compute}"'
                )
        yield
        if pretrained:
            missed = interface.missed_modules(model, recorder.called, ran)
            if missed:
                more = f" and {len(missed) - _MOST_NAMES} more" if len(missed) > _MOST_NAMES else ""
                raise ValueError(
                    f"record: expected attention through transformers' interface, got {len(missed)} modules that "
                    f"compute it in another way: {', '.join(missed[:_MOST_NAMES])}{more}"
                )


def _pretrained_models(model: torch.nn.Module) -> list[Any]:
    """Returns the outermost models of transformers in a module, itself included."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return []
    kind = transformers.PreTrainedModel
    if isinstance(model, kind):
        return [model]
    return [found for child in model.children() for found in _pretrained_models(child)]


class _OnOneThread:
    """Models of transformers in blocks of record(), which change their configuration and generate(). Blocks of one
    thread end in the opposite order, and so restore them; those of several threads would not."""

    _lock = threading.Lock()
    _holders: ClassVar[dict[int, list[int]]] = {}  # the thread and the number of its blocks, by id

    @classmethod
    @contextlib.contextmanager
    def held(cls, model: Any) -> Iterator[None]:
        """Refuses a model that another thread records, or a part of it or one around it."""
        thread = threading.get_ident()
        kind = sys.modules["transformers"].PreTrainedModel
        parts = [module for module in model.modules() if isinstance(module, kind)]
        ids = {id(one) for part in parts for one in (part, part.config)}
        with cls._lock:
            if any(cls._holders.get(each, [thread])[0] != thread for each in ids):
                raise ValueError(
                    "model: expected one that no other thread records at the same time, got one inside a block of "
                    "record() on another thread; record one after the other, or copies of the model"
                )
            for each in ids:
                cls._holders.setdefault(each, [thread, 0])[1] += 1
        try:
            yield
        finally:
            with cls._lock:
                for each in ids:
                    cls._holders[each][1] -= 1
                    if cls._holders[each][1] == 0:
                        del cls._holders[each]


@contextlib.contextmanager
def _one_sequence(model: Any) -> Iterator[None]:
    """Refuses beam search, which goes back to earlier tokens, inside the block."""
    generate = getattr(model, "generate", None)
    if generate is None:
        yield
        return

    @functools.wraps(generate)
    def checked(*args: Any, **kwargs: Any) -> Any:
        configs = [one for one in args if hasattr(one, "num_beams")]
        config = kwargs.get("generation_config") or next(iter(configs), getattr(model, "generation_config", None))
        beams = kwargs.get("num_beams") or getattr(config, "num_beams", None) or 1
        if beams > 1:
            raise ValueError(
                f"record: expected greedy search or sampling, got beam search (num_beams={beams}), whose sequences "
                "replace one another; generate first, and record a forward pass of the result"
            )
        return generate(*args, **kwargs)

    own = vars(model).get("generate")  # set by the user, or by a block around this one
    model.generate = Hook(checked, generate)
    try:
        yield
    finally:
        del model.generate
        if own is not None:
            model.generate = own


@contextlib.contextmanager
def _passes(modules: list[torch.nn.Module], recorder: Recorder) -> Iterator[None]:
    """Tells the recorder when the outermost of these modules is called."""
    depth = 0

    def begin(*_: object) -> None:
        nonlocal depth
        if depth == 0:
            recorder.begin_pass()
        depth += 1

    def end(*_: object) -> None:
        nonlocal depth
        depth -= 1

    once = {id(module): module for module in modules}.values()
    before, after = Hook(begin), Hook(end)
    hooks = [
        hook
        for module in once
        for hook in (module.register_forward_pre_hook(before), module.register_forward_hook(after, always_call=True))
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
