# SPDX-License-Identifier: Apache-2.0
"""Tests that attention of plain PyTorch is observed: scaled_dot_product_attention, flex_attention and
nn.MultiheadAttention, computed by PyTorch or by Fovea.

Contexts: the error against float64 is at most twice PyTorch's plus 1e-6. Weights: those recomputed from an observed
call equal the float64 softmax to 1e-5."""

import copy
import itertools
import math
import threading
import weakref

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import torch.nn.functional as F  # noqa: E402, N812
from problems import raises  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention import flex_attention as flex  # noqa: E402
from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import fovea  # noqa: E402
from fovea._observe import torch_flex, torch_masks  # noqa: E402
from fovea._observe.calls import check_eager, observe  # noqa: E402
from fovea._observe.rules import Causal, Dense, Documents, Prefix, Rule, Window  # noqa: E402
from fovea._observe.torch_functions import ObservedFunctions  # noqa: E402

COMPUTE = ("original", "fovea")
INF = math.inf
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

CASES = {
    "rank 2": (inputs((17, 16), (23, 16), (23, 8)), {}),
    "rank 3": (inputs((4, 17, 16), (4, 23, 16)), {}),
    "rank 4": (inputs((2, 4, 17, 16), (2, 4, 23, 16), (2, 4, 23, 5)), {}),
    "rank 5": (inputs((3, 2, 4, 17, 16), (3, 2, 4, 23, 16)), {"is_causal": True}),
    "rank 5, masks": (inputs((3, 2, 4, 17, 16), (3, 2, 4, 23, 16)), {"attn_mask": normal(2, 1, 17, 23)}),
    "one batch": (inputs((1, 4, 17, 16), (2, 4, 23, 16)), {}),
    "mixed ranks": (inputs((2, 4, 17, 16), (4, 23, 16), (23, 16)), {"is_causal": True}),
    "one key head": (inputs((2, 4, 17, 16), (2, 1, 23, 16)), {}),
    "one query head": (inputs((2, 1, 17, 16), (2, 4, 23, 16)), {}),
    "grouped": (inputs((2, 6, 17, 16), (2, 2, 23, 16)), {"enable_gqa": True, "is_causal": True}),
    "grouped, rank 3": (inputs((6, 17, 16), (2, 23, 16)), {"enable_gqa": True}),
    "grouped, one value head": (inputs((2, 6, 17, 16), (2, 2, 23, 16), (2, 1, 23, 16)), {"enable_gqa": True}),
    "scale": (inputs((2, 4, 17, 16)), {"scale": 0.7}),
    "negative scale": (inputs((2, 4, 17, 16)), {"scale": -0.7}),
    "causal": (inputs((2, 4, 17, 16)), {"is_causal": True}),
    "causal, more keys": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"is_causal": True}),
    "causal, more queries": (inputs((2, 4, 23, 16), (2, 4, 17, 16)), {"is_causal": True}),
    "one query": (inputs((2, 4, 1, 16), (2, 4, 23, 16)), {}),
    "long": (inputs((1, 1, 1100, 16)), {"attn_mask": torch.ones(1100, 1100).tril().bool()}),
    "bool": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": HIDDEN}),
    "bool per head": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": normal(2, 4, 17, 23) > -1}),
    "lower right": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": LOWER}),
    "padding": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": PADDED[:, None, None]}),
    "floats": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": normal(1, 4, 17, 23)}),
    "floats per query": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": normal(17, 1)}),
    "floats, -inf": (inputs((2, 4, 17, 16)), {"attn_mask": torch.zeros(17, 17).masked_fill(~LOWER[:, 6:], -INF)}),
    "causal_upper_left": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": causal_upper_left(17, 23)}),
    "causal_lower_right": (inputs((2, 4, 17, 16), (2, 4, 23, 16)), {"attn_mask": causal_lower_right(17, 23)}),
    "no batch": (inputs((0, 4, 17, 16)), {"is_causal": True}),
    "no heads": (inputs((2, 0, 17, 16)), {}),
    "no queries": (inputs((2, 4, 0, 16), (2, 4, 23, 16)), {"attn_mask": PADDED[:, None, None]}),
    "no keys": (inputs((2, 4, 17, 16), (2, 4, 0, 16)), {"attn_mask": torch.ones(17, 0).bool()}),
    "no head_dim": (inputs((2, 4, 17, 0), (2, 4, 23, 0), (2, 4, 23, 16)), {"scale": 1.0}),
}


@both
@pytest.mark.parametrize("name", CASES)
def test_scaled_dot_product_attention(name, compute):
    (query, key, value), options = CASES[name]
    found, calls = observed(compute, lambda: F.scaled_dot_product_attention(query, key, value, **options))
    plain = F.scaled_dot_product_attention(query, key, value, **options)
    scores = exact_scores(query, key, **options)
    repeated = value
    if options.get("enable_gqa"):
        repeated = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    check_result(found, plain, softmax(scores) @ repeated.double())
    if compute == "original":
        assert torch.equal(found, plain)
    (call,) = calls
    weights = softmax(scores)
    if weights.dim() > 4:
        weights = weights.flatten(0, weights.dim() - 4)
    check_weights(call, weights)
    assert call.module is None
    assert call.value.shape[-1] == value.shape[-1]


def test_tensors_are_read_in_place_and_key_heads_are_not_repeated():
    query, key, value = inputs((2, 6, 17, 16), (2, 2, 23, 16))
    _, (call,) = observed("original", lambda: F.scaled_dot_product_attention(query, key, value, enable_gqa=True))
    for own, given in ((call.query, query), (call.key, key), (call.value, value)):
        assert own.data_ptr() == given.data_ptr()
        assert own.shape == given.shape
    one = normal(2, 1, 23, 16)
    _, (call,) = observed("fovea", lambda: F.scaled_dot_product_attention(query, one, one))
    assert call.key.shape == one.shape


@both
def test_aliases_and_keywords(compute):
    query, key, value = inputs((2, 4, 17, 16))
    functions = (
        F.scaled_dot_product_attention,
        torch._C._nn.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention.default,
    )
    exact = softmax(exact_scores(query, key, is_causal=True, scale=0.5))
    plain = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.5)
    for function in functions:
        for call in (
            lambda: function(query, key, value, None, 0.0, True, scale=0.5),  # noqa: B023
            lambda: function(value=value, query=query, key=key, is_causal=True, scale=0.5),  # noqa: B023
        ):
            found, calls = observed(compute, call)
            check_result(found, plain, exact @ value.double())
            assert len(calls) == 1
            check_weights(calls[0], exact)


def kinds_of(rule):
    return tuple(type(leaf) for leaf in rule.leaves() if type(leaf) is not Rule)


def ids_of(rule):
    return next(leaf for leaf in rule.leaves() if isinstance(leaf, Documents))


DOCUMENTS = torch.tensor([0] * 300 + [1] * 100 + [2] * 900)
PLACE = torch.arange(1300)
SAME = DOCUMENTS[:, None] == DOCUMENTS
FAR = PLACE[:, None] - PLACE


@pytest.mark.parametrize(
    ("visible", "kinds"),
    [
        (torch.ones(1300, 1300), ()),
        (FAR >= 0, (Causal,)),
        ((FAR >= 0) & (FAR < 70), (Causal, Window)),
        ((FAR >= -9) & (FAR < 70), (Window,)),
        (FAR < 70, (Window,)),
        (SAME, (Documents,)),
        (SAME & (FAR >= 0), (Causal, Documents)),
        (SAME & (FAR.abs() < 70), (Dense,)),
        ((PLACE < 1000).expand(1300, 1300), (Documents,)),
        ((PLACE >= 200) & (FAR >= 0), (Causal, Documents)),
        ((PLACE < 40) | (FAR >= 0), (Causal, Prefix)),
        ((FAR >= 0) & ((FAR != 5) | (PLACE != 1290)), (Dense,)),  # a single pair differs
        (FAR % 3 == 0, (Documents,)),
    ],
    ids=[
        *("all", "causal", "causal window", "window", "bounded left", "documents", "causal documents"),
        *("windows in documents", "right padding", "causal left padding", "prefix", "almost causal", "strides"),
    ],
)
@pytest.mark.parametrize("floats", [False, True], ids=["bool", "-inf"])
def test_masks_become_rules(visible, kinds, floats):
    query = normal(1, 1, 1300, 4)
    mask = visible.bool()
    given = torch.zeros(1300, 1300).masked_fill(~mask, -INF) if floats else mask
    _, (call,) = observed("original", lambda: F.scaled_dot_product_attention(query, query, query, given))
    assert kinds_of(call.rule) == kinds
    check_weights(call, softmax(exact_scores(query, query, mask)))


def test_masks_of_several_batch_items():
    query = normal(2, 2, 40, 4)
    starts = torch.tensor([[0], [7]])
    left = (torch.arange(40) >= starts)[:, None, None] & torch.ones(40, 40).tril().bool()
    _, (call,) = observed("original", lambda: F.scaled_dot_product_attention(query, query, query, left))
    assert kinds_of(call.rule) == (Causal, Documents)
    assert ids_of(call.rule).key_ids.shape == (2, 40)
    check_weights(call, softmax(exact_scores(query, query, left)))
    packed = torch.tensor([[0] * 10 + [1] * 30, [0] * 25 + [1] * 15])
    same = (packed[:, :, None] == packed[:, None])[:, None]
    _, (call,) = observed("fovea", lambda: F.scaled_dot_product_attention(query, query, query, same))
    assert kinds_of(call.rule) == (Documents,)
    check_weights(call, softmax(exact_scores(query, query, same)))


def test_the_last_query_is_aligned_with_the_last_key():
    query, key = normal(2, 2, 17, 4), normal(2, 2, 23, 4, seed=2)
    for mask in (LOWER, causal_lower_right(17, 23)):
        _, (call,) = observed("original", lambda: F.scaled_dot_product_attention(query, key, key, mask))  # noqa: B023
        assert (kinds_of(call.rule), call.query_start, call.key_start) == ((Causal,), 6, 0)
    upper = torch.ones(23, 17).tril(-6).bool()
    _, (call,) = observed("original", lambda: F.scaled_dot_product_attention(key, query, query, upper))
    assert (kinds_of(call.rule), call.query_start, call.key_start) == ((Causal,), 0, 6)
    check_weights(call, softmax(exact_scores(key, query, upper)))


class Block(nn.Module):
    """Self-attention by nn.MultiheadAttention, whose weights may be asked for."""

    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, **options)

    def forward(self, query, key, value, **options):
        return self.attention(query, key, value, **options)


MASKS = {
    "none": {},
    "attn_mask": {"attn_mask": ~torch.ones(9, 11).tril(2).bool()},
    "attn_mask, floats": {"attn_mask": normal(9, 11)},
    "attn_mask per head": {"attn_mask": normal(2 * 4, 9, 11)},
    "is_causal": {"attn_mask": ~torch.ones(9, 11).tril().bool(), "is_causal": True},
    "key_padding_mask": {"key_padding_mask": torch.arange(11) >= torch.tensor([[11], [4]])},
    "key_padding_mask, floats": {"key_padding_mask": normal(2, 11)},
    "both": {
        "attn_mask": ~torch.ones(9, 11).tril(2).bool(),
        "key_padding_mask": torch.arange(11) >= torch.tensor([[11], [4]]),
    },
}
MODULES = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "no bias": {"bias": False},
    "add_bias_kv": {"add_bias_kv": True},
    "add_zero_attn": {"add_zero_attn": True, "add_bias_kv": True, "batch_first": True},
    "kdim": {"kdim": 12, "vdim": 8},
}


def as_float64(options):
    return {
        name: each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for name, each in options.items()
    }


@both
@pytest.mark.parametrize("need_weights", [False, True], ids=["context", "weights"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", MODULES)
def test_multihead_attention(kind, mask, need_weights, compute):
    torch.manual_seed(3)
    module = Block(**MODULES[kind]).eval()
    for parameter in module.parameters():  # biases are 0 at first
        nn.init.normal_(parameter, std=0.3)
    shapes = (9, 16), (11, MODULES[kind].get("kdim", 16)), (11, MODULES[kind].get("vdim", 16))
    tensors = [normal(2, *shape, seed=place) for place, shape in enumerate(shapes)]
    if not MODULES[kind].get("batch_first"):
        tensors = [one.transpose(0, 1) for one in tensors]
    given = {"need_weights": need_weights, **MASKS[mask]}
    with torch.no_grad():
        plain = module(*tensors, **given)
        found, calls = observed(compute, lambda: module(*tensors, **given))
        oracle = copy.deepcopy(module).double()
        exact, weights = oracle(
            *(one.double() for one in tensors),
            **{**as_float64(given), "need_weights": True, "average_attn_weights": False},
        )
    if not need_weights and mask == "is_causal":  # a hint that PyTorch trusts if there are no other keys
        keys = weights.shape[-1]
        assert keys - 11 == module.attention.add_zero_attn + (module.attention.bias_k is not None)
        if keys > 11:
            exact, weights = None, None
    (call,) = calls
    assert call.module is module.attention
    if exact is not None:
        check_result(found[0], plain[0], exact)
        check_weights(call, weights)
    else:
        torch.testing.assert_close(found[0], plain[0], rtol=0, atol=1e-6)
    if need_weights:
        check_result(found[1], plain[1], weights.mean(1))
    else:
        assert found[1] is None
    if compute == "original":
        assert torch.equal(found[0], plain[0])
        assert not need_weights or torch.equal(found[1], plain[1])


@both
def test_multihead_attention_without_batch(compute):
    module = nn.MultiheadAttention(16, 4)
    tensors = inputs((9, 16), (11, 16))
    for options in ({}, {"average_attn_weights": False}, {"need_weights": False}):
        given = {"key_padding_mask": torch.arange(11) > 8, **options}
        plain = module(*tensors, **given)
        found, (call,) = observed(compute, lambda: module(*tensors, **given))  # noqa: B023
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-6)
        assert call.query.shape == (1, 4, 9, 4)
    with observe(lambda _: None), ObservedFunctions(compute), pytest.raises(RuntimeError, match="is_causal"):
        module(*tensors, is_causal=True)


LAYER = {"d_model": 16, "nhead": 4, "dim_feedforward": 24, "batch_first": True}
ENCODER_MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": torch.arange(9) >= torch.tensor([[9], [5]])},
    "causal": {"mask": nn.Transformer.generate_square_subsequent_mask(9), "is_causal": True},
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # of the fused path
@both
@pytest.mark.parametrize("mask", ENCODER_MASKS)
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_transformer_encoder(training, grad, mask, compute):
    torch.manual_seed(4)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER, dropout=0.0), 2).train(training)
    embedded, given = normal(2, 9, 16), ENCODER_MASKS[mask]
    with torch.set_grad_enabled(grad):
        found, calls = observed(compute, lambda: model(embedded, **given))
        plain = model(embedded, **given)
        exact = copy.deepcopy(model).double()(embedded.double(), **as_float64(given))
    assert [call.module for call in calls] == [layer.self_attn for layer in model.layers]
    kept = slice(None)
    if mask == "padding":  # PyTorch's fused path sets padded positions to 0
        kept = ~given["src_key_padding_mask"]
    check_result(found[kept], plain[kept], exact[kept])
    assert kinds_of(calls[0].rule) == {"none": (), "padding": (Documents,), "causal": (Causal,)}[mask]


@both
def test_transformer_with_cross_attention(compute):
    torch.manual_seed(5)
    options = {**LAYER, "num_encoder_layers": 1, "num_decoder_layers": 2, "dropout": 0.0}
    model = nn.Transformer(**options).eval()
    source, target = normal(2, 9, 16), normal(2, 7, 16, seed=2)
    causal = nn.Transformer.generate_square_subsequent_mask(7)
    found, calls = observed(compute, lambda: model(source, target, tgt_mask=causal, tgt_is_causal=True))
    plain = model(source, target, tgt_mask=causal, tgt_is_causal=True)
    exact = copy.deepcopy(model).double()(source.double(), target.double(), tgt_mask=causal.double())
    check_result(found, plain, exact)
    names = {module: name for name, module in model.named_modules()}
    assert [names[call.module] for call in calls] == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    ]
    assert [call.key.shape[2] for call in calls] == [9, 7, 9, 7, 9]


def index_grids(batch, heads, q_len, kv_len):
    """Returns the arguments of flex_attention's functions, for all pairs at once."""
    extents = batch, heads, q_len, kv_len
    return [
        torch.arange(length).view(*(-1 if at == place else 1 for at in range(4)))
        for place, length in enumerate(extents)
    ]


PACKED = torch.tensor([0] * 20 + [1] * 13)
OFFSETS = torch.tensor([0, 3])
TABLE = normal(4, 65)
MASK_MODS = {
    "none": (None, ()),
    "causal": (lambda b, h, q, k: q >= k, (Causal,)),
    "window": (lambda b, h, q, k: (q >= k) & (q - k < 5), (Causal, Window)),
    "documents": (lambda b, h, q, k: PACKED[q] == PACKED[k], (Documents,)),
    "causal documents": (lambda b, h, q, k: (PACKED[q] == PACKED[k]) & (q >= k), (Causal, Documents)),
    "prefix": (lambda b, h, q, k: (q >= k) | (k < 8), (Causal, Prefix)),
    "batch": (lambda b, h, q, k: (q >= k) & (k >= OFFSETS[b]), (Causal, Documents)),
    "head": (lambda b, h, q, k: (q - k) % (h + 2) == 0, (Dense,)),
}
SCORE_MODS = {
    "none": None,
    "softcap": lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
    "factor": lambda s, b, h, q, k: s * 1.5,
    "distance": lambda s, b, h, q, k: s - (q - k).abs() * (h + 1) * 0.1,
    "table": lambda s, b, h, q, k: s + TABLE[h, q - k + 32],
    "softcap and table": lambda s, b, h, q, k: 2 * torch.tanh(s / 2) + TABLE[h, q - k + 32],
    "mask": lambda s, b, h, q, k: torch.where(q >= k, s, -INF),
    "unknown": lambda s, b, h, q, k: torch.where(q > k, s.abs(), s * h),
}


FLEX_CASES = [
    *((mask, "none") for mask in MASK_MODS),
    *((mask, score) for mask in ("none", "documents") for score in SCORE_MODS if score != "none"),
    ("causal", "softcap"),
    ("head", "table"),
]


@uncompiled
@pytest.mark.parametrize(("mask", "score"), FLEX_CASES)
def test_flex_attention(mask, score):
    query, key, value = inputs((2, 4, 33, 16), (2, 2, 33, 16))
    (mask_mod, kinds), score_mod = MASK_MODS[mask], SCORE_MODS[score]
    block_mask = None if mask_mod is None else flex.create_block_mask(mask_mod, 2, 4, 33, 33, device="cpu")

    def call():
        aux = flex.AuxRequest(lse=True)
        return flex.flex_attention(query, key, value, score_mod, block_mask, enable_gqa=True, return_aux=aux)

    scores = exact_scores(query, key, enable_gqa=True)
    if score_mod is not None:
        scores = score_mod(scores, *index_grids(2, 4, 33, 33))
    if mask_mod is not None:
        scores = scores.masked_fill(~mask_mod(*index_grids(2, 4, 33, 33)), -INF)
    exact = softmax(scores) @ value.double().repeat_interleave(2, 1)
    (found, aux), (seen,) = observed("fovea", call)
    plain, plain_aux = call()
    check_result(found, plain, exact)
    check_result(aux.lse, plain_aux.lse, scores.logsumexp(-1))
    check_weights(seen, softmax(scores))
    assert seen.key.data_ptr() == key.data_ptr()
    if score == "none":
        assert kinds_of(seen.rule) == kinds
    if score == "softcap":
        assert seen.options["softcap"] == 2
    assert (seen.options["bias"] is not None) == (score in ("distance", "table", "softcap and table", "unknown"))


@uncompiled
def test_flex_attention_by_pytorch():
    query, key, value = inputs((2, 4, 33, 16))
    block_mask = flex.create_block_mask(MASK_MODS["causal"][0], None, None, 33, 33, device="cpu")
    plain = flex.flex_attention(query, key, value, SCORE_MODS["softcap"], block_mask, scale=0.3)
    found, (call,) = observed(
        "original", lambda: flex.flex_attention(query, key, value, SCORE_MODS["softcap"], block_mask, scale=0.3)
    )
    assert torch.equal(found, plain)
    assert kinds_of(call.rule) == (Causal,)
    scores = 2 * torch.tanh(exact_scores(query, key, scale=0.3) / 2)
    check_weights(call, softmax(scores.masked_fill(~torch.ones(33, 33).tril().bool(), -INF)))


@uncompiled
def test_flex_attention_keys_of_one_batch_item():
    query, key, value = inputs((3, 2, 20, 8), (1, 2, 24, 8))
    block_mask = flex.create_block_mask(lambda b, h, q, k: k <= q + b, 3, None, 20, 24, device="cpu")
    found, (call,) = observed("fovea", lambda: flex.flex_attention(query, key, value, block_mask=block_mask))
    visible = torch.arange(24) <= torch.arange(20)[:, None] + torch.arange(3)[:, None, None]
    exact = softmax(exact_scores(query, key, visible[:, None]))
    check_result(found, flex.flex_attention(query, key, value, block_mask=block_mask), exact @ value.double())
    check_weights(call, exact)


def test_hidden_values_of_a_score_mod_do_not_matter():
    query, key, value = inputs((1, 2, 33, 16))
    block_mask = flex.create_block_mask(MASK_MODS["causal"][0], None, None, 33, 33, device="cpu")

    def score_mod(s, b, h, q, k):
        return s + (q - k).sqrt()  # NaN where the mask hides the pair

    found, (call,) = observed("fovea", lambda: flex.flex_attention(query, key, value, score_mod, block_mask))
    visible = torch.ones(33, 33).tril().bool()
    exact = softmax((exact_scores(query, key) + FAR[:33, :33].sqrt()).masked_fill(~visible, -INF))
    check_result(found, (exact @ value.double()).float(), exact @ value.double())
    check_weights(call, exact)


def test_rules_are_kept_while_a_mask_is_the_same(monkeypatch):
    """A mask is recognised once, and again after each change."""
    found = []
    recognize = torch_masks.recognize
    monkeypatch.setattr(torch_masks, "recognize", lambda *given: found.append(1) or recognize(*given))
    query = normal(1, 2, 33, 16)
    ids, offset = PACKED.clone(), 0

    def mask_mod(b, h, q, k):
        return (ids[q] == ids[k]) & (q >= k + offset)

    def by_function():
        block_mask = flex.create_block_mask(mask_mod, None, None, 33, 33, device="cpu")
        return flex.flex_attention(query, query, query, block_mask=block_mask)

    mask = torch.ones(33, 33).tril().bool()

    def by_tensor():
        return F.scaled_dot_product_attention(query, query, query, mask)

    calls = []
    with observe(calls.append), ObservedFunctions():
        for function, changes in (
            (by_function, [lambda: ids.fill_(0), lambda: ids.copy_(PACKED)]),
            (by_tensor, [lambda: mask.fill_(True), lambda: mask.tril_(5)]),
        ):
            for change in (lambda: None, *changes):
                change()
                before = len(found)
                results = [function() for _ in range(3)]
                assert len(found) == before + 1
                assert torch.equal(results[0], results[2])
        before = len(found)
        ids = torch.zeros(33, dtype=torch.int64)  # the variable now has another tensor
        by_function()
        ids = PACKED.clone()
        by_function()
        offset = -1
        by_function()
        assert len(found) == before + 3
    visible = mask_mod(*index_grids(1, 1, 33, 33))
    check_weights(calls[-1], softmax(exact_scores(query, query, visible)))
    visible = torch.ones(33, 33).tril(5).bool()
    check_weights(calls[17], softmax(exact_scores(query, query, visible)))


def test_masks_are_not_kept_alive():
    query = normal(1, 2, 33, 16)
    masks = [torch.ones(33, 33).tril().bool()]
    with observe(lambda _: None), ObservedFunctions():
        F.scaled_dot_product_attention(query, query, query, masks[0])
        alive = weakref.ref(masks.pop())
        assert alive() is None


class Keys:
    """An object whose changes cannot be seen."""

    last = 20


def test_masks_of_objects_are_read_in_each_call():
    query = normal(1, 2, 33, 16)
    keys = Keys()
    block_mask = flex.create_block_mask(lambda b, h, q, k: k < keys.last, None, None, 33, 33, device="cpu")
    calls = []
    with observe(calls.append), ObservedFunctions():
        flex.flex_attention(query, query, query, block_mask=block_mask)
        keys.last = 10
        flex.flex_attention(query, query, query, block_mask=block_mask)
    for call, last in zip(calls, (20, 10), strict=True):
        check_weights(call, softmax(exact_scores(query, query, (torch.arange(33) < last)[None])))


def test_many_biases_are_refused(monkeypatch):
    query = normal(1, 2, 40, 8)
    monkeypatch.setattr(torch_flex, "_MAX_BIASES", 40 * 40)
    for name in ("distance", "unknown"):
        with ObservedFunctions("fovea"), raises(ValueError, "score_mod: expected", "at most 1600 pairs", "got 3200"):
            flex.flex_attention(query, query, query, SCORE_MODS[name])


def gradients(function, tensors):
    """Returns the gradients of a weighted sum of the result."""
    leaves = [one.detach().clone().requires_grad_() for one in tensors]
    result = function(*leaves)
    (result * normal(*result.shape, seed=9).to(result.dtype)).sum().backward()
    return [leaf.grad for leaf in leaves]


@both
@pytest.mark.parametrize("case", ["causal", "bool", "floats", "grouped", "rank 5"])
def test_gradients(case, compute):
    shapes = {"grouped": ((2, 4, 17, 16), (2, 2, 17, 16)), "rank 5": ((2, 1, 2, 17, 16),)}
    tensors = inputs(*shapes.get(case, ((2, 4, 17, 16),)))
    options = {"is_causal": case in ("causal", "grouped", "rank 5"), "enable_gqa": case == "grouped"}
    if case == "floats":
        tensors.append(normal(4, 17, 17))
    if case == "bool":
        options["attn_mask"] = LOWER[:, 6:] | HIDDEN[:, 6:]

    def attend(*given):
        with sdpa_kernel([SDPBackend.MATH]):
            return F.scaled_dot_product_attention(*given, **options)

    found, (call,) = observed(compute, lambda: gradients(attend, tensors))
    plain, exact = gradients(attend, tensors), gradients(attend, [one.double() for one in tensors])
    for own, ordinary, right in zip(found, plain, exact, strict=True):
        check_result(own, ordinary, right)
    assert not call.query.requires_grad
    assert not call.lse.requires_grad


@both
@pytest.mark.parametrize("need_weights", [False, True])
def test_gradients_of_multihead_attention(need_weights, compute):
    torch.manual_seed(6)
    module = nn.MultiheadAttention(16, 4, batch_first=True)

    def of(model, embedded):
        model.zero_grad()
        context, weights = model(embedded, embedded, embedded, need_weights=need_weights)
        loss = context.square().sum() + (weights.square().sum() if need_weights else 0)
        loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    embedded = normal(2, 9, 16)
    found, calls = observed(compute, lambda: of(module, embedded))
    plain, exact = of(module, embedded), of(copy.deepcopy(module).double(), embedded.double())
    for own, ordinary, right in zip(found, plain, exact, strict=True):
        check_result(own, ordinary, right)
    assert len(calls) == 1


@both
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("backward", ["method", "function", "grad"])
def test_checkpoints(backward, reentrant, compute):
    module = Block(batch_first=True)
    embedded = normal(2, 9, 16).requires_grad_()

    def of():
        result = checkpoint(lambda one: module(one, one, one, need_weights=False)[0], embedded, use_reentrant=reentrant)
        loss = result.square().sum()
        if backward == "grad" and not reentrant:  # checkpoint() does not support grad() if it is reentrant
            return torch.autograd.grad(loss, embedded)[0]
        embedded.grad = None
        loss.backward() if backward == "method" else torch.autograd.backward(loss)
        return embedded.grad

    before = fovea._fovea._forward_calls()
    found, calls = observed(compute, of)
    assert len(calls) == 1
    # For "original", the pass that computes lse.
    assert fovea._fovea._forward_calls() - before == (2 if compute == "fovea" else 1)
    torch.testing.assert_close(found, of(), rtol=1e-5, atol=1e-5)


@both
def test_training_with_dropout(compute):
    torch.manual_seed(7)
    query, key, value = inputs((1, 8, 200, 16))
    module = nn.MultiheadAttention(16, 4, dropout=0.3)

    def functional():
        torch.manual_seed(8)
        return F.scaled_dot_product_attention(query, key, value, dropout_p=0.3)

    first, (call,) = observed(compute, functional)
    second, _ = observed(compute, functional)
    assert torch.equal(first, second)
    whole = F.scaled_dot_product_attention(query, key, value)
    assert not torch.allclose(first, whole, atol=1e-3)
    assert abs((first - whole).mean().item()) < 0.01  # unbiased
    check_weights(call, softmax(exact_scores(query, key)))

    for need_weights in (False, True):
        embedded = normal(50, 2, 16)
        torch.manual_seed(8)
        (context, weights), (call,) = observed(compute, lambda: module(*[embedded] * 3, need_weights=need_weights))  # noqa: B023
        context.sum().backward()
        if compute == "original" or need_weights:
            torch.manual_seed(8)
            plain = module(*[embedded] * 3, need_weights=need_weights)
            assert torch.equal(context, plain[0])
            assert not need_weights or torch.equal(weights, plain[1])
        exact = module.double().eval()(*[embedded.double()] * 3, average_attn_weights=False)[1]
        module.float().train()
        check_weights(call, exact)


@both
def test_autocast(compute):
    query, key, value = inputs((2, 4, 17, 16))
    with torch.autocast("cpu", torch.bfloat16):
        found, (call,) = observed(compute, lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True))
        plain = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    rounded = [one.bfloat16() for one in (query, key, value)]
    weights = softmax(exact_scores(*rounded[:2], is_causal=True))
    check_result(found, plain, weights @ rounded[2].double())
    assert call.query.dtype == torch.bfloat16
    check_weights(call, weights)


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype, compute):
    query, key, value = (one.to(dtype) for one in inputs((2, 4, 17, 16)))
    for options in ({"is_causal": True}, {"attn_mask": normal(17, 17).to(dtype)}):
        found, (call,) = observed(compute, lambda: F.scaled_dot_product_attention(query, key, value, **options))  # noqa: B023
        weights = softmax(exact_scores(query, key, **options))
        check_result(found, F.scaled_dot_product_attention(query, key, value, **options), weights @ value.double())
        check_weights(call, weights)


class Custom(nn.Module):
    """Attention in a method, in a function, and in an object that is no module."""

    def __init__(self):
        super().__init__()
        self.inner = Block(batch_first=True)

    def forward(self, x):
        by_method = self.attend(x)
        by_function = (lambda one: F.scaled_dot_product_attention(one, one, one))(by_method)
        return self.inner.forward(*[by_function[:, 0]] * 3, need_weights=False)[0]  # bypasses hooks

    def attend(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def test_modules_are_found():
    model = Custom()
    _, calls = observed("fovea", lambda: model(normal(2, 1, 9, 16)))
    assert [call.module for call in calls] == [model, model, model.inner.attention]


def test_without_observers():
    query, key, value = inputs((2, 4, 17, 16))
    before = fovea._fovea._forward_calls()
    with ObservedFunctions("original"):
        F.scaled_dot_product_attention(query, key, value)
        nn.MultiheadAttention(16, 4)(*[normal(9, 2, 16)] * 3)
    assert fovea._fovea._forward_calls() == before
    with ObservedFunctions("fovea"):
        F.scaled_dot_product_attention(query, key, value)
    assert fovea._fovea._forward_calls() == before + 1


def test_observers_nest_and_see_calls_of_their_block_only():
    query = normal(1, 1, 5, 4)
    outer, inner = [], []
    with observe(outer.append), ObservedFunctions():
        F.scaled_dot_product_attention(query, query, query)
        with observe(inner.append):
            F.scaled_dot_product_attention(query, query, query)
    F.scaled_dot_product_attention(query, query, query)
    assert (len(outer), len(inner)) == (2, 1)


class FailureError(Exception):
    pass


def test_exceptions_restore_everything():
    query = normal(1, 1, 5, 4)
    switch = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG

    def fail(call):
        raise FailureError

    model = Block(batch_first=True)
    for function in (
        lambda: F.scaled_dot_product_attention(query, query, query),
        lambda: flex.flex_attention(query, query, query),
        lambda: model(*[normal(2, 9, 16)] * 3),
    ):
        with pytest.raises(FailureError), observe(fail), ObservedFunctions():
            function()
        assert flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is switch
        assert torch._C._len_torch_function_stack() == 0
    result, calls = observed("fovea", lambda: F.scaled_dot_product_attention(query, query, query))
    assert len(calls) == 1
    torch.testing.assert_close(result, F.scaled_dot_product_attention(query, query, query))


def test_calls_do_not_keep_a_model_alive():
    models = [Block(batch_first=True)]
    observed("fovea", lambda: models[0](*[normal(2, 9, 16)] * 3))
    alive = weakref.ref(models.pop())
    assert alive() is None


def test_one_mode_on_each_thread():
    query = normal(1, 1, 5, 4)
    calls, switched = [], []

    def other():
        switched.append(bool(flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG))
        F.scaled_dot_product_attention(query, query, query)
        switched.append(len(observed("fovea", lambda: F.scaled_dot_product_attention(query, query, query))[1]))

    with observe(calls.append), ObservedFunctions() as mode:
        with raises(RuntimeError, "ObservedFunctions: expected one on each thread, got a second"), ObservedFunctions():
            pass
        with raises(RuntimeError, "expected one on each thread"), mode:
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert bool(flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG)
        F.scaled_dot_product_attention(query, query, query)
    assert switched == [False, 1]
    assert len(calls) == 1
    assert not flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG


class Renaming(torch.overrides.TorchFunctionMode):
    """Another mode, which calls every function as it is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@both
def test_other_modes(compute):
    module = nn.MultiheadAttention(16, 4)
    embedded = normal(9, 2, 16)
    plain = module(embedded, embedded, embedded)
    for outer in (Renaming, lambda: torch.device("cpu")):
        with outer():
            found, calls = observed(compute, lambda: module(embedded, embedded, embedded))
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-6)
        assert len(calls) == 1
    calls = []
    with observe(calls.append), ObservedFunctions(compute), Renaming():
        found = module(embedded, embedded, embedded)
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-6)
    assert len(calls) == 1


def attend(x):
    return F.scaled_dot_product_attention(x, x, x) + 1


class Attends(nn.Module):
    def forward(self, x):
        return attend(x)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@both
def test_compiled_attention_is_refused(compute):
    x = normal(1, 1, 5, 4)
    in_place = Attends()
    in_place.compile(backend="eager")
    compiled = torch.compile(Attends(), backend="eager")
    compiled(x)
    for function in (torch.compile(attend, backend="eager"), compiled, in_place):
        with pytest.raises(ValueError, match=r"torch.compile: expected uncompiled attention, got a compiled function"):
            observed(compute, lambda: function(x))  # noqa: B023
    for model in (compiled, in_place, nn.Sequential(nn.Identity(), in_place), torch.jit.script(nn.Identity())):
        with raises(ValueError, "model: expected uncompiled modules, got a"):
            check_eager(model)
    check_eager(Attends())
    _, calls = observed(compute, lambda: compiled._orig_mod(x))
    assert len(calls) == 1


@both
def test_other_tensors_are_refused(compute):
    x, meta = normal(1, 1, 5, 4), torch.empty(1, 1, 5, 4, device="meta")
    nested = torch.nested.nested_tensor([normal(3, 4), normal(5, 4)], layout=torch.jagged)
    module = nn.MultiheadAttention(16, 4, device="meta")
    for function, name, expected in (
        (lambda: F.scaled_dot_product_attention(meta, meta, meta), "query", "a tensor on the CPU, got one on meta"),
        (
            lambda: F.scaled_dot_product_attention(x, x, x, meta[0, 0]),
            "attn_mask",
            "a tensor on the CPU, got one on meta",
        ),
        (lambda: module(*[torch.empty(9, 2, 16, device="meta")] * 3), "query", "a tensor on the CPU, got one on meta"),
        (lambda: F.scaled_dot_product_attention(nested, nested, nested), "query", "a dense tensor"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: expected {expected}"):
            observed(compute, function)


@both
def test_tensors_without_elements_are_refused(compute):
    query = normal(2, 2, 5, 4)

    def fake():
        with FakeTensorMode():
            one = torch.empty(1, 2, 5, 4)
            return F.scaled_dot_product_attention(one, one, one)

    for function, got in (
        (fake, "a FakeTensor"),
        (lambda: torch.vmap(lambda one: F.scaled_dot_product_attention(one, one, one))(query), "one of torch.func"),
        (lambda: torch.func.grad(lambda one: F.scaled_dot_product_attention(one, one, one).sum())(query), "torch.func"),
    ):
        with pytest.raises(ValueError, match=f"^query: expected a tensor with elements in memory, got .*{got}"):
            observed(compute, function)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
@both
def test_traces_are_refused(compute):
    with pytest.raises(ValueError, match=r"^torch\.jit\.trace: expected"):
        observed(compute, lambda: torch.jit.trace(attend, normal(1, 2, 5, 4)))


@both
def test_inference_mode(compute):
    with torch.inference_mode():
        query = normal(1, 2, 5, 4)
        found, (call,) = observed(compute, lambda: F.scaled_dot_product_attention(query, query, query))
    check_weights(call, softmax(exact_scores(query, query)))
    assert found.is_inference() or compute == "fovea"


@both
def test_other_compiled_functions_run(compute):
    query = normal(2, 2, 5, 4)
    compiled = torch.compile(lambda one: one.relu() * 2, backend="eager", fullgraph=True)

    def of():
        one = compiled(query)
        return F.scaled_dot_product_attention(one, one, one)

    found, calls = observed(compute, of)
    assert len(calls) == 1
    torch.testing.assert_close(found, of())


def test_operators_below_are_refused():
    module = nn.MultiheadAttention(16, 4, batch_first=True)
    x, query = normal(2, 9, 16), normal(1, 2, 9, 8)
    projections = module.in_proj_weight, module.in_proj_bias, module.out_proj.weight, module.out_proj.bias
    for name, function in (
        ("_native_multi_head_attention", lambda: torch._native_multi_head_attention(x, x, x, 16, 4, *projections)),
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, query, query),
        ),
    ):
        with ObservedFunctions(), raises(ValueError, f"expected scaled_dot_product_attention, got {name}, which"):
            function()


def test_compute_is_checked():
    with raises(ValueError, 'compute: expected "fovea" or "original", got \'sdpa\''):
        ObservedFunctions("sdpa")
