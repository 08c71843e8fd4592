# SPDX-License-Identifier: Apache-2.0
"""Fovea as an attention implementation of Hugging Face transformers. Importing this module registers it as "fovea":

    >>> import fovea.transformers, transformers
    >>> sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=97, **sizes))
    >>> model.set_attn_implementation("fovea")  # or from_pretrained(..., attn_implementation="fovea")
    >>> model(input_ids=torch.arange(1, 10)[None]).logits.shape
    torch.Size([1, 9, 97])

The model then computes attention on the CPU with fovea.attention(), also in training (fovea.torch.attention()) and in
generate(). Masks are passed as rules: causal, sliding-window, chunked, packed, padded and prefix masks never become
N x N tensors. Masks of any other form are read block by block, and stored only if no rule explains them.

    attention          the attention function, registered with transformers.AttentionInterface
    mask               the mask function, registered with transformers.AttentionMaskInterface
    observe            passes each attention call of a model to a function, as an AttentionCall
    attention_modules  the attention modules of a model, by name
    missed_modules     those that do not use the attention interface

Softcap (Gemma 2), sinks (gpt-oss), T5's position bias, grouped heads, caches and dropout are supported. Dropout draws
its seed from PyTorch's generator, so torch.manual_seed() reproduces it. A fully masked query has the output 0.

Raises ValueError for what has no exact equivalent: tensors that are not on the CPU, sparse attention by indices
(DeepSeek V3.2), sinks per token, paged caches, and weights as output (output_attentions=True).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import masking_utils

from . import _fovea
from . import torch as _torch
from ._observe.calls import AttentionCall, observe, observed, report
from ._observe.mask_functions import read_mask_function
from ._observe.passed import CAUSAL_FROM_TOP_LEFT, NOTHING_MASKED, Passed, passed_mask
from ._observe.passed import position_bias as read_position_bias
from ._observe.rule_mask import RuleMask
from ._observe.rules import Computed, Dense, Documents, Region, Rule

__all__ = ["AttentionCall", "attention", "attention_modules", "mask", "missed_modules", "observe"]

_engine: Any = _fovea  # includes the private functions that the stubs omit
_REFUSED = {
    "indices": "sparse attention selects keys per query; use another implementation",
    "block_indices": "sparse attention selects keys per query; use another implementation",
    "sinks": "sinks per token are not supported; s_aux has one per head",
    "cache": "paged caches are not supported; use another implementation",
}


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **_: object,
) -> Tensor | None:
    """The mask function of transformers.AttentionMaskInterface, with the arguments of masking_utils.sdpa_mask().

    Returns a bool tensor [batch_size, 1, q_length, kv_length] that stores the mask's rule instead of its elements: one
    byte for any length. None if nothing is masked and the model accepts None.

    Raises ValueError for devices other than the CPU.
    """
    if torch.device(device).type != "cpu":
        raise ValueError(f'device: expected the CPU for attn_implementation="fovea", got {device}')
    padded = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padded is not None and bool(padded.all()):
        padded = None
    if allow_is_bidirectional_skip and padded is None and (local_size is None or kv_length < local_size):
        return None
    region = Region(int(q_offset), q_length, kv_offset, kv_length)
    if padded is not None:
        mask_function = masking_utils.and_masks(mask_function, masking_utils.padding_mask_function(padded))
    return RuleMask.of(read_mask_function(mask_function, batch_size, region, use_vmap), batch_size, region)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function of transformers.AttentionInterface.

    query           [batch, q_heads, q_len, head_dim]
    key, value      [batch, kv_heads, kv_len, ...]; q_heads is a multiple of kv_heads
    attention_mask  the result of mask(); or a tensor that broadcasts to [batch, q_heads, q_len, kv_len]: bool, True
                    where visible, or floats added to the scores. None: causal, aligned top left, if there are several
                    queries and is_causal, by default module.is_causal, is true; otherwise nothing is masked
    s_aux           [q_heads], one extra logit per head, added to the denominator only (gpt-oss)
    position_bias   floats, added to the scores; broadcasts to [batch, q_heads, q_len, kv_len] (T5)
    dropout         probability, applied if greater than 0
    others          ignored, among them sliding_window, whose meaning differs between models; the mask has the window.
                    But cu_seq_lens_q (packed sequences) needs a mask that separates them

    Returns the context [batch, q_len, q_heads, value_dim] and None: weights are not stored.
    """
    if output_attentions:
        raise ValueError(
            'output_attentions: expected False for attn_implementation="fovea", got True; weights are not stored; '
            'use "eager"'
        )
    if torch.jit.is_tracing():
        raise ValueError(
            'torch.jit.trace: expected another attn_implementation, such as "sdpa", got "fovea", which it does not see'
        )
    if torch.is_autocast_enabled("cpu"):
        query, key, value = map(_torch.autocasted, (query, key, value))
    if isinstance(scaling, Tensor):  # keeps its gradient
        query, scaling = query * scaling, 1.0
    passed, options = _problem(
        module, query, key, attention_mask, scaling, is_causal, softcap, s_aux, position_bias, others
    )
    query, key, value = _same_batch(query, key, value)
    context, lse = _attend(query, key, value, options, dropout)
    if observed():
        assert lse is not None
        _report(module, query, key, value, lse, passed, options)
    return context, None


def report_call(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> None:
    """Reports a call that another implementation has computed, with the arguments of attention(), and lse by Fovea."""
    if isinstance(scaling, Tensor):
        query, scaling = query * scaling, 1.0
    passed, options = _problem(
        module, query, key, attention_mask, scaling, is_causal, softcap, s_aux, position_bias, others
    )
    query, key, value = _same_batch(query.detach(), key.detach(), value.detach())
    lse = torch.from_numpy(_engine._observe(query, key, **_without_graph(options)))
    _report(module, query, key, value, lse, passed, options)


def _problem(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None,
    is_causal: bool | None,
    softcap: float | None,
    s_aux: Tensor | None,
    position_bias: Tensor | None,
    others: dict[str, Any],
) -> tuple[Passed, dict[str, Any]]:
    """Returns the mask of a call, and the options of fovea.attention()."""
    _check_call(query, key, others)
    if attention_mask is not None:
        passed = passed_mask(attention_mask, query, key)
    elif query.shape[2] > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        passed = CAUSAL_FROM_TOP_LEFT
    else:
        passed = NOTHING_MASKED
    if others.get("cu_seq_lens_q") is not None:
        _check_packed(others["cu_seq_lens_q"], passed.rule)
    options: dict[str, Any] = {
        "mask": passed.mask,
        "alignment": passed.alignment,
        "scale": scaling,
        "softcap": softcap or None,
        "bias": passed.bias,
        "relative": None,
        "sinks": None if s_aux is None else s_aux.flatten(),
    }
    if position_bias is not None:
        # Without a mask, a single query may be at any position. A table's bias shows that it is at the last key.
        lone = attention_mask is None and query.shape[2] == 1
        alignment = key.shape[2] - 1 if lone else passed.alignment
        bias, options["relative"] = read_position_bias(module, position_bias, alignment)
        if options["relative"] is not None:
            options["alignment"] = alignment
        if bias is not None:
            options["bias"] = bias if passed.bias is None else bias + passed.bias
    return passed, options


def _same_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Repeats learned queries, which are the same for all batch items."""
    if query.shape[0] == key.shape[0]:
        return query, key, value
    batch = max(query.shape[0], key.shape[0])
    return query.expand(batch, -1, -1, -1), key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)


def _report(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lse: Tensor,
    passed: Passed,
    options: dict[str, Any],
) -> None:
    report(
        AttentionCall(
            module=module,
            query=_detached(query),
            key=_detached(key),
            value=_detached(value),
            lse=_detached(lse) if lse.dtype == torch.float64 else _detached(lse).float(),
            options=_without_graph(options),
            rule=passed.rule,
            query_start=passed.query_start,
            key_start=passed.key_start,
        )
    )


def _detached(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def _check_call(query: Tensor, key: Tensor, others: dict[str, Any]) -> None:
    for name in others:
        if name in _REFUSED and others[name] is not None:
            raise ValueError(f'{name}: expected None for attn_implementation="fovea", got a value; {_REFUSED[name]}')
    for one in (query, key):
        if one.device.type != "cpu":
            raise ValueError(
                f'query, key: expected tensors on the CPU for attn_implementation="fovea", got {one.device}'
            )


def _check_packed(starts: Tensor, rule: Rule) -> None:
    """Raises ValueError if sequences are packed, but the mask does not separate them."""
    sequences = starts.numel() - 1
    if sequences > 1 and not any(isinstance(leaf, (Documents, Dense, Computed)) for leaf in rule.leaves()):
        raise ValueError(
            f"cu_seq_lens_q: expected a mask that separates {sequences} sequences, got one that does not; "
            "pass position_ids and use_cache=False"
        )


def _attend(
    query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any], dropout: float
) -> tuple[Tensor, Tensor | None]:
    """Returns the context [batch, q_len, q_heads, value_dim], and lse if it was computed."""
    drop: dict[str, Any] = {}
    if dropout:
        drop["dropout"] = _fovea.Dropout(dropout, seed=_torch.drawn_seed())
    if torch.is_grad_enabled():
        table = options["relative"]
        sources = (query, key, value, options["bias"], options["sinks"], None if table is None else table.table)
        if any([one is not None and one.requires_grad for one in sources]):  # noqa: C419, a list is faster
            context, lse = _torch.attention(query, key, value, return_lse=True, **options, **drop)
            return context.transpose(1, 2).contiguous(), lse
    if query.requires_grad or key.requires_grad or value.requires_grad:
        query, key, value = query.detach(), key.detach(), value.detach()
    options = _without_graph(options) | drop
    if query.shape[2] == 1:  # the same layout with or without the transposition
        if not observed():
            return _engine.attention(query, key, value, **options).transpose(1, 2), None
        context, lse = _engine.attention(query, key, value, return_lse=True, **options)
        return context.transpose(1, 2), lse
    context = query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3]))
    out = context.transpose(1, 2)
    if not observed():
        _engine.attention(query, key, value, out=out, **options)
        return context, None
    return context, _engine.attention(query, key, value, out=out, return_lse=True, **options)[1]


def _without_graph(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of fovea.attention(), which takes no tensors that require a gradient."""
    bias, table, sinks = options["bias"], options["relative"], options["sinks"]
    if bias is None and table is None and sinks is None:
        return options
    options = dict(options)
    if bias is not None:
        options["bias"] = bias.detach()
    if table is not None:
        options["relative"] = _fovea.RelativeTable(
            table.table.detach(), bidirectional=table.bidirectional, max_distance=table.max_distance
        )
    if sinks is not None:
        options["sinks"] = sinks.detach().tolist()
    return options


def attention_modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Returns the attention modules of a model by name: modules with parameters whose class name contains "attention",
    without another such module inside."""
    found = {
        name: module
        for name, module in model.named_modules()
        if "attention" in type(module).__name__.lower() and next(module.parameters(), None) is not None
    }
    return {
        name: module
        for name, module in found.items()
        if not any(other is not module and other in found.values() for other in module.modules())
    }


def missed_modules(
    model: torch.nn.Module, called: Iterable[torch.nn.Module], ran: Iterable[torch.nn.Module] | None = None
) -> list[str]:
    """Returns the names of attention modules that computed attention without the attention interface, for example those
    of GPT-J, whose classes bypass it.

    called  modules that called the attention function: AttentionCall.module of each call
    ran     modules whose forward() ran; by default all of the model

    A module also counts as called if a module inside it or around it was. Branches of a model that do not run are
    missed too unless `ran` is given.
    """
    reached = {id(module) for module in called}
    inside: set[int] = set()
    for module in model.modules():
        below = {id(part) for part in module.modules()}
        if id(module) in reached:
            inside |= below
        elif below & reached:
            inside.add(id(module))
    running = None if ran is None else {id(module) for module in ran}
    return [
        name
        for name, module in attention_modules(model).items()
        if id(module) not in inside and (running is None or id(module) in running)
    ]


transformers.AttentionInterface.register("fovea", attention)
masking_utils.AttentionMaskInterface.register("fovea", mask)
