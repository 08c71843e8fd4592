# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers with random weights, and attention in plain float64 as their oracle."""

import copy
import dataclasses
import math

import torch
import transformers
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

import fovea.transformers

VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "pad_token_id": 0}


def plain(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    is_causal=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    **_,
):
    """Attention step by step. Unlike "eager", whose softmax is float32 in most models, it keeps float64; and a fully
    masked query gives 0."""
    assert dropout == 0
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scaling is None else scaling)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if causal and query.shape[2] > 1:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    elif attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, -math.inf)
    else:
        scores = scores + attention_mask
        scores = scores.masked_fill(attention_mask <= torch.finfo(attention_mask.dtype).min / 2, -math.inf)
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)], -1)
    weights = scores.softmax(-1).nan_to_num(0)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("plain", plain)
AttentionMaskInterface.register("plain", sdpa_mask)


def text(batch=2, length=24, seed=3):
    return torch.randint(1, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def left_padded(ids):
    """Returns a padding mask that hides a third of the last item."""
    visible = torch.ones_like(ids)
    visible[-1, : ids.shape[1] // 3] = 0
    return visible


def right_padded(ids):
    return left_padded(ids).flip(1)


def build(kind, config, seed=1):
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)  # otherwise all heads attend uniformly
    return model


def using(model, how, dtype=torch.float32):
    """Returns a copy of the model with another attention implementation and type."""
    model = copy.deepcopy(model).to(dtype)
    if hasattr(model, "set_experts_implementation") and dtype == torch.float64:
        model.set_experts_implementation("eager")  # the faster implementations lack float64
    model.set_attn_implementation(how)
    return model


@torch.no_grad()
def result(model, how, inputs, dtype=torch.float32):
    """Returns the first output, or None if the model refuses the implementation."""
    try:
        model = using(model, how, dtype)
    except ValueError:
        if how == "sdpa":
            return None
        raise
    inputs = {
        name: one.to(dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for name, one in inputs.items()
    }
    return model(**inputs)[0]


@dataclasses.dataclass(frozen=True)
class Errors:
    """Largest errors with respect to plain float64, among rows that are no padding."""

    found: float
    others: float  # sdpa in float32, or eager where the model refuses sdpa
    exact: float  # Fovea in float64
    eager: float  # eager in float64, whose softmax is float32 in most models
    size: float  # largest magnitude of the output

    def check(self):
        # The project's rule, with a factor of 2, because two float32 results differ by luck.
        assert self.found <= 2 * self.others + 1e-6, self
        assert self.exact <= 1e-12 * max(1, self.size), self
        assert self.eager <= 1e-5 * max(1, self.size), self


def errors(model, inputs, rows=None):
    """Compares implementations; `rows` is a bool mask over the first dimensions of the output."""
    right = result(model, "plain", inputs, torch.float64)
    rows = torch.ones(right.shape[:1], dtype=torch.bool) if rows is None else rows.bool()
    assert right[rows].isfinite().all()

    def off(one):
        return (one.double() - right)[rows].abs().max().item()

    eager = result(model, "eager", inputs, torch.float64)
    sdpa = result(model, "sdpa", inputs)
    sdpa = result(model, "eager", inputs) if sdpa is None else sdpa
    return Errors(
        found=off(result(model, "fovea", inputs)),
        others=off(sdpa),
        exact=off(result(model, "fovea", inputs, torch.float64)),
        eager=(eager - right)[rows].nan_to_num(0).abs().max().item(),
        size=right[rows].abs().max().item(),
    )


__all__ = [
    "GROUPED",
    "SIZES",
    "VOCABULARY",
    "Errors",
    "build",
    "errors",
    "fovea",
    "left_padded",
    "result",
    "right_padded",
]
__all__ += ["text", "using"]
