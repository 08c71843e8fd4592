# SPDX-License-Identifier: Apache-2.0
"""Computes one call of scaled_dot_product_attention or flex_attention for a caller that may be observed: by Fovea, or
by PyTorch with lse from Fovea."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.bias import CausalBias

from .. import _fovea
from ..torch import alignment_of_causal_bias, attention, autocasted
from .calls import AttentionCall, observed, report
from .rules import Causal, Rule
from .torch_flex import flex_problem
from .torch_masks import KnownMasks, PlacedRule, placed_tensor

_engine: Any = _fovea  # includes the private functions that the stubs omit


def check_tensors(**tensors: object) -> None:
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
        if tensor.device.type != "cpu":
            raise ValueError(f"{name}: expected a tensor on the CPU, got one on {tensor.device}")
        if tensor.is_nested or tensor.layout != torch.strided:
            raise ValueError(f"{name}: expected a dense tensor, got a nested or sparse one")
        kind = type(tensor)
        if kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:  # FakeTensor and others
            raise ValueError(f"{name}: expected a tensor with elements in memory, got a {kind.__name__}")
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise ValueError(f"{name}: expected a tensor with elements in memory, got one of torch.func")


class Caller(NamedTuple):
    """The caller, the function that computes attention (None: Fovea), whether observers receive the call, and masks of
    earlier calls."""

    module: torch.nn.Module | None
    original: Callable[..., Any] | None
    reports: bool
    masks: KnownMasks


class _Problem(NamedTuple):
    """One attention call: tensors of rank 4, and options of fovea.attention(). Tensors may require gradients."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict[str, Any]
    place: PlacedRule

    def report(self, caller: Caller, lse: Tensor | None = None) -> None:
        """Passes the call to the observers. lse is computed if it is None: a pass without values."""
        if not caller.reports:
            return
        query, key, value = (one.detach() for one in (self.query, self.key, self.value))
        options = {name: one.detach() if isinstance(one, Tensor) else one for name, one in self.options.items()}
        if lse is None:
            lse = torch.from_numpy(_engine._observe(query, key, **options))
        report(AttentionCall(caller.module, query, key, value, lse.detach(), options, *self.place))

    def compute(self, dropout_p: float = 0.0) -> tuple[Tensor, Tensor]:
        """Returns context and lse, in the graph if a gradient is wanted. Dropout is seeded by PyTorch's generator."""
        dropout = None
        if dropout_p > 0:
            dropout = _fovea.Dropout(dropout_p, seed=int(torch.randint(2**63 - 1, ())))
        tensors = self.query, self.key, self.value
        bias = self.options["bias"]
        if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (*tensors, bias)):
            return attention(*tensors, **self.options, dropout=dropout, return_lse=True)
        options = {**self.options, "bias": None if bias is None else bias.detach()}
        context, lse = _engine.attention(
            *(one.detach() for one in tensors), **options, dropout=dropout, return_lse=True
        )
        return context, lse


def _problem(
    tensors: tuple[Tensor, Tensor, Tensor],
    place: PlacedRule,
    scale: float | None,
    bias: Tensor | None,
    softcap: float | None = None,
) -> _Problem:
    query, key, value = tensors
    mask, alignment = place.rule.mask(place.query_start, query.shape[2], place.key_start, key.shape[2])
    options = {"mask": mask, "scale": scale, "softcap": softcap, "bias": bias, "relative": None, "sinks": None}
    return _Problem(query, key, value, {**options, "alignment": alignment}, place)


def _of_rank_4(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, enable_gqa: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor | None, torch.Size]:
    """Returns the tensors as [batch, heads, length, dim], the mask as [batch or 1, heads or 1, q_len or 1, kv_len or
    1], and the leading dimensions of PyTorch's result. Dimensions before the heads are flattened. Keys and values with
    a single head are not repeated."""
    given = max(one.dim() for one in (query, key, value))
    rank = max(4, given)
    if mask is not None:
        mask = mask[(None,) * (rank - mask.dim())]
    if 4 == query.dim() == key.dim() == value.dim() and (
        query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1] == value.shape[1]
        and (enable_gqa or query.shape[1] == key.shape[1])
    ):
        outer, heads = query.shape[:1], query.shape[1]
    else:
        query, key, value = (one[(None,) * (rank - one.dim())] for one in (query, key, value))
        heads, key_heads, value_heads = (one.shape[-3] for one in (query, key, value))
        if enable_gqa and key_heads != value_heads:
            key, value = (one.repeat_interleave(heads // one.shape[-3], -3) for one in (key, value))
        elif not enable_gqa:
            (heads,) = torch.broadcast_shapes((heads,), (key_heads,), (value_heads,))
            query = query.expand(*query.shape[:-3], heads, *query.shape[-2:])
            if not key_heads == value_heads == 1:
                key, value = (one.expand(*one.shape[:-3], heads, *one.shape[-2:]) for one in (key, value))
        outer = torch.broadcast_shapes(*(one.shape[:-3] for one in (query, key, value)))
        query, key, value = (
            one.expand(*outer, *one.shape[-3:]).reshape(math.prod(outer), *one.shape[-3:])
            for one in (query, key, value)
        )
    if mask is not None:
        if math.prod(mask.shape[:-3]) == 1:
            mask = mask.reshape(1, *mask.shape[-3:])
        else:
            mask = mask.expand(*outer, *mask.shape[-3:]).reshape(math.prod(outer), *mask.shape[-3:])
    return (query, key, value), mask, torch.Size((*outer, heads)[max(0, 4 - given) :])


def _rule_of(mask: Tensor, q_len: int, kv_len: int) -> PlacedRule | None:
    """Returns the rule of a mask of bools, or of 0 and -inf; None for other biases."""
    if mask.dtype != torch.bool:
        visible = mask == 0
        if mask.requires_grad or not bool((visible | (mask == -torch.inf)).all()):
            return None
        mask = visible
    return placed_tensor(mask, q_len, kv_len)


def sdpa_problem(
    masks: KnownMasks,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> tuple[_Problem, torch.Size]:
    """Returns the call, and the leading dimensions of PyTorch's result."""
    causal_bias = alignment_of_causal_bias(attn_mask)
    if causal_bias is not None:
        attn_mask, is_causal = None, True
    given_mask = attn_mask
    if attn_mask is not None:
        attn_mask = autocasted(attn_mask)
    query, key, value = map(autocasted, (query, key, value))
    tensors, attn_mask, outer = _of_rank_4(query, key, value, attn_mask, enable_gqa)
    q_len, kv_len = tensors[0].shape[2], tensors[1].shape[2]
    difference = kv_len - q_len if causal_bias == "bottom-right" else 0
    place: PlacedRule | None = PlacedRule(Rule())
    bias = None
    if is_causal:
        place = PlacedRule(Causal(), max(difference, 0), max(-difference, 0))
    elif attn_mask is not None:
        mask = attn_mask
        place = masks.rule(given_mask, (*outer, q_len, kv_len), lambda: _rule_of(mask, q_len, kv_len))
        if place is None:
            bias = attn_mask
    return _problem(tensors, place or PlacedRule(Rule()), scale, bias), outer


def sdpa(
    caller: Caller,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """scaled_dot_product_attention(), computed as the caller asks."""
    given = {"query": query, "key": key, "value": value}
    if attn_mask is not None and not isinstance(attn_mask, CausalBias):
        given["attn_mask"] = attn_mask
    check_tensors(**given)
    if caller.original is not None:
        context: Tensor = caller.original(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        if caller.reports:
            sdpa_problem(caller.masks, query, key, value, attn_mask, is_causal, scale, enable_gqa)[0].report(caller)
        return context
    if not observed() and dropout_p == 0 and not isinstance(attn_mask, CausalBias):
        tensors = [autocasted(one) for one in given.values()] + [None] * (4 - len(given))
        found: Tensor = _engine.scaled_dot_product_attention(*tensors, 0.0, is_causal, scale, enable_gqa)
        return found
    arrays = [one.detach() for one in given.values()] + [None] * (4 - len(given))
    _engine._check_scaled_dot_product_attention(*arrays, dropout_p, is_causal, scale, enable_gqa)
    problem, outer = sdpa_problem(caller.masks, query, key, value, attn_mask, is_causal, scale, enable_gqa)
    context, lse = problem.compute(dropout_p)
    if observed():
        problem.report(caller, lse)
    return context.reshape(*outer, *context.shape[-2:])


def _compiled_flex(*args: object) -> tuple[Tensor, Tensor, Tensor]:
    """Calls the operator of flex_attention as PyTorch does: compiled, without a compiler behind it."""

    def call(*args: object) -> object:  # torch.compile() needs a function with code
        return flex.flex_attention_hop(*args)

    with flex.setup_compilation_env() as backend:
        found: tuple[Tensor, Tensor, Tensor] = torch.compile(call, backend=backend, fullgraph=True)(*args)
    return found


def flex_operator(
    caller: Caller,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    *captured: tuple[Any, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """The operator of flex_attention. Returns the context, and lse and largest score in units of log(2)."""
    check_tensors(query=query, key=key, value=value)
    if any(captured):
        raise ValueError("flex_attention: expected functions that hold their tensors, got separate ones")
    found = None
    if caller.original is not None:
        found = _compiled_flex(query, key, value, score_mod, block_mask, scale, kernel_options)
        if not (observed() and caller.reports):
            return found
    query, key, value = map(autocasted, (query, key, value))
    tensors, _, _ = _of_rank_4(query, key, value, None, True)
    flexed = flex_problem(*tensors[:2], score_mod, block_mask[-1], scale, caller.masks)
    problem = _problem(tensors, flexed.place, flexed.scale, flexed.bias, flexed.softcap)
    if found is not None:
        problem.report(caller)
        return found
    context, lse = problem.compute()
    if observed():
        problem.report(caller, lse)
    # flex_attention() does not return the largest scores on the CPU.
    return context, lse / math.log(2), lse
