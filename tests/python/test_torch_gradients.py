# SPDX-License-Identifier: Apache-2.0
"""Compares gradients with PyTorch's autograd: scaled_dot_product_attention with PyTorch's signature and fovea.torch's
attention with every option, on a grid of types, shapes, masks and layouts; gradcheck; features that training steps
rely on.

By the 1x rule (docs/numerics.md): the oracle is PyTorch's autograd through step-by-step attention in float64, and the
tolerance is the error of the same computation in the dtype of the tensors. Both apply Fovea's dropout as a mask.
"""

import collections
import copy
import dataclasses
import doctest
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import torch.nn.functional as F  # noqa: E402, N812
from test_torch_sdpa import NEAR_ZERO, ROUNDING, deviation, draw, drawn_mask, heads, largest  # noqa: E402
from torch.autograd import gradcheck  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import fovea  # noqa: E402
import fovea.torch  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Minimum number of cases in total, so that the grid cannot shrink unnoticed.
AT_LEAST = 1000


def plain(query, key, value, visible=None, bias=None, scale=None, softcap=None, table=None, sinks=None, kept=None):
    """Computes context, lse and weights step by step, for autograd. `visible` is bool; `kept` has the dropout
    factors."""
    if query.dim() > 2 and query.shape[-3] != key.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    if query.dim() > 2 and query.shape[-3] != value.shape[-3]:
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if table is not None:
        scores = scores + table(scores)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], -1)
    # Fully masked rows: zeros, and no gradient.
    some = (scores > -math.inf).any(-1, keepdim=True)
    scores = torch.where(some, scores, 0)
    weights = torch.where(some, scores.softmax(-1), 0)[..., : key.shape[-2]]
    lse = torch.where(some, scores.logsumexp(-1, keepdim=True), -math.inf)[..., 0]
    return (weights if kept is None else weights * kept) @ value, lse, weights


def leaves(tensors, dtype=None):
    """Returns copies that require a gradient, in the given dtype and with the same layout; keeps None."""
    return [None if x is None else x.detach().to(dtype or x.dtype).requires_grad_() for x in tensors]


def gradients(function, tensors, cotangents):
    """Returns the gradients with respect to the tensors; the loss is the sum of each result times its cotangent."""
    results = function(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    pairs = [(y, g.to(y.dtype)) for y, g in zip(results, cotangents, strict=False) if g is not None]
    asked = [x for x in tensors if x is not None]
    found = torch.autograd.grad([y for y, _ in pairs], asked, [g for _, g in pairs], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(asked, found, strict=True)]


def sizes(query, key, value, bias, table, sinks, cotangents, weights, scale=None, kept=None):
    """Returns an upper bound for the sum of magnitudes in any element of each gradient."""
    query, key, value, d_context = (x.detach().double().abs() for x in (query, key, value, cotangents[0]))
    scale = abs(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    groups = [query.shape[-3] // x.shape[-3] if x.dim() > 2 else 1 for x in (key, value)]
    own = [x if n == 1 else x.repeat_interleave(n, -3) for x, n in zip((key, value), groups, strict=True)]
    dropped = weights if kept is None else weights * kept
    d_weights = (d_context @ own[1].mT) * (1 if kept is None else kept)
    d_sum = (weights * d_weights).sum(-1, keepdim=True)
    if len(cotangents) > 1 and cotangents[1] is not None:
        d_sum = d_sum + cotangents[1].detach().double().abs()[..., None]
    d_scores = weights * (d_weights + d_sum)

    def of_heads(x, group):
        return x if group == 1 else x.unflatten(-3, (-1, group)).sum(-3)

    found = [
        d_scores @ own[0] * scale,
        of_heads(d_scores.mT @ query * scale, groups[0]),
        of_heads(dropped.mT @ d_context, groups[1]),
    ]
    if bias is not None:
        found.append(d_scores.sum_to_size(bias.shape))
    if table is not None:
        found.append(d_scores.sum((0, 2, 3)))
    if sinks is not None:
        found.append(d_sum.sum((0, 2, 3)))
    return [largest(x) for x in found]


def size_of_scores(query, key, scale, bias):
    """Returns an upper bound for the sum of magnitudes in a score."""
    scale = abs(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if query.dim() > 2 and query.shape[-3] != key.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    return (query.abs() @ key.abs().mT).max().item() * scale + (0.0 if bias is None else largest(bias))


def luck(dtype, size, of_scores):
    """Returns the tolerance of the 1x rule in excess of the plain computation's error. Weights are as exact as scores
    and lse, through two chains of products, forward and backward. In 16-bit types, weights, gradients of scores and
    results are rounded."""
    if dtype in NEAR_ZERO:
        return ROUNDING[dtype] * size + NEAR_ZERO[dtype]
    return 4 * ROUNDING[dtype] * (1 + of_scores) * size


@dataclasses.dataclass
class Errors:
    cases: int = 0
    ours: float = 0.0
    theirs: float = 0.0
    fused: float = 0.0
    fused_nan: int = 0
    share: float = 0.0  # largest error as a share of its tolerance


class Judge:
    def __init__(self):
        self.grids = 0
        self.of = collections.defaultdict(Errors)

    def check(self, name, dtype, tensors, cotangents, ours, theirs, fused=None, **known):
        """Checks one case. `ours` and `theirs` are functions of the tensors, `fused` is PyTorch's own attention;
        `known` has the scale and the dropout factors."""
        found = gradients(ours, leaves(tensors), cotangents)
        right = gradients(theirs, leaves(tensors, torch.float64), cotangents)
        naive = gradients(theirs, leaves(tensors), cotangents)
        exactly = leaves(tensors, torch.float64)
        size = sizes(*exactly[:4], *[*exactly[4:], None, None][:2], cotangents, theirs(*exactly)[2].detach(), **known)
        of_scores = size_of_scores(*exactly[:2], known.get("scale"), exactly[3])
        errors = self.of[dtype]
        errors.cases += 1
        for number, (one, exact, near, own, summed) in enumerate(
            zip(found, right, naive, (x for x in tensors if x is not None), size, strict=True)
        ):
            at = f"{name}, gradient {number}"
            assert (one.dtype, one.shape) == (own.dtype, own.shape), at
            off, beside = deviation(one, exact), deviation(near, exact)
            allowed = beside + luck(dtype, summed, of_scores)
            assert math.isfinite(allowed), f"{at}: no yardstick: PyTorch's plain attention is off by {beside}"
            assert off <= allowed, f"{at}: off by {off:.3g}, PyTorch by {beside:.3g}, allowed {allowed:.3g}"
            errors.ours, errors.theirs = max(errors.ours, off), max(errors.theirs, beside)
            errors.share = max(errors.share, off / allowed if allowed > 0 else 0.0)
        if fused is None:
            return
        worst = max(map(deviation, gradients(fused, leaves(tensors), cotangents), right), default=0.0)
        errors.fused = max(errors.fused, worst if math.isfinite(worst) else 0.0)
        errors.fused_nan += math.isinf(worst)

    def check_sdpa(self, name, query, key, value, attn_mask=None, is_causal=False, **options):
        """Checks a case with PyTorch's signature; floating-point masks have a gradient."""
        floats = attn_mask is not None and attn_mask.is_floating_point()
        visible = attn_mask if attn_mask is not None and not floats else None
        if is_causal:
            visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
        given = {"is_causal": is_causal, **options}

        def call(function):
            return lambda q, k, v, bias: function(q, k, v, attn_mask=bias if floats else attn_mask, **given)

        def theirs(q, k, v, bias):
            return plain(q, k, v, visible=visible, bias=bias, scale=options.get("scale"))

        shape = (*torch.broadcast_shapes(*(x.shape[:-3] for x in (query, key, value))), *query.shape[-3:-1])
        (cotangent,) = draw((name, "cotangent"), query.dtype, (*shape, value.shape[-1]))
        tensors = [query, key, value, attn_mask if floats else None]
        self.check(
            name,
            query.dtype,
            tensors,
            [cotangent],
            call(fovea.scaled_dot_product_attention),
            theirs,
            call(F.scaled_dot_product_attention),
            scale=options.get("scale"),
        )


def shapes_and_heads(dtype):
    """Lengths not divisible by the vector width, more queries than keys, widths, grouped heads."""
    lengths = ((77, 128), (128, 77), (1, 128), (33, 1), (64, 64))
    dims = ((16, 16), (40, 40), (64, 80), (128, 128))
    groups = ((4, 4), (6, 2), (4, 1))
    if dtype == torch.float64:  # computed by the reference, which is slow
        lengths, dims, groups = ((17, 28), (28, 17)), dims[:1], groups[:2]
    for (q_len, kv_len), (dim, value_dim), (q_heads, kv_heads), kind in itertools.product(
        lengths, dims, groups, ("none", "causal", "bool", "float")
    ):
        case = (q_len, kv_len, dim, value_dim, q_heads, kv_heads, kind)
        shapes = (2, q_heads, q_len, dim), (2, kv_heads, kv_len, dim), (2, kv_heads, kv_len, value_dim)
        mask = drawn_mask(case, kind, (q_len, kv_len), dtype)
        gqa = q_heads != kv_heads
        yield case, draw(case, dtype, *shapes), {"attn_mask": mask, "is_causal": kind == "causal", "enable_gqa": gqa}


def small_lengths(dtype):
    """Lengths around the vector width."""
    for q_len, kv_len, kind in itertools.product((1, 2, 7, 17), (1, 3, 8, 15, 16, 17, 33), ("none", "causal", "-inf")):
        case = ("small", q_len, kv_len, kind)
        mask = drawn_mask(case, kind, (q_len, kv_len), dtype)
        shapes = (1, 2, q_len, 9), (1, 2, kv_len, 9), (1, 2, kv_len, 5)
        yield case, draw(case, dtype, *shapes), {"attn_mask": mask, "is_causal": kind == "causal"}


def ways_to_broadcast(dtype):
    """Masks with a gradient, summed over broadcast dimensions; fully masked rows."""
    for kind, shape in itertools.product(
        ("float", "-inf", "bool"), itertools.product((2, 1), (3, 1), (21, 1), (37, 1))
    ):
        case = ("mask", kind, shape)
        mask = drawn_mask(case, kind, shape, dtype)
        if kind != "float":
            mask[..., min(5, shape[2] - 1), :] = False if kind == "bool" else -math.inf
        yield case, draw(case, dtype, (2, 3, 21, 24), (2, 3, 37, 24), (2, 3, 37, 24)), {"attn_mask": mask}


def layouts(dtype):
    """Tensors that are not contiguous, in several ways."""
    ways = {
        "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "dim apart": lambda x: x.mT.contiguous().mT,
        "every other": lambda x: x.repeat_interleave(2, -1)[..., ::2],
        "of a larger one": lambda x: F.pad(x, (3, 2, 1, 4))[..., 1:-4, 3:-2],
    }
    for (way, change), which, kind in itertools.product(ways.items(), range(3), ("none", "float")):
        case = ("layout", way, which, kind)
        tensors = draw(case, dtype, (2, 3, 19, 24), (2, 3, 37, 24), (2, 3, 37, 24))
        tensors[which] = change(tensors[which])
        yield case, tensors, {"attn_mask": drawn_mask(case, kind, (2, 3, 19, 37), dtype)}
    (x,) = draw("packed", dtype, (2, 29, 3 * 48))
    yield "packed", [heads(part, 3) for part in x.split(48, dim=2)], {"is_causal": True}


def scales(dtype):
    for scale, kind in itertools.product((0.0, 0.07, 1.0, -0.3), ("none", "causal", "bool", "float")):
        case = ("scale", scale, kind)
        tensors = draw(case, dtype, (2, 3, 21, 32), (2, 3, 45, 32), (2, 3, 45, 32))
        mask = drawn_mask(case, kind, (21, 45), dtype)
        yield case, tensors, {"attn_mask": mask, "is_causal": kind == "causal", "scale": scale}


GRIDS = (shapes_and_heads, small_lengths, ways_to_broadcast, layouts, scales)


@pytest.fixture(scope="module")
def judge():
    return Judge()


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scaled_dot_product_attention(dtype, grid, judge):
    before, cases = fovea._fovea._backward_calls(), 0
    for case, tensors, options in grid(dtype):
        judge.check_sdpa(f"{grid.__name__} {dtype} {case}", *tensors, **options)
        cases += 1
    assert fovea._fovea._backward_calls() - before == cases
    judge.grids += 1


def positions(q_len, kv_len):
    """Returns j - (i + offset), with the last query aligned with the last key."""
    return torch.arange(kv_len) - (torch.arange(q_len)[:, None] + kv_len - q_len)


def of_table(rows, max_distance):
    """Returns a function that adds T5's bidirectional bias, by transformers' formula."""
    buckets = rows.shape[0] // 2

    def add(scores):
        distance = positions(scores.shape[-2], scores.shape[-1])
        exact = buckets // 2
        far = exact + (
            torch.log(distance.abs().clamp(min=1).double() / exact) / math.log(max_distance / exact) * (buckets - exact)
        ).long().clamp(max=buckets - exact - 1)
        bucket = torch.where(distance.abs() < exact, distance.abs(), far) + (distance > 0) * buckets
        return rows[bucket].movedim(-1, -3)

    return add


def of_options(name, q_len, kv_len):
    """Returns the options of fovea.torch.attention and of plain attention for one of the names below."""
    distance = positions(q_len, kv_len)
    slopes = torch.tensor([2.0 ** -(2 * (h + 1)) for h in range(4)], dtype=torch.float64)
    dropout = fovea.Dropout(0.3, seed=len(name), call=q_len)
    kept = torch.from_numpy(dropout.kept(2, 4, q_len, kv_len)).double() / 0.7
    return {
        "nothing": ({}, {}),
        "causal": ({"mask": fovea.causal()}, {"visible": distance <= 0}),
        "window": ({"mask": fovea.window(9, 3)}, {"visible": (distance >= -9) & (distance <= 3)}),
        "prefix": (
            {"mask": fovea.causal() | fovea.prefix(4)},
            {"visible": (distance <= 0) | (torch.arange(kv_len) < 4)},
        ),
        "key lengths": (
            {"mask": fovea.key_lengths([kv_len, 3]), "alignment": kv_len - q_len},
            {"visible": (torch.arange(kv_len) < torch.tensor([[kv_len], [3]]))[:, None, None]},
        ),
        "softcap": ({"softcap": 2.0}, {"softcap": 2.0}),
        "alibi": ({"alibi": True}, {"bias": -slopes[:, None, None] * distance.abs()}),
        "dropout": ({"dropout": dropout}, {"kept": kept}),
        "dropout and causal": ({"dropout": dropout, "mask": fovea.causal()}, {"kept": kept, "visible": distance <= 0}),
    }[name]


OPTIONS = ("nothing", "causal", "window", "prefix", "key lengths", "softcap", "alibi", "dropout", "dropout and causal")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_options(dtype, judge):
    """fovea.torch.attention with each option, alone and combined with a bias, a table and sinks that have gradients,
    with a loss on the context and on lse."""
    before, cases = fovea._fovea._backward_calls(), 0
    lengths = ((9, 14),) if dtype == torch.float64 else ((33, 50), (50, 33), (5, 130))
    for (q_len, kv_len), name, trained in itertools.product(lengths, OPTIONS, ("", "bias", "table", "sinks")):
        case = ("options", q_len, kv_len, name, trained)
        ours, theirs = of_options(name, q_len, kv_len)
        shapes = (2, 4, q_len, 24), (2, 2, kv_len, 24), (2, 2, kv_len, 40), (4, 1, kv_len), (8, 4), (4,)
        *inputs, bias, table, sinks = draw(case, dtype, *shapes)
        others = [x if trained == which else None for x, which in ((bias, "bias"), (table, "table"), (sinks, "sinks"))]
        cotangents = draw((case, "cotangents"), dtype, (2, 4, q_len, 40), (2, 4, q_len))
        if name in ("causal", "dropout and causal") and q_len > kv_len:
            cotangents[1][..., : q_len - kv_len] = 0  # lse of fully masked rows
        if trained != "":
            cotangents[1] = None

        def attend(q, k, v, bias, table, sinks, options=ours):
            relative = None if table is None else fovea.torch.RelativeTable(table, max_distance=40)
            return fovea.torch.attention(q, k, v, bias=bias, relative=relative, sinks=sinks, return_lse=True, **options)

        def step_by_step(q, k, v, bias, table, sinks, options=theirs):
            options = {
                n: x.to(q.dtype) if torch.is_tensor(x) and x.is_floating_point() else x for n, x in options.items()
            }
            own = options.pop("bias", None)
            bias = own if bias is None else bias if own is None else bias + own
            table = None if table is None else of_table(table, 40)
            return plain(q, k, v, bias=bias, table=table, sinks=sinks, **options)

        judge.check(
            f"{dtype} {case}", dtype, [*inputs, *others], cotangents, attend, step_by_step, kept=theirs.get("kept")
        )
        cases += 1
    assert fovea._fovea._backward_calls() - before == cases
    judge.grids += 1


def test_the_size_of_the_grid(judge, say):
    """Runs after the other cases; reports their number and largest errors."""
    if judge.grids < (len(GRIDS) + 1) * len(DTYPES):
        pytest.skip("counts the cases of the whole grid, of which a part was run, or failed")
    cases = sum(errors.cases for errors in judge.of.values())
    say(f"PyTorch {torch.__version__}, gradients on {fovea.info().target}: {cases} gradient cases passed")
    for dtype, errors in judge.of.items():
        name = str(dtype).removeprefix("torch.")
        say(
            f"  {name:8} {errors.cases:5} cases, largest error {errors.ours:.1e}, {100 * errors.share:.0f} % of the "
            f"allowed; PyTorch's {errors.theirs:.1e} plain, {errors.fused:.1e} fused and NaN in {errors.fused_nan}"
        )
    assert cases >= AT_LEAST


WRONG = {
    "NaN": lambda x: x.index_fill(-1, torch.tensor([1]), math.nan),
    "infinity": lambda x: x.index_fill(-1, torch.tensor([1]), math.inf),
    "signs": lambda x: -x,
    "zeros": torch.zeros_like,
    "one number": lambda x: x + torch.eye(x.shape[-2], x.shape[-1], dtype=x.dtype) / 4,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("which", ["query", "key", "value", "bias"])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_wrong_gradients_are_rejected(dtype, which, wrong, monkeypatch):
    *tensors, mask = draw("judge", dtype, *[(2, 3, 9, 8)] * 3, (2, 3, 9, 9))
    Judge().check_sdpa("right", *tensors, attn_mask=mask)
    true = fovea.attention_backward

    def spoiled(*arrays, **options):
        found = {name: getattr(true(*arrays, **options), name) for name in ("query", "key", "value", "bias")}
        found[which] = WRONG[wrong](found[which])
        return collections.namedtuple("Spoiled", [*found, "relative", "sinks"])(*found.values(), None, None)

    monkeypatch.setattr(fovea._fovea, "attention_backward", spoiled)
    with pytest.raises(AssertionError):
        Judge().check_sdpa("wrong", *tensors, attn_mask=mask)


def doubles(*shapes):
    return [x.requires_grad_() for x in draw(shapes, torch.float64, *shapes)]


GRADCHECKS = {
    "nothing": {},
    "causal": {"mask": fovea.causal()},
    "a mask": {"mask": torch.eye(5, 6).bool() | (torch.arange(6) < 2)},
    "softcap": {"softcap": 2.0, "scale": 0.9},
    "alibi": {"alibi": True, "alignment": "top-left"},
    "dropout": {"dropout": fovea.Dropout(0.3, seed=1)},
    "all": {"mask": fovea.window(3, 1), "softcap": 3.0, "alibi": True, "dropout": fovea.Dropout(0.2, seed=2)},
}


@pytest.mark.parametrize("options", GRADCHECKS.values(), ids=GRADCHECKS)
def test_gradcheck(options):
    def attend(query, key, value, bias, table, sinks):
        relative = fovea.torch.RelativeTable(table, max_distance=9)
        return fovea.torch.attention(
            query, key, value, bias=bias, relative=relative, sinks=sinks, return_lse=True, **options
        )

    assert gradcheck(attend, doubles((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 4), (4, 1, 6), (8, 4), (4,)))
    assert gradcheck(lambda q, k, v: fovea.torch.attention(q, k, v), doubles((5, 3), (6, 3), (6, 2)))


@pytest.mark.parametrize("leading", [((), (), ()), ((2, 3), (3,), (2, 1)), ((2, 1, 2, 2), (3, 1, 1), (1,))], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradcheck_of_scaled_dot_product_attention(leading, dropout):
    q, k, v = leading
    tensors = doubles((*q, 5, 3), (*k, 6, 3), (*v, 6, 2), (5, 6))

    def attend(*arrays):
        torch.manual_seed(3)
        return fovea.scaled_dot_product_attention(*arrays, dropout_p=dropout)

    assert gradcheck(attend, tensors)
    # The paths with and without a graph are bit-identical.
    with torch.no_grad():
        without = attend(*tensors)
    assert not without.requires_grad
    assert torch.equal(attend(*tensors), without)
    assert torch.equal(attend(*(x.detach() for x in tensors)), without)


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_within_checkpoints(reentrant):
    query, key, value, gradient = torch.randn(4, 2, 4, 7, 8)

    def gradient_of(call, attend):
        own = query.clone().requires_grad_()
        torch.manual_seed(3)
        call(attend, own).backward(gradient)
        return own.grad

    def attend(own):
        return fovea.scaled_dot_product_attention(own, key, value, dropout_p=0.3)

    def again(function, own):
        return checkpoint(function, own, use_reentrant=reentrant)

    plain = gradient_of(lambda function, own: function(own), attend)
    assert torch.equal(gradient_of(again, attend), plain)
    dropout = fovea.Dropout(0.3)
    outside = gradient_of(again, lambda own: fovea.torch.attention(own, key, value, dropout=dropout))
    assert torch.isfinite(outside).all()
    if not reentrant:
        with pytest.raises(RuntimeError, match=r"dropout: expected the same fovea\.Dropout"):
            gradient_of(again, lambda own: fovea.torch.attention(own, key, value, dropout=fovea.Dropout(0.3)))


def test_gradcheck_of_groups():
    for key_heads, value_heads in ((2, 2), (1, 4), (4, 2)):
        tensors = doubles((2, 4, 3, 3), (1, key_heads, 5, 3), (2, value_heads, 5, 2))
        assert gradcheck(lambda *x: fovea.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True), tensors)


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3), (0, 3), (3, 0, 2, 4, 3), (0, 3, 2, 4, 3)], ids=str)
def test_empty(shape):
    x = torch.zeros(shape, requires_grad=True)
    fovea.scaled_dot_product_attention(x, x, x, dropout_p=0.1).sum().backward()
    assert x.grad.shape == shape


def test_only_needed_gradients_are_computed(monkeypatch):
    """No gradients are computed for tensors that do not require one."""
    asked = []
    true = fovea.attention_backward
    monkeypatch.setattr(
        fovea._fovea,
        "attention_backward",
        lambda *arrays, wanted, **options: (asked.append(wanted), true(*arrays, wanted=wanted, **options))[1],
    )
    query, key, value, bias = draw("needed", torch.float32, (2, 5, 8), (2, 6, 8), (2, 6, 8), (5, 6))
    key.requires_grad_()
    fovea.torch.attention(query, key, value, bias=bias).sum().backward()
    fovea.scaled_dot_product_attention(query, key, value, bias).sum().backward()
    bias.requires_grad_()
    fovea.scaled_dot_product_attention(query.detach(), key.detach(), value, bias).sum().backward()
    assert asked == [["key"], ["key"], ["bias"]]
    assert not fovea.torch.attention(query, key.detach(), value).requires_grad


def test_a_loss_on_lse_only():
    query, key, value = doubles((2, 5, 3), (2, 6, 3), (2, 6, 2))
    fovea.torch.attention(query, key, value, return_lse=True)[1].sum().backward()
    found = query.grad
    query.grad = None
    plain(query, key, value)[1].sum().backward()
    torch.testing.assert_close(found, query.grad)
    assert not value.grad.any()


def test_second_derivatives_are_refused():
    query, key, value = doubles((2, 5, 3), (2, 6, 3), (2, 6, 2))
    for attend in (fovea.torch.attention, fovea.scaled_dot_product_attention):
        (gradient,) = torch.autograd.grad(attend(query, key, value).sum(), query, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated once"):
            gradient.square().sum().backward()


def test_tensors_changed_before_backward():
    for which in range(3):
        tensors = [x * 1.0 for x in doubles((2, 5, 3), (2, 6, 3), (2, 6, 2))]
        context = fovea.torch.attention(*tensors)
        tensors[which].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            context.sum().backward()


def of_tensors(numbers):
    return [torch.tensor(one) for one in numbers]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, collections.deque, of_tensors])
@pytest.mark.parametrize(
    "numbers",
    [
        {"alibi": [1.0, 0.5]},
        {"sinks": [1.0, 0.5]},
        {"alignment": [1]},
        {"query_starts": [0, 3, 6], "key_starts": [0, 3, 6]},
    ],
    ids=lambda numbers: next(iter(numbers)),
)
def test_numbers_changed_before_backward(numbers, kind):
    def gradient(change):
        x = torch.arange(96.0).reshape(1, 2, 6, 8).sin().requires_grad_()
        given = {name: kind(value) for name, value in numbers.items()}
        context = fovea.torch.attention(x, x, x, mask=fovea.causal(), **given)
        if change:
            for value in given.values():
                place = 0 if len(value) < 3 else 1
                if kind is of_tensors:
                    value[place].fill_(2)
                else:
                    value[place] = 2
        context.square().sum().backward()
        return x.grad

    if kind is torch.tensor and "sinks" in numbers:  # which autograd saves
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradient(change=True)
    else:
        assert torch.equal(gradient(change=True), gradient(change=False))


def test_an_array_as_a_mask_changed_before_backward():
    def gradient(change):
        x = torch.arange(96.0).reshape(1, 2, 6, 8).sin().requires_grad_()
        mask = np.tri(6, dtype=bool)
        context = fovea.torch.attention(x, x, x, mask=mask)
        if change:
            mask.fill(True)
        context.square().sum().backward()
        return x.grad

    assert torch.equal(gradient(change=True), gradient(change=False))


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_factors_changed_before_backward(kind):
    def gradient(attend, name, change):
        x = torch.arange(96.0).reshape(1, 2, 6, 8).sin().requires_grad_()
        factor = kind(0.5)
        context = attend(x, x, x, **{name: factor})
        if change:
            factor *= 4
        context.square().sum().backward()
        return x.grad

    for attend, name in (
        (fovea.torch.attention, "scale"),
        (fovea.torch.attention, "softcap"),
        (fovea.scaled_dot_product_attention, "scale"),
    ):
        assert torch.equal(gradient(attend, name, True), gradient(attend, name, False))


def test_training_loop_features():
    """Features of training loops: checkpointing, gradient accumulation, a retained graph."""
    query, key, value = doubles((2, 5, 3), (2, 6, 3), (2, 6, 2))
    context = fovea.torch.attention(query, key, value)
    context.sum().backward(retain_graph=True)
    once = query.grad.clone()
    context.sum().backward()
    assert torch.equal(query.grad, 2 * once)
    again = torch.utils.checkpoint.checkpoint(fovea.torch.attention, query, key, value, use_reentrant=False)
    (found,) = torch.autograd.grad(again.sum(), query)
    assert torch.equal(found, once)
    assert copy.deepcopy(query.detach()).equal(query)


def test_refused():
    query, key, value = draw("refused", torch.float32, (2, 5, 8), (2, 6, 8), (2, 6, 8))
    query.requires_grad_()
    for arrays, options, kind, parts in (
        ((query, key.numpy(), value), {}, TypeError, "key: expected a torch.Tensor, got ndarray"),
        ((query, key, value), {"bias": [1.0]}, TypeError, "bias: expected a torch.Tensor, got list"),
        ((query, key[..., :7], value), {}, ValueError, "key: "),
        ((query, key, value), {"bias": torch.zeros(4, 6)}, ValueError, "bias: "),
        ((query, key, value), {"dropout": 0.1}, TypeError, "dropout: expected a fovea.Dropout"),
        ((query, key, value), {"out": value}, TypeError, "'out'"),
        ((query, key.to("meta"), value), {}, ValueError, "key: expected memory of the CPU"),
    ):
        with pytest.raises(kind, match=parts):
            fovea.torch.attention(*arrays, **options)
    for arrays, options, kind, parts in (
        ((query, key, value, torch.zeros(4, 6)), {}, ValueError, "attn_mask: expected a shape"),
        ((query, key, value, torch.ones(5, 6).bool()), {"is_causal": True}, ValueError, "attn_mask: expected none"),
        ((query, key, value), {"dropout_p": 1.0}, ValueError, "dropout_p: "),
        ((query, key, value), {"dropout_p": "0"}, TypeError, "dropout_p: "),
        ((query, key.half(), value), {}, ValueError, "dtype: "),
        ((query, key[..., :7], value), {}, ValueError, "key: "),
        ((query, key, value), {"softcap": 1.0}, TypeError, "'softcap'"),
    ):
        with pytest.raises(kind, match=parts):
            fovea.scaled_dot_product_attention(*arrays, **options)
    with pytest.raises(ValueError, match=r"query: .* requires one; fovea\.torch\.attention\(\) takes such"):
        fovea.attention(query, key, value)


def test_examples_in_docstrings():
    given = {"fovea": fovea, "torch": torch}
    test = doctest.DocTestParser().get_doctest(fovea.torch.attention.__doc__, given, "attention", None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
    assert fovea.torch.__doc__
    assert fovea.torch.RelativeTable.__doc__


def test_only_fovea_torch_imports_torch():
    program = "import sys, fovea; assert 'torch' not in sys.modules; import fovea.torch; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
