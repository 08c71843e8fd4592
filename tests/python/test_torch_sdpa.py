# SPDX-License-Identifier: Apache-2.0
"""Compares scaled_dot_product_attention with PyTorch's, on a grid of types, shapes, masks and layouts that starts with
the cases of PyTorch's test/test_transformers.py; also invalid arguments.

By the 1x rule (docs/numerics.md): the oracle is PyTorch's plain attention in float64, and the tolerance is the error
of PyTorch's plain attention in the dtype of the tensors.
"""

import collections
import dataclasses
import itertools
import math
import subprocess
import sys
import zlib

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import torch.nn.functional as F  # noqa: E402, N812
from torch.nn.attention import SDPBackend, bias, sdpa_kernel  # noqa: E402

import fovea  # noqa: E402
import fovea.torch  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
HALVES = (torch.bfloat16, torch.float16)
# Largest relative error of one rounding, and half of the smallest subnormal number.
ROUNDING = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
NEAR_ZERO = {torch.bfloat16: 2.0**-134, torch.float16: 2.0**-25}
# Minimum number of cases in total, so that the grid cannot shrink unnoticed.
AT_LEAST = 1000


def plain(query, key, value, **options):
    """Computes PyTorch's plain attention."""
    with sdpa_kernel(backends=[SDPBackend.MATH]):
        return F.scaled_dot_product_attention(query, key, value, **options)


def in_float64(query, key, value, attn_mask=None, **options):
    mask = attn_mask.double() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    return plain(query.double(), key.double(), value.double(), attn_mask=mask, **options)


def largest(tensor):
    """Returns the largest finite magnitude."""
    size = tensor.double().abs()
    return torch.where(size.isfinite(), size, 0).max().item() if tensor.numel() else 0.0


def deviation(found, right):
    """Returns the largest error; infinity for NaN or a wrong infinity."""
    if right.numel() == 0:
        return 0.0
    difference = torch.where(found == right, 0, (found.double() - right).abs())
    return torch.where(difference.isnan(), math.inf, difference).max().item()


def size_of_scores(query, key, attn_mask=None, scale=None, enable_gqa=False, **_):
    """Returns an upper bound for the sum of magnitudes in a score."""
    if query.numel() == 0 or key.numel() == 0:
        return 0.0
    key = key.double().abs()
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    products = (query.double().abs() @ key.mT).max().item()
    biases = largest(attn_mask) if attn_mask is not None and attn_mask.is_floating_point() else 0.0
    return products * abs(1 / math.sqrt(query.shape[-1]) if scale is None else scale) + biases


def allowance(query, key, value, right, **options):
    """Returns the tolerance of the 1x rule in excess of the plain computation's error."""
    rounding = ROUNDING[query.dtype]
    if query.dtype not in HALVES:
        return 2 * rounding * (1 + size_of_scores(query, key, **options)) * largest(value)
    of_weights = largest(in_float64(query, key, value.abs(), **options))
    return rounding / 2 * of_weights + max(rounding / 2 * largest(right), NEAR_ZERO[query.dtype])


@dataclasses.dataclass
class Errors:
    cases: int = 0
    ours: float = 0.0
    theirs: float = 0.0
    fused: float = 0.0
    fused_nan: int = 0  # cases with NaN in PyTorch's fused attention: causal with a scale of 0 or less
    share: float = 0.0  # largest error as a share of its tolerance


class Judge:
    def __init__(self):
        self.grids = 0
        self.of = collections.defaultdict(Errors)

    def check(self, name, query, key, value, **options):
        found = fovea.scaled_dot_product_attention(query, key, value, **options)
        right = in_float64(query, key, value, **options)
        assert isinstance(found, torch.Tensor), name
        assert (found.dtype, found.shape) == (query.dtype, right.shape), name
        ours, theirs = deviation(found, right), deviation(plain(query, key, value, **options), right)
        allowed = theirs + allowance(query, key, value, right, **options)
        assert math.isfinite(allowed), f"{name}: no yardstick: PyTorch's plain attention is off by {theirs}"
        assert ours <= allowed, f"{name}: off by {ours:.3g}, PyTorch by {theirs:.3g}, allowed {allowed:.3g}"
        fused = deviation(F.scaled_dot_product_attention(query, key, value, **options), right)
        errors = self.of[query.dtype]
        errors.cases += 1
        errors.ours, errors.theirs = max(errors.ours, ours), max(errors.theirs, theirs)
        errors.fused = max(errors.fused, fused if math.isfinite(fused) else 0.0)
        errors.fused_nan += math.isinf(fused)
        errors.share = max(errors.share, ours / allowed if allowed > 0 else 0.0)


def draw(seed, dtype, *shapes):
    generator = torch.Generator().manual_seed(zlib.crc32(repr(seed).encode()))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def drawn_mask(seed, kind, shape, dtype):
    """Returns a random mask; None for the kinds "none" and "causal"."""
    if kind not in ("bool", "float", "-inf"):
        return None
    (mask,) = draw((seed, kind), torch.float32, shape)
    if kind == "float":
        return mask.to(dtype)
    return mask > 0 if kind == "bool" else torch.where(mask > 0, mask, -math.inf).to(dtype)


def heads(packed, count):
    """Returns [batch, length, heads * dim] as [batch, heads, length, dim]."""
    batch, length, width = packed.shape
    return packed.view(batch, length, count, width // count).transpose(1, 2)


def fused_vs_math(dtype):
    """PyTorch's test_scaled_dot_product_fused_attention_vs_math_cpu: query, key and value in one tensor."""
    batches, lengths = ((2,), (267,)) if dtype == torch.float64 else ((2, 12), (267, 1030))
    for batch, length, n_head, dim, causal in itertools.product(batches, lengths, (1, 3), (8, 16), (True, False)):
        if batch * length > 4000:
            continue
        case = ("packed", batch, length, n_head, dim, causal)
        (x,) = draw(case, dtype, (batch, length, 3 * n_head * dim))
        yield case, [heads(part, n_head) for part in x.split(n_head * dim, dim=2)], {"is_causal": causal}


def mask_vs_math(dtype):
    """PyTorch's test_scaled_dot_product_fused_attention_mask_vs_math_cpu: all broadcasts of the mask."""
    batch, q_len, kv_len, n_head, dim = 2, 267, 514, 3, 8
    shapes = [
        *itertools.product((q_len, 1), (kv_len, 1)),
        *itertools.product((batch, 1), (n_head, 1), (q_len, 1), (kv_len, 1)),
    ]
    for kind, shape in itertools.product(("bool", "float"), shapes):
        case = ("mask", kind, shape)
        packed = draw(case, dtype, *((batch, length, n_head * dim) for length in (q_len, kv_len, kv_len)))
        yield case, [heads(one, n_head) for one in packed], {"attn_mask": drawn_mask(case, kind, shape, dtype)}


def shapes_and_heads(dtype):
    """Lengths not divisible by the vector width, more queries than keys, widths, grouped heads."""
    lengths = ((77, 128), (128, 77), (1, 128), (33, 1), (64, 64))
    dims = ((16, 16), (40, 40), (64, 80), (128, 128))
    if dtype == torch.float64:  # computed by the reference, which is slow
        lengths, dims = lengths[:4], dims[1:3]
    for (q_len, kv_len), (dim, value_dim), (q_heads, kv_heads), kind in itertools.product(
        lengths, dims, ((4, 4), (6, 2), (4, 1)), ("none", "causal", "bool", "float")
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


def leading_dimensions(dtype):
    """All broadcasts of the leading dimensions."""
    leading = [(), (1,), (3,), (2, 1), (2, 3), (4, 1, 1), (4, 2, 3)]
    for q, k, v in itertools.product(leading, repeat=3):
        case = ("leading", q, k, v)
        yield case, draw(case, dtype, (*q, 5, 8), (*k, 6, 8), (*v, 6, 2)), {}


def layouts(dtype):
    """Tensors and masks that are not contiguous, in several ways."""
    ways = {
        "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "dim apart": lambda x: x.mT.contiguous().mT,
        "every other": lambda x: x.repeat_interleave(2, -1)[..., ::2],
        "expanded": lambda x: x[:, :1].expand(x.shape),
        "of a larger one": lambda x: F.pad(x, (3, 2, 1, 4))[..., 1:-4, 3:-2],
    }
    for (way, change), which, kind in itertools.product(ways.items(), range(4), ("none", "bool", "float")):
        case = ("layout", way, which, kind)
        tensors = draw(case, dtype, (2, 3, 19, 24), (2, 3, 37, 24), (2, 3, 37, 24))
        mask = drawn_mask(case, kind, (2, 3, 19, 37), dtype)
        if which < 3:
            tensors[which] = change(tensors[which])
        elif mask is not None:
            mask = change(mask.double()).bool() if kind == "bool" else change(mask)
        yield case, tensors, {"attn_mask": mask}


def scales(dtype):
    for scale, kind in itertools.product((None, 0.0, 0.07, 1.0, 2.5, -0.3), ("none", "causal", "bool", "float")):
        case = ("scale", scale, kind)
        tensors = draw(case, dtype, (2, 3, 21, 32), (2, 3, 45, 32), (2, 3, 45, 32))
        mask = drawn_mask(case, kind, (21, 45), dtype)
        yield case, tensors, {"attn_mask": mask, "is_causal": kind == "causal", "scale": scale}


def empty(dtype):
    shapes = [(0, 2, 5, 8), (2, 0, 5, 8), (2, 2, 0, 8), (0, 5, 8), (0, 8), (3, 0, 2, 5, 8)]
    for shape, kv_len, causal in itertools.product(shapes, (0, 1, 7), (True, False)):
        case = ("empty", shape, kv_len, causal)
        yield case, draw(case, dtype, shape, *[(*shape[:-2], kv_len, 8)] * 2), {"is_causal": causal}
    for causal in (True, False):
        case = ("no keys", causal)
        yield case, draw(case, dtype, (2, 3, 5, 8), (2, 3, 0, 8), (2, 3, 0, 8)), {"is_causal": causal}


def rows_without_a_key(dtype):
    for kind, shape in itertools.product(("bool", "-inf"), ((19, 37), (2, 1, 19, 37), (2, 3, 19, 37), (1, 37))):
        case = ("no key", kind, shape)
        mask = drawn_mask(case, kind, shape, dtype)
        mask[..., min(5, mask.shape[-2] - 1), :] = False if kind == "bool" else -math.inf
        yield case, draw(case, dtype, (2, 3, 19, 24), (2, 3, 37, 24), (2, 3, 37, 24)), {"attn_mask": mask}


def single(dtype):
    # PyTorch's test_scaled_dot_product_fused_attention_with_inf: a band of ten keys, as a mask of -inf.
    full = torch.full((600, 600), -math.inf)
    band = torch.triu(full, diagonal=1) + torch.tril(full, diagonal=-10)
    packed = draw("banded", dtype, *[(1, 600, 16)] * 3)
    yield "banded", [heads(one, 2) for one in packed], {"attn_mask": band.to(dtype)}
    # PyTorch's test_scaled_dot_product_attention_math_with_negative_scale: scores of 10^5.
    (x,) = draw("negative scale", torch.float32, (1, 3, 64, 64))
    if dtype == torch.float32:
        yield "negative scale", [x, x, x], {"scale": -1 / 0.0001}
    # A float32 mask works with every dtype.
    mask = drawn_mask("wide", "float", (5, 7), torch.float32)
    yield "a mask of float32", draw("wide", dtype, (2, 5, 8), (2, 7, 8), (2, 7, 8)), {"attn_mask": mask}


GRIDS = (
    fused_vs_math,
    mask_vs_math,
    shapes_and_heads,
    small_lengths,
    leading_dimensions,
    layouts,
    scales,
    empty,
    rows_without_a_key,
    single,
)


WRONG = {
    "NaN": lambda x: x.index_fill(-1, torch.tensor([1]), math.nan),
    "infinity": lambda x: x.index_fill(-1, torch.tensor([1]), math.inf),
    "signs": lambda x: -x,
    "zeros": torch.zeros_like,
    "one number": lambda x: x + torch.eye(x.shape[-2], x.shape[-1], dtype=x.dtype) / 50,
    "shape": lambda x: x[:, :1],
    "type": lambda x: x.double(),
    "kind": lambda x: x.float().numpy(),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_wrong_results_are_rejected(dtype, wrong, monkeypatch):
    tensors = draw("judge", dtype, *[(2, 3, 9, 8)] * 3)
    Judge().check("right", *tensors)
    spoiled = WRONG[wrong](fovea.scaled_dot_product_attention(*tensors))
    monkeypatch.setattr(fovea, "scaled_dot_product_attention", lambda *_, **__: spoiled)
    with pytest.raises(AssertionError):
        Judge().check("wrong", *tensors)


@pytest.fixture(scope="module")
def judge():
    return Judge()


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grid(dtype, grid, judge):
    before = fovea._fovea._forward_calls()
    for case, (query, key, value), options in grid(dtype):
        judge.check(f"{grid.__name__} {dtype} {case}", query, key, value, **options)
    assert fovea._fovea._forward_calls() > before
    judge.grids += 1


def test_the_size_of_the_grid(judge, say):
    """Runs after the other cases; reports their number and largest errors."""
    if judge.grids < len(GRIDS) * len(DTYPES):
        pytest.skip("counts the cases of the whole grid, of which a part was run, or failed")
    cases = sum(errors.cases for errors in judge.of.values())
    say(f"PyTorch {torch.__version__}, scaled_dot_product_attention on {fovea.info().target}: {cases} cases passed")
    for dtype, errors in judge.of.items():
        name = str(dtype).removeprefix("torch.")
        say(
            f"  {name:8} {errors.cases:5} cases, largest error {errors.ours:.1e}, {100 * errors.share:.0f} % of the "
            f"allowed; PyTorch's {errors.theirs:.1e} plain, {errors.fused:.1e} fused and NaN in {errors.fused_nan}"
        )
    assert cases >= AT_LEAST


def refused():
    """Returns {name: (query, key, value, options)} of calls that both PyTorch and Fovea reject."""
    q, k, v = draw("refused", torch.float32, (2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3))
    some = torch.ones(5, 6, dtype=torch.bool)
    return {
        "a list": (q.tolist(), k, v, {}),
        "None": (q, None, v, {}),
        "a number": (q, k, 3.0, {}),
        "integers": (q.int(), k.int(), v.int(), {}),
        "complex numbers": (q.cfloat(), k.cfloat(), v.cfloat(), {"is_causal": True}),
        "two types": (q, k.half(), v, {}),
        "value of another type": (q, k, v.double(), {}),
        "no dimension": (q[0, 0, 0, 0], k, v, {}),
        "one dimension": (q[0, 0, 0], k[0, 0, 0], v[0, 0, 0], {}),
        "key of one dimension": (q, k[0, 0, 0], v, {}),
        "head_dim": (q, k[..., :7], v, {}),
        "kv_len": (q, k, v[:, :, :5], {}),
        "batch": (q, k.repeat(2, 1, 1, 1), v.repeat(2, 1, 1, 1), {}),
        "batch of values": (q, k, v.repeat(2, 1, 1, 1), {}),
        "heads without enable_gqa": (q, k[:, :2], v[:, :2], {}),
        "heads that do not divide": (q, k[:, :3], v[:, :3], {"enable_gqa": True}),
        "more heads of keys": (q[:, :2], k, v, {"enable_gqa": True}),
        "heads of values that do not divide": (q, k, v[:, :3], {"enable_gqa": True}),
        "two masks": (q, k, v, {"attn_mask": some, "is_causal": True}),
        "a mask of integers": (q, k, v, {"attn_mask": some.int()}),
        "a mask of another type": (q, k, v, {"attn_mask": some.double()}),
        "a mask of float16": (q, k, v, {"attn_mask": some.half()}),
        "a mask's width": (q, k, v, {"attn_mask": some[:, :5]}),
        "a mask's height": (q, k, v, {"attn_mask": some[:4]}),
        "a mask's heads": (q, k, v, {"attn_mask": some.expand(3, 5, 6)}),
        "a mask's batch": (q, k, v, {"attn_mask": some.expand(3, 4, 5, 6)}),
        "a list as a mask": (q, k, v, {"attn_mask": some.tolist()}),
        "a probability above 1": (q, k, v, {"dropout_p": 1.5}),
        "a probability in words": (q, k, v, {"dropout_p": "0"}),
        "a scale in words": (q, k, v, {"scale": "1"}),
        "a scale that is a list": (q, k, v, {"scale": [1.0]}),
        "causal in words": (q, k, v, {"is_causal": "yes"}),
        "enable_gqa in words": (q, k, v, {"enable_gqa": "yes"}),
        "an unknown option": (q, k, v, {"causal": True}),
        "an option that is only ours": (q, k, v, {"softcap": 3.0}),
        "another device": (q, k.to("meta"), v, {}),
        "a mask on another device": (q, k, v, {"attn_mask": some.to("meta")}),
    }


@pytest.mark.parametrize("name", refused())
def test_refused_by_both(name):
    query, key, value, options = refused()[name]
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        F.scaled_dot_product_attention(query, key, value, **options)
    with pytest.raises((TypeError, ValueError)) as caught:
        fovea.scaled_dot_product_attention(query, key, value, **options)
    assert str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dropout(dtype):
    """Compares with PyTorch's plain attention, given Fovea's dropped weights."""
    query, key, value = draw("dropout", dtype, (2, 4, 19, 16), (2, 4, 33, 16), (2, 4, 33, 8))
    torch.manual_seed(6)
    found = fovea.scaled_dot_product_attention(query, key, value, dropout_p=0.4)
    torch.manual_seed(6)
    kept = torch.from_numpy(fovea.Dropout(0.4, seed=int(torch.randint(2**63 - 1, ()))).kept(2, 4, 19, 33))
    weights = (query.double() @ key.double().mT / 4).softmax(-1)
    right = torch.where(kept, weights / 0.6, 0) @ value.double()
    assert deviation(found, right) <= 4 * ROUNDING[dtype] * largest(value)
    assert (found.double() - plain(query, key, value).double()).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_alternating_with_torch(dtype):
    """Neither disturbs the other: both may use the tile registers of the same thread."""
    query = torch.randn(1, 4, 200, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    halves = query.bfloat16()
    first = None
    for _ in range(20):
        results = (
            fovea.attention(query, query, query),
            halves @ halves.transpose(-1, -2),
            F.scaled_dot_product_attention(halves, halves, halves),
        )
        first = first or results
        assert all(torch.equal(now, then) for now, then in zip(results, first, strict=True))


class Stopped(BaseException):
    pass


class Silent(torch.Tensor):
    """A tensor that does not tell whether it requires a gradient."""

    @property
    def requires_grad(self):
        raise Stopped


@pytest.mark.parametrize("position", range(4))
def test_errors_of_tensors_are_not_lost(position):
    arguments = [torch.randn(1, 2, length, 4) for length in (3, 5, 5)] + [torch.zeros(3, 5)]
    arguments[position] = arguments[position].as_subclass(Silent)
    with pytest.raises(Stopped):
        fovea.scaled_dot_product_attention(*arguments)


@pytest.mark.parametrize(("q_len", "kv_len"), [(9, 9), (5, 17), (1, 40)])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("corner", ["upper left", "lower right"])
def test_causal_biases_of_pytorch(corner, requires_grad, grouped, q_len, kv_len):
    make = bias.causal_upper_left if corner == "upper left" else bias.causal_lower_right
    query = torch.randn(2, 4, q_len, 16).requires_grad_(requires_grad)
    key, value = torch.randn(2, 2, 2 if grouped else 4, kv_len, 16)
    mask = make(q_len, kv_len)
    found = fovea.scaled_dot_product_attention(query, key, value, mask, enable_gqa=grouped)
    right = in_float64(query, key, value, mask._materialize(), enable_gqa=grouped)
    assert deviation(found.detach(), right.detach()) < 1e-6
    if requires_grad:
        (gradient,) = torch.autograd.grad(found.sum(), query)
        (expected,) = torch.autograd.grad(right.sum(), query)
        assert deviation(gradient, expected) < 1e-5


def test_causal_biases_of_other_lengths_and_elsewhere():
    query = torch.randn(1, 2, 9, 16)
    with pytest.raises(ValueError, match="attn_mask: expected one of 9 queries and 9 keys, got one of 5 and 17"):
        fovea.scaled_dot_product_attention(query, query, query, bias.causal_lower_right(5, 17))
    # As in PyTorch, lengths of the others do not matter.
    found = fovea.scaled_dot_product_attention(query, query, query, bias.causal_upper_left(5, 17))
    assert torch.equal(found, fovea.scaled_dot_product_attention(query, query, query, is_causal=True))
    with pytest.raises(TypeError, match=r"bias: expected a tensor with values, got PyTorch's CausalBias"):
        fovea.attention(query, query, query, bias=bias.causal_upper_left(9, 9))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_autocast(requires_grad):
    query, key = torch.randn(2, 1, 2, 9, 16).requires_grad_(requires_grad)
    value, mask = torch.randn(1, 2, 9, 16).bfloat16(), torch.randn(9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        found = fovea.scaled_dot_product_attention(query, key, value, mask)
        assert found.dtype == torch.bfloat16
        right = in_float64(query.bfloat16(), key.bfloat16(), value, mask.bfloat16())
        assert deviation(found, right) < 0.03
        double = query.double()
        assert fovea.scaled_dot_product_attention(double, double, double).dtype == torch.float64
        with torch.autocast("cpu", enabled=False):
            assert fovea.scaled_dot_product_attention(query, key, key).dtype == torch.float32


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: fovea.scaled_dot_product_attention(x, x, x),
        lambda x: fovea.attention(x, x, x),
        lambda x: fovea.attention(x, x, x, out=torch.empty_like(x)) + x,
        lambda x: fovea.torch.attention(x, x, x),
    ],
)
def test_tracing_is_refused(call):
    # The tracer would store the results as constants.
    with pytest.raises(ValueError, match=r"torch\.jit\.trace: expected attention of PyTorch, got Fovea"):
        torch.jit.trace(call, torch.randn(1, 2, 9, 16))


def test_autocast_in_the_first_call():
    program = (
        "import torch, fovea\n"
        "query = torch.randn(1, 2, 4, 16)\n"
        "with torch.autocast('cpu'): print(fovea.scaled_dot_product_attention(query, query, query).dtype)\n"
    )
    result = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "torch.bfloat16\n"
