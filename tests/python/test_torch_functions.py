# SPDX-License-Identifier: Apache-2.0
"""Tests that attention of plain PyTorch is observed: scaled_dot_product_attention and nn.MultiheadAttention, computed
by PyTorch or by Fovea.

Contexts: the error against float64 is at most twice PyTorch's plus 1e-6. Weights: those recomputed from an observed
call equal the float64 softmax to 1e-5."""

import copy

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_problems import (  # noqa: E402
    FAR,
    HIDDEN,
    INF,
    LOWER,
    PADDED,
    PLACE,
    Block,
    both,
    check_result,
    check_weights,
    exact_scores,
    inputs,
    kinds_of,
    normal,
    observed,
    softmax,
)

import fovea  # noqa: E402
from fovea._observe.calls import observe  # noqa: E402
from fovea._observe.rules import Causal, Dense, Documents, Prefix, Window  # noqa: E402
from fovea._observe.torch_functions import ObservedFunctions  # noqa: E402

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


def ids_of(rule):
    return next(leaf for leaf in rule.leaves() if isinstance(leaf, Documents))


DOCUMENTS = torch.tensor([0] * 300 + [1] * 100 + [2] * 900)
SAME = DOCUMENTS[:, None] == DOCUMENTS


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
