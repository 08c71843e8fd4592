# SPDX-License-Identifier: Apache-2.0
"""Attention calls of PyTorch, observed and compared with attention in float64."""

import itertools
import math

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)


from torch import nn  # noqa: E402

import fovea  # noqa: E402
from fovea._observe.calls import observe  # noqa: E402
from fovea._observe.rules import Rule  # noqa: E402
from fovea._observe.torch_functions import ObservedFunctions  # noqa: E402

COMPUTE = ("original", "fovea")
INF = math.inf
PLACE = torch.arange(1300)
FAR = PLACE[:, None] - PLACE
# Plain calls of flex_attention print that it is not compiled.
uncompiled = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
both = pytest.mark.parametrize("compute", COMPUTE)


def observed(compute, function):
    """Returns the result of function() and its calls."""
    calls = []
    with observe(calls.append), ObservedFunctions(compute):
        result = function()
    return result, calls


def error(found, exact):
    difference = torch.where(found == exact, 0, (found.double() - exact).abs())  # -inf == -inf
    return difference.max().item() if exact.numel() else 0.0


def check_result(found, plain, exact):
    assert found.shape == plain.shape
    assert found.dtype == plain.dtype
    allowed = 2 * error(plain, exact) + 1e-6
    assert error(found, exact) <= allowed, f"off by {error(found, exact):.3g}, allowed {allowed:.3g}"


def softmax(scores):
    """Returns the weights; fully masked rows are 0."""
    return scores.softmax(-1).nan_to_num(0)


def check_weights(call, exact):
    """Compares the weights of all heads with `exact`, which broadcasts to [batch, q_heads, q_len, kv_len]."""
    batch, heads, q_len, _ = call.query.shape
    kv_len = call.key.shape[2]
    assert call.lse.shape == (batch, heads, q_len)
    exact = exact.expand(batch, heads, q_len, kv_len)
    for item, head in itertools.product(range(batch), range(heads)):
        of = fovea.Weights(call.query, call.key, lse=call.lse, batch=item, head=head, **call.options)
        if q_len and kv_len:
            assert error(torch.from_numpy(of[:, :]), exact[item, head]) <= 1e-5
    mask, alignment = call.rule.mask(call.query_start, q_len, call.key_start, kv_len)
    assert alignment == call.options["alignment"]
    assert (mask is None) == (call.options["mask"] is None)


def normal(*shape, seed=1, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), **options)


def inputs(query, key=None, value=None, seed=1):
    key = query if key is None else key
    shapes = query, key, key if value is None else value
    return [normal(*shape, seed=seed + place) for place, shape in enumerate(shapes)]


def exact_scores(query, key, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Returns the float64 scores of scaled_dot_product_attention, written out."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query.double() @ key.double().mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if isinstance(attn_mask, torch.nn.attention.bias.CausalBias):
        attn_mask = attn_mask._materialize()
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:]).tril().bool()
    if attn_mask is None:
        return scores
    return scores.masked_fill(~attn_mask, -INF) if attn_mask.dtype == torch.bool else scores + attn_mask


PADDED = torch.arange(23) < torch.tensor([[23], [11]])  # [batch, keys]
LOWER = torch.ones(17, 23).tril(6).bool()
HIDDEN = (normal(17, 23) > 0) & (torch.arange(17) != 3)[:, None]  # row 3 sees nothing


def kinds_of(rule):
    return tuple(type(leaf) for leaf in rule.leaves() if type(leaf) is not Rule)


class Block(nn.Module):
    """Self-attention by nn.MultiheadAttention, whose weights may be asked for."""

    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, **options)

    def forward(self, query, key, value, **options):
        return self.attention(query, key, value, **options)
