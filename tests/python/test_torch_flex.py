# SPDX-License-Identifier: Apache-2.0
"""Observes calls of flex_attention: results, masks and scores as rules, and what is kept between calls."""

import itertools
import weakref

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import torch.nn.functional as F  # noqa: E402, N812
from problems import raises  # noqa: E402
from torch.nn.attention import flex_attention as flex  # noqa: E402
from torch_problems import (  # noqa: E402
    FAR,
    INF,
    check_result,
    check_weights,
    exact_scores,
    inputs,
    kinds_of,
    normal,
    observed,
    softmax,
    uncompiled,
)

from fovea._observe import torch_flex, torch_masks  # noqa: E402
from fovea._observe.calls import observe  # noqa: E402
from fovea._observe.rules import Causal, Dense, Documents, Prefix, Window  # noqa: E402
from fovea._observe.torch_functions import ObservedFunctions  # noqa: E402


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


NEARLY_LINEAR = {
    "large ones halved": lambda s, b, h, q, k: torch.where(s > 700.0, s * 0.5, s),
    "small ones hidden": lambda s, b, h, q, k: torch.where(s.abs() < 0.3, 0.0, s),
    "clamped": lambda s, b, h, q, k: s.clamp(max=2.0),
    "a factor near 1": lambda s, b, h, q, k: s * (1 + 8e-6),
}


@uncompiled
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (1, 7), (3, 2), (2, 40)])
@pytest.mark.parametrize("name", NEARLY_LINEAR)
def test_few_scores_of_functions_that_are_nearly_linear(name, q_len, kv_len):
    for seed, size in itertools.product(range(4), (0.3, 60.0)):
        torch.manual_seed(seed)
        query, key = torch.randn(1, 2, q_len, 16).double() * size, torch.randn(1, 2, kv_len, 16).double() * 4
        value = torch.randn(1, 2, kv_len, 8).double()
        found, _ = observed("fovea", lambda: flex.flex_attention(query, key, value, NEARLY_LINEAR[name]))  # noqa: B023
        scores = NEARLY_LINEAR[name](exact_scores(query, key), 0, 0, 0, 0)
        assert (found - softmax(scores) @ value).abs().max() < 1e-11


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
            (by_function, [lambda: ids.fill_(0), lambda: ids.copy_(PACKED.flip(0))]),
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
