# SPDX-License-Identifier: Apache-2.0
"""Attention in PyTorch's autograd, for training models on Fovea's kernels.

    attention        fovea.attention() for tensors that may require a gradient
    RelativeTable    T5's bias with a table that may require a gradient

Imported separately, because it needs torch. fovea.scaled_dot_product_attention() uses this module for
tensors that require a gradient.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from . import _fovea

__all__ = ["RelativeTable", "attention"]

_engine: Any = _fovea  # includes the private functions that the stubs omit
_C: Any = torch._C


def autocasted(tensor: Tensor) -> Tensor:
    """Converts a tensor as autocast does for scaled_dot_product_attention and flex_attention."""
    if torch.is_autocast_enabled("cpu") and tensor.is_floating_point() and tensor.dtype != torch.float64:
        return tensor.to(torch.get_autocast_dtype("cpu"))
    return tensor


def drawn_seed() -> int:
    """Returns a seed of dropout from PyTorch's generator, which torch.manual_seed() and checkpoints restore."""
    return int(torch.randint(2**63 - 1, (), device="cpu"))


@dataclasses.dataclass(frozen=True)
class RelativeTable:
    """fovea.RelativeTable with a tensor [buckets, q_heads] that may require a gradient."""

    table: Tensor
    _: dataclasses.KW_ONLY
    bidirectional: bool = True
    max_distance: int = 128


# Inputs that may have a gradient, in the order of _Attention.forward().
_NAMES = ("query", "key", "value", "bias", "relative", "sinks")


def _given(
    options: dict[str, Any], bias: Tensor | None, table: Tensor | None, sinks: Tensor | None, mask: Tensor | None
) -> dict[str, Any]:
    """Returns the options of fovea.attention(), including those passed as tensors."""
    given = dict(options)
    if bias is not None:
        given["bias"] = bias.detach()
    if table is not None:
        given["relative"] = _fovea.RelativeTable(table.detach(), **options["relative"])
    if sinks is not None:
        given["sinks"] = sinks.detach()
    if mask is not None:
        given["mask"] = mask
    return given


def _numbers_of(options: dict[str, Any]) -> Tensor | None:
    """Returns the numbers that determine a call's dropout."""
    dropout = options.get("dropout")
    if dropout is None:
        return None
    return torch.tensor([dropout.seed >> 32, dropout.seed & 0xFFFFFFFF, dropout.call], device="cpu")


def _share(gradient: Tensor | None, name: str, ranks: Any) -> Tensor | None:
    """Returns a rank's share of a gradient, so that the sum over ranks is the gradient. All ranks have the whole
    gradients of tables, sinks and biases; but of a bias with a row per query, each has the rows of its queries."""
    if gradient is None or name in ("query", "key", "value"):
        return gradient
    if name == "bias" and gradient.dim() >= 2 and gradient.shape[-2] > 1:
        return gradient
    return gradient / ranks.size


def _transformed() -> bool:
    """Whether the caller is a function that torch.func transforms, such as those of grad() and vmap()."""
    return bool(_C._are_functorch_transforms_active())


def _compute(ranks: Any, options: dict[str, Any], *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns context and lse. The tensors are the inputs that may have a gradient, and the mask."""
    query, key, value, *others = tensors
    assert query is not None
    assert key is not None
    assert value is not None
    inputs = (query.detach(), key.detach(), value.detach())
    given = _given(options, *others)
    results: tuple[Tensor, Tensor]
    if ranks is None:
        results = _engine.attention(*inputs, return_lse=True, **given)
    else:
        results = _engine._sharded_attention(ranks, *inputs, return_lse=True, **given)
    return results


def _differentiate(
    ranks: Any,
    options: dict[str, Any],
    wanted: list[str],
    grad_context: Tensor | None,
    grad_lse: Tensor | None,
    context: Tensor,
    lse: Tensor,
    *tensors: Any,
) -> tuple[Tensor | None, ...]:
    """Returns the gradients of all inputs, None for those that are not wanted."""
    if grad_context is None:  # the loss does not depend on the context
        grad_context = torch.zeros_like(context)
    results = [one.detach() for one in (*tensors[:3], context, lse, grad_context)]
    given = {
        "grad_lse": None if grad_lse is None else grad_lse.detach(),
        "wanted": wanted,
        **_given(options, *tensors[3:]),
    }
    if ranks is None:
        gradients = _engine.attention_backward(*results, **given)
    else:
        with ranks:
            ranks.begin()
            gradients = _engine._sharded_attention_backward(ranks, *results, **given)
    found = [getattr(gradients, name) for name in _NAMES]
    if ranks is not None:
        found = [_share(one, name, ranks) for one, name in zip(found, _NAMES, strict=True)]
    # to() takes 2 us even if there is nothing to do.
    return tuple(
        [
            one if one is None or one.dtype == own.dtype else one.to(own.dtype)
            for one, own in zip(found, tensors, strict=False)
        ]
    )


def _for_each(function: Any, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """Calls a function with each element of the dimension that vmap() adds; the rule of a torch.autograd.Function."""

    def call(select: Any) -> tuple[Tensor | None, ...]:
        given = (select(one, dim) if isinstance(dim, int) else one for one, dim in zip(arguments, in_dims, strict=True))
        results: tuple[Tensor | None, ...] = function.apply(*given)
        return results

    if info.batch_size == 0:  # the shapes of the results are those for any elements
        empty = call(lambda one, dim: one.new_zeros(one.shape[:dim] + one.shape[dim + 1 :]))
        results = [None if one is None else one.new_empty((0, *one.shape)) for one in empty]
    else:
        calls = [call(lambda one, dim, i=i: one.select(dim, i)) for i in range(info.batch_size)]
        results = [None if ones[0] is None else torch.stack(ones) for ones in zip(*calls, strict=True)]
    return tuple(results), tuple(None if one is None else 0 for one in results)


class _Gradients(torch.autograd.Function):
    """_differentiate() as a part of the graph; raises RuntimeError when it is differentiated. once_differentiable() is
    not enough: it treats the gradient as a constant if the incoming gradients are constants."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor | None, ...]:
        return _differentiate(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        raise RuntimeError("fovea: expected attention to be differentiated once; gradients of gradients it has none")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        return _for_each(_Gradients, info, in_dims, *arguments)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ranks: Any, options: dict[str, Any], *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        results = _compute(ranks, options, *tensors)
        _Attention._keep(ctx, ranks, options, *tensors, *results, _numbers_of(options))
        return results

    @staticmethod
    def _keep(ctx: Any, ranks: Any, options: dict[str, Any], *tensors: Tensor | None) -> None:
        ctx.ranks = ranks
        ctx.options = options
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_context: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, context, lse, numbers = ctx.saved_tensors
        if numbers is not None and not torch.equal(numbers, _numbers_of(ctx.options)):
            raise RuntimeError(
                "dropout: expected the same fovea.Dropout when a checkpoint computes attention again, got another; "
                "create it outside of the checkpoint, or with a seed"
            )
        wanted = [name for name, needed in zip(_NAMES, ctx.needs_input_grad[2:], strict=False) if needed]
        # With create_graph=True, the gradients are part of the graph.
        differentiate = _Gradients.apply if torch.is_grad_enabled() or _transformed() else _differentiate
        given = (ctx.ranks, ctx.options, wanted, grad_context, grad_lse, context, lse, *tensors)
        return None, None, *differentiate(*given), None


class _TransformedAttention(_Attention):
    """_Attention for functions that torch.func transforms. PyTorch takes 20 us longer to call it."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
        return _compute(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _Attention._keep(ctx, *inputs, *output, None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        return _for_each(_TransformedAttention, info, in_dims, *arguments)


def _check_tensors(**tensors: object) -> None:
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")


class _Options(TypedDict, total=False):
    mask: _fovea.Mask | Tensor | None
    scale: float | None
    softcap: float | None
    bias: Tensor | None
    alibi: bool | Sequence[float] | None
    relative: RelativeTable | _fovea.RelativeTable | None
    sinks: Tensor | Sequence[float] | None
    alignment: str | int | Sequence[int]
    query_starts: Sequence[int] | None
    key_starts: Sequence[int] | None
    dropout: _fovea.Dropout | None
    threads: int | None


@overload
def attention(
    query: Tensor, key: Tensor, value: Tensor, *, return_lse: Literal[False] = False, **options: Unpack[_Options]
) -> Tensor: ...
@overload
def attention(
    query: Tensor, key: Tensor, value: Tensor, *, return_lse: Literal[True], **options: Unpack[_Options]
) -> tuple[Tensor, Tensor]: ...
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: _fovea.Mask | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    alibi: bool | Sequence[float] | None = None,
    relative: RelativeTable | _fovea.RelativeTable | None = None,
    sinks: Tensor | Sequence[float] | None = None,
    alignment: str | int | Sequence[int] = "bottom-right",
    query_starts: Sequence[int] | None = None,
    key_starts: Sequence[int] | None = None,
    dropout: _fovea.Dropout | None = None,
    threads: int | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """fovea.attention() with gradients, for torch tensors on the CPU. Arguments, semantics, results and errors
    are those of fovea.attention().

    query, key, value  tensors that may require a gradient
    bias      a tensor that may require a gradient
    relative  a fovea.torch.RelativeTable, whose table may require a gradient
    sinks     numbers, or a tensor that may require a gradient
    mask      a fovea.Mask, or a bool tensor; arrays in fovea.dense() and in fovea.RelativeTable, which are
              not copied, must not change before the backward pass
    dropout   a fovea.Dropout; create a new one for each call: fovea.Dropout(0.1). Within
              torch.utils.checkpoint, pass a seed, or create it outside: PyTorch does not restore the
              stream of seeds, and gradients would be those of other weights

    Returns context, or with return_lse=True (context, lse), both part of the graph. The backward pass is
    fovea.attention_backward(); scores and weights are not kept for it.

    Works in functions that torch.func transforms: grad, vjp, jacrev, functional_call, and vmap, which is one call per
    element of its dimension, with the same dropout. Second derivatives and forward mode (jvp, jacfwd) are not
    supported and raise RuntimeError.

        >>> query, key, value = torch.randn(3, 1, 8, 128, 64).requires_grad_()
        >>> fovea.torch.attention(query, key, value, mask=fovea.causal()).sum().backward()
    """
    return _attention(
        query,
        key,
        value,
        return_lse=return_lse,
        mask=mask,
        scale=scale,
        softcap=softcap,
        bias=bias,
        alibi=alibi,
        relative=relative,
        sinks=sinks,
        alignment=alignment,
        query_starts=query_starts,
        key_starts=key_starts,
        dropout=dropout,
        threads=threads,
    )


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    ranks: Any = None,
    return_lse: bool = False,
    bias: Tensor | None = None,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """attention(); with `ranks`, of sharded tensors."""
    _check_tensors(query=query, key=key, value=value)
    if bias is not None:
        _check_tensors(bias=bias)
    relative = options.get("relative")
    # Passed as arguments, not inside options, because autograd saves only tensor arguments.
    table = None
    if isinstance(relative, RelativeTable):
        table = relative.table
        _check_tensors(relative=table)
        options["relative"] = {"bidirectional": relative.bidirectional, "max_distance": relative.max_distance}
    # Copies, because the caller may change the numbers before the backward pass.
    for name in ("scale", "softcap", "alibi", "sinks", "alignment", "query_starts", "key_starts"):
        numbers: Any = options.get(name)
        if isinstance(numbers, Tensor):
            if name != "sinks":
                options[name] = numbers.clone()
        elif isinstance(numbers, np.ndarray):
            options[name] = numbers.copy()
        elif hasattr(numbers, "__iter__") and not isinstance(numbers, str):
            options[name] = [one.clone() if isinstance(one, Tensor) else one for one in numbers]
    if isinstance(options.get("mask"), np.ndarray):
        options["mask"] = options["mask"].copy()
    tensors = [options.pop(name) if isinstance(options.get(name), Tensor) else None for name in ("sinks", "mask")]
    results = _apply(ranks, options, query, key, value, bias, table, *tensors)
    return results if return_lse else results[0]


def _apply(ranks: Any, options: dict[str, Any], *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns context and lse as parts of the graph. The tensors are those of _compute()."""
    function = _TransformedAttention if _transformed() else _Attention
    results: tuple[Tensor, Tensor] = function.apply(ranks, options, *tensors)
    return results


def _autocast_scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *args: Any, **options: Any
) -> Tensor:
    """fovea.scaled_dot_product_attention() within torch.autocast("cpu")."""
    tensors = [
        autocasted(one)
        if isinstance(one, Tensor) and (one is not attn_mask or alignment_of_causal_bias(one) is None)
        else one
        for one in (query, key, value, attn_mask)
    ]
    with torch.autocast("cpu", enabled=False):
        return _engine.scaled_dot_product_attention(*tensors, *args, **options)


def alignment_of_causal_bias(mask: object) -> str | None:
    """Returns the alignment of PyTorch's CausalBias, whose elements have no values; None for other masks."""
    bias = sys.modules.get("torch.nn.attention.bias")
    if bias is None or not isinstance(mask, bias.CausalBias):
        return None
    lower_right = mask.variant == bias.CausalVariant.LOWER_RIGHT and mask.seq_len_q != mask.seq_len_kv
    return "bottom-right" if lower_right else "top-left"


def _scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """fovea.scaled_dot_product_attention() if at least one tensor requires a gradient, or in a function that torch.func
    transforms."""
    transformed = _transformed()

    def readable(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        if not transformed:
            return one.detach()
        # Tensors of a transformed function have no memory. The check does not look at elements.
        shape = one.shape
        with _C._DisableFuncTorch():
            return torch.empty(shape, dtype=one.dtype, device=one.device)

    arrays = [readable(one) for one in (query, key, value)]
    causal_bias = alignment_of_causal_bias(attn_mask)
    arrays.append(readable(attn_mask) if causal_bias is None else attn_mask)
    if not torch.is_grad_enabled() and not transformed:
        return _engine.scaled_dot_product_attention(*arrays, dropout_p, is_causal, scale, enable_gqa)
    _engine._check_scaled_dot_product_attention(*arrays, dropout_p, is_causal, scale, enable_gqa)
    _check_tensors(query=query, key=key, value=value)
    if causal_bias is not None:
        attn_mask = None
    if attn_mask is not None:
        attn_mask = torch.as_tensor(attn_mask)

    kept = 3 if enable_gqa else 2  # dimensions at the end that do not broadcast
    if enable_gqa and key.shape[-3] != value.shape[-3]:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    batches = [one.shape[:-kept] for one in (query, key, value)]
    if not batches[0] == batches[1] == batches[2]:
        common = torch.broadcast_shapes(*batches)
        query, key, value = (one.expand(*common, *one.shape[-kept:]) for one in (query, key, value))
    shape = (*query.shape[:-1], value.shape[-1])
    seed = drawn_seed() if dropout_p and math.prod(shape) else None
    options: dict[str, Any] = {
        "scale": None if scale is None else float(scale),  # may be an array, which may change
        "alignment": causal_bias or "top-left",
    }
    if is_causal or causal_bias is not None:
        options["mask"] = _fovea.causal()

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, number: int = 0) -> Tensor:
        given = options if seed is None else {**options, "dropout": _fovea.Dropout(dropout_p, seed=seed, call=number)}
        hides = mask is not None and mask.dtype == torch.bool
        bias, mask = (None, mask) if hides else (mask, None)
        return _apply(None, given, query, key, value, bias, None, None, mask)[0]

    # The engine handles batch and heads; each index of the dimensions before them is one call, with its own
    # dropout call number.
    outer = shape[:-4]
    if not outer:
        return attend(query, key, value, attn_mask)
    if attn_mask is not None:
        attn_mask = attn_mask[(None,) * (len(shape) - attn_mask.dim())]
        attn_mask = attn_mask.expand(*outer, *attn_mask.shape[-4:])
    parts = [
        attend(query[at], key[at], value[at], None if attn_mask is None else attn_mask[at], number)
        for number, at in enumerate(itertools.product(*map(range, outer)))
    ]
    if not parts:
        graph = query.sum() + key.sum() + value.sum()
        if attn_mask is not None and attn_mask.is_floating_point():
            graph = graph + attn_mask.sum().to(query.dtype)
        return query.new_zeros(shape) + graph
    return torch.stack(parts).unflatten(0, outer)
