# SPDX-License-Identifier: Apache-2.0
"""Compares heads() with means of fovea.weights, and tests its errors."""

import numpy as np
import pytest
from problems import raises, tensors

import fovea

EXACT = {"rtol": 3e-5, "atol": 3e-6}


def told_of(weights, visible, blocks):
    """Returns the means of a head's weights in float64; every row has a visible key."""
    q_len, kv_len = weights.shape
    weights = weights.astype(np.float64)
    at = np.arange(q_len) + kv_len - q_len
    near = np.pad(weights, ((0, 0), (1, 1)))
    rows = np.arange(q_len)
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    block = np.searchsorted([b * kv_len // blocks for b in range(blocks)], np.arange(kv_len), side="right")
    return {
        "entropy": -(weights * logs).sum(-1).mean(),
        "even_entropy": np.log(visible.sum(-1)).mean(),
        "maximum": weights.max(-1).mean(),
        "mean_distance": (weights * (at[:, None] - np.arange(kv_len))).sum(-1).mean(),
        "first_key": weights[:, 0].mean(),
        "previous_key": near[rows, at].mean(),
        "own_key": near[rows, at + 1].mean(),
        "next_key": near[rows, at + 2].mean(),
        "block_diagonal": (weights * (block[at][:, None] == block)).sum(-1).mean(),
    }


@pytest.mark.parametrize("shape", [(70, 8), (4, 70, 8), (2, 4, 70, 8)])
@pytest.mark.parametrize("mask", [None, fovea.causal(), fovea.causal() & fovea.window(9, 0)])
def test_heads_are_means_of_their_weights(shape, mask):
    query, key, _ = tensors(shape, kv_len=90)
    found = fovea.heads(query, key, mask=mask, blocks=7)
    assert isinstance(found, fovea.HeadSummary)
    visible = np.ones((70, 90), bool) if mask is None else mask.matrix(70, 90)
    for at in np.ndindex(shape[:-2]):
        batch, head = (0, 0, *at)[-2:]
        weights = fovea.weights(query, key, mask=mask, batch=batch, head=head)
        for name, expected in told_of(weights, visible, 7).items():
            told = getattr(found, name)
            assert (told.shape, told.dtype) == (shape[:-2], np.float32)
            np.testing.assert_allclose(told[at], expected, **EXACT, err_msg=name)


def test_every_option_and_type():
    query, key, _ = tensors((2, 4, 30, 8))
    bias = np.random.default_rng(1).standard_normal((30, 30)).astype(np.float32)
    options = {"mask": fovea.causal(), "softcap": 5.0, "bias": bias, "alibi": True, "sinks": [0, 1, 2, 3]}
    right = fovea.heads(query.astype(np.float64), key.astype(np.float64), **options)
    assert right.entropy.dtype == np.float64
    for found in (fovea.heads(query, key, **options), fovea.heads(query, key, threads=1, **options)):
        for name, told, expected in zip(fovea.HeadSummary.__match_args__, found, right, strict=True):
            np.testing.assert_allclose(told, expected, **EXACT, err_msg=name)


def test_nan_marks_its_head():
    query, key, _ = tensors((2, 3, 20, 8))
    query[1, 2, 7, 0] = np.nan
    for told in fovea.heads(query, key):
        assert np.array_equal(np.isnan(told), [[False] * 3, [False, False, True]])
    assert np.isnan(fovea.heads(query, key, mask=np.zeros((20, 20), bool))).all()


def test_wrong_heads():
    query, key, value = tensors((2, 3, 4, 8), kv_len=5)
    with raises(ValueError, "blocks: expected 1 or more, got 0"):
        fovea.heads(query, key, blocks=0)
    with raises(TypeError, "blocks: expected an integer"):
        fovea.heads(query, key, blocks=1.5)
    with raises(ValueError, "key: expected 4 dimensions as query has"):
        fovea.heads(query, key[0])
    with raises(TypeError, "query: expected an array", "list"):
        fovea.heads([[1.0]], key)
    with pytest.raises(TypeError, match="positional"):
        fovea.heads(query, key, value)
    with pytest.raises(TypeError, match="dropout"):
        fovea.heads(query, key, dropout=fovea.Dropout(0.5))
