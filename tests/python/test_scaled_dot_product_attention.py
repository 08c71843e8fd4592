# SPDX-License-Identifier: Apache-2.0
"""Compares scaled_dot_product_attention with the code in PyTorch's documentation, in NumPy."""

import itertools

import numpy as np
import pytest
from problems import FLOATS, raises, tensors, wide

import fovea


def expected(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """The code of PyTorch's documentation, in float64."""
    query, key, value = wide(query), wide(key), wide(value)
    q_len, kv_len = query.shape[-2], key.shape[-2]
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    bias = np.zeros((q_len, kv_len))
    if is_causal:
        bias = np.where(np.tril(np.ones((q_len, kv_len), bool)), 0, -np.inf)
    if attn_mask is not None:
        bias = np.where(attn_mask, 0, -np.inf) if attn_mask.dtype == bool else wide(attn_mask)
    if enable_gqa:
        key = np.repeat(key, query.shape[-3] // key.shape[-3], -3)
        value = np.repeat(value, query.shape[-3] // value.shape[-3], -3)
    scores = query @ np.swapaxes(key, -1, -2) * scale + bias
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(-1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), 0) @ value


TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-13}


def check(query, key, value, **options):
    found = fovea.scaled_dot_product_attention(query, key, value, **options)
    right = expected(query, key, value, **options)
    assert found.shape == right.shape
    assert found.dtype == query.dtype
    tolerance = TOLERANCE[query.dtype.name]
    np.testing.assert_allclose(wide(found), right, rtol=tolerance, atol=tolerance)


def normal(*shape, dtype="float32", seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 3, 5, 8), (2, 2, 3, 5, 8), (2, 1, 2, 3, 5, 8)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_ranks(shape, dtype, is_causal):
    check(*tensors(shape, kv_len=7, value_dim=3, dtype=dtype), is_causal=is_causal)


LEADING = [(), (1,), (3,), (2, 1), (2, 3), (4, 1, 1), (4, 2, 3), (1, 4, 2, 1)]


@pytest.mark.parametrize(("q", "k", "v"), list(itertools.product(LEADING, repeat=3)), ids=str)
def test_leading_dimensions_broadcast(q, k, v):
    check(normal(*q, 5, 8), normal(*k, 6, 8, seed=4), normal(*v, 6, 2, seed=5))


MASKS = [(), (1,), (6,), (5, 1), (1, 6), (5, 6), (3, 5, 6), (1, 1, 5, 6), (2, 1, 5, 6), (2, 3, 1, 6), (2, 3, 5, 1)]


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float32", "with -inf"])
def test_masks(shape, kind):
    random = np.random.default_rng(6)
    mask = random.random(shape) < 0.6
    if kind != "bool":
        hidden = np.where(mask, 0, -np.inf) if kind == "with -inf" else 0
        mask = np.asarray(random.standard_normal(shape) + hidden, np.float32)
    check(*tensors((2, 3, 5, 8), kv_len=6), attn_mask=np.asarray(mask))


@pytest.mark.parametrize("leading", [(4, 2, 3), (1, 2, 3), (4, 1, 1), (4, 2, 1), (3,), (2, 3)], ids=str)
def test_masks_of_many_dimensions(leading):
    mask = np.random.default_rng(7).random((*leading, 5, 6)) < 0.6
    check(*tensors((4, 2, 3, 5, 8), kv_len=6), attn_mask=mask)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_mask_of_the_inputs_dtype(dtype):
    check(*tensors((2, 5, 8), kv_len=6, dtype=dtype), attn_mask=normal(5, 6, dtype=dtype))


def test_float32_masks_with_other_dtypes():
    for dtype in ("float16", "float64"):
        check(*tensors((2, 5, 8), kv_len=6, dtype=dtype), attn_mask=normal(5, 6))


def test_rows_without_a_key():
    mask = np.ones((5, 6), bool)
    mask[2] = False
    query, key, value = tensors((2, 5, 8), kv_len=6)
    found = fovea.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert np.array_equal(found[:, 2], np.zeros((2, 8)))
    check(query, key, value, attn_mask=mask)
    check(query, key, value, attn_mask=np.where(mask, 0, -np.inf).astype("float32"))


@pytest.mark.parametrize("heads", [(4, 4, 4), (4, 2, 2), (4, 1, 1), (6, 3, 2), (6, 2, 6), (6, 6, 1)], ids=str)
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_grouped_heads(heads, leading):
    q, k, v = heads
    check(
        normal(*leading, q, 5, 8),
        normal(*leading, k, 6, 8, seed=4),
        normal(*leading, v, 6, 3, seed=5),
        enable_gqa=True,
        is_causal=True,
    )


def test_grouped_heads_and_broadcast_batch():
    check(normal(2, 4, 5, 8), normal(1, 2, 6, 8, seed=4), normal(2, 6, 3, seed=5), enable_gqa=True)


@pytest.mark.parametrize("shape", [(0, 5, 8), (2, 0, 8), (0, 2, 5, 8), (3, 0, 2, 5, 8), (0, 3, 2, 5, 8)], ids=str)
def test_empty(shape):
    check(*tensors(shape, kv_len=4))


def test_no_keys():
    check(*tensors((2, 5, 8), kv_len=0))


def test_layouts():
    query, key, value = (array.swapaxes(1, 2) for array in tensors((2, 5, 3, 8)))
    check(query, key, value)
    check(query[..., ::2], key[..., ::2], value[..., ::-1])


def test_positional_arguments():
    query, key, value = tensors((5, 8))
    mask = normal(5, 5)
    by_place = fovea.scaled_dot_product_attention(query, key, value, mask, 0.0, False, 0.5, False)
    by_name = fovea.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.5)
    assert np.array_equal(by_place, by_name)


Q, K, V = tensors((2, 3, 5, 8), kv_len=6)
REFUSED = {
    "no probability": (ValueError, (Q, K, V), {"dropout_p": 1.5}, ["dropout_p", "from 0 up to, but not, 1", "1.5"]),
    "all left out": (ValueError, (Q, K, V), {"dropout_p": 1.0}, ["dropout_p", "from 0 up to, but not, 1", "1"]),
    "dropout in words": (TypeError, (Q, K, V), {"dropout_p": "0.1"}, ["dropout_p", "a number", "str"]),
    "two masks": (ValueError, (Q, K, V), {"attn_mask": np.ones((5, 6), bool), "is_causal": True}, ["attn_mask"]),
    "one dimension": (ValueError, (Q[0, 0, 0], K, V), {}, ["query", "2 dimensions or more", "[8]"]),
    "two types": (ValueError, (Q, K.astype("float16"), V), {}, ["dtype", "float32, float16 and float32"]),
    "heads": (ValueError, (Q, K[:, :2], V[:, :2]), {}, ["broadcast", "[2, 2, 6, 8]", "enable_gqa"]),
    "batch": (ValueError, (Q, np.concatenate([K, K]), V), {}, ["broadcast", "[4, 3, 6, 8]"]),
    "head_dim": (ValueError, (Q, K[..., :4], V), {}, ["key", "8", "4"]),
    "kv_len": (ValueError, (Q, K, V[:, :, :3]), {}, ["value", "6"]),
    "mask's shape": (
        ValueError,
        (Q, K, V),
        {"attn_mask": np.ones((4, 6), bool)},
        ["attn_mask", "[2, 3, 5, 6]", "[4, 6]"],
    ),
    "mask's rank": (ValueError, (Q, K, V), {"attn_mask": np.ones((1, 2, 3, 5, 6), bool)}, ["attn_mask", "broadcasts"]),
    "mask of integers": (TypeError, (Q, K, V), {"attn_mask": np.ones((5, 6), int)}, ["attn_mask", "bool", "int64"]),
    "mask of float64": (ValueError, (Q, K, V), {"attn_mask": np.ones((5, 6))}, ["attn_mask", "float64"]),
    "a fovea.Mask": (TypeError, (Q, K, V), {"attn_mask": fovea.causal()}, ["attn_mask", "Mask"]),
    "groups": (ValueError, (Q, K[:, :2], V[:, :2]), {"enable_gqa": True}, ["key", "divides query's 3", "2"]),
    "groups of no heads": (ValueError, (Q[0, 0], K[0, 0], V[0, 0]), {"enable_gqa": True}, ["query", "heads"]),
    "causal by number": (TypeError, (Q, K, V), {"is_causal": 1}, ["is_causal", "True or False", "int"]),
    "scale": (TypeError, (Q, K, V), {"scale": "1"}, ["scale", "a number", "str"]),
}


@pytest.mark.parametrize(("kind", "arrays", "options", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(kind, arrays, options, parts):
    with raises(kind, *parts):
        fovea.scaled_dot_product_attention(*arrays, **options)
