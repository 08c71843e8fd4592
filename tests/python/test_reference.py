# SPDX-License-Identifier: Apache-2.0
"""Tests fovea.reference: the oracle and its steps."""

import numpy as np
import pytest
from problems import BFLOAT16, FLOATS, raises, tensors, wide

import fovea


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_dtype_is_computed_in_float64(dtype):
    query, key, value = tensors((2, 3, 5, 8), dtype=dtype)
    context, lse = fovea.reference.attention(query, key, value, return_lse=True, mask=fovea.causal())
    assert context.dtype == lse.dtype == np.float64
    assert context.shape == (2, 3, 5, 8)
    same = fovea.attention(wide(query), wide(key), wide(value), mask=fovea.causal())
    assert np.array_equal(context, same)


def test_steps():
    query, key, value = tensors((2, 5, 8), kv_len=7, dtype="float64")
    steps = fovea.reference.attention_steps(query, key, value, mask=fovea.causal(), softcap=2.0, alibi=True)
    for name in ("scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores", "weights"):
        assert getattr(steps, name).shape == (1, 2, 5, 7)
    np.testing.assert_allclose(steps.scores[0], query @ key.swapaxes(1, 2), rtol=1e-13)
    np.testing.assert_allclose(steps.scaled_scores, steps.scores / np.sqrt(8), rtol=1e-13)
    np.testing.assert_allclose(steps.softcapped_scores, 2 * np.tanh(steps.scaled_scores / 2), rtol=1e-13)
    assert np.array_equal(steps.visible[0, 0], fovea.causal().matrix(5, 7))
    assert np.all(steps.masked_scores[~steps.visible] == -np.inf)
    np.testing.assert_allclose(steps.weights.sum(-1), np.ones((1, 2, 5)), rtol=1e-13)
    np.testing.assert_allclose(steps.context[0], steps.weights[0] @ value, rtol=1e-13)
    assert not steps.weights.flags.writeable


def test_absent_steps():
    steps = fovea.reference.attention_steps(*tensors((3, 4)), scale=1.0)
    assert steps.scaled_scores is None
    assert steps.softcapped_scores is None
    assert steps.biased_scores is None
    assert steps.masked_scores is None


def test_arrays_outlive_their_steps():
    query, key, value = tensors((3, 4))
    weights = fovea.reference.attention_steps(query, key, value).weights
    copies = [fovea.reference.attention_steps(query, key, value).weights for _ in range(100)]
    assert all(np.array_equal(weights, copy) for copy in copies)


@pytest.mark.parametrize("arithmetic", ["float32", "float16", "bfloat16"])
def test_arithmetic(arithmetic):
    dtype = BFLOAT16 if arithmetic == "bfloat16" else arithmetic
    query, key, value = tensors((4, 8), dtype=dtype)
    steps = fovea.reference.attention_steps(query, key, value, arithmetic=arithmetic)
    assert steps.scores.dtype == np.float32
    oracle = fovea.reference.attention(query, key, value)
    assert 0 < np.abs(steps.context[0, 0] - oracle).max() < 0.05


def test_normalizations():
    query, key, value = tensors((4, 8), dtype="float64")
    scores = query @ key.T / np.sqrt(8)
    found = fovea.reference.attention_steps(query, key, value, normalization="sum").weights[0, 0]
    np.testing.assert_allclose(found, scores / scores.sum(-1, keepdims=True), rtol=1e-12)
    found = fovea.reference.attention_steps(100 * query, key, value, scale=1e3, normalization="softmax_unshifted")
    assert np.isnan(found.weights).any()


def test_refuses():
    query, key, value = tensors((4, 8))
    with raises(ValueError, "normalization", '"softmax"', '"sum"', '"relu"'):
        fovea.reference.attention_steps(query, key, value, normalization="relu")
    with raises(TypeError, "arithmetic", "int"):
        fovea.reference.attention_steps(query, key, value, arithmetic=64)
    with raises(TypeError, "attention_steps()", "'return_lse'"):
        fovea.reference.attention_steps(query, key, value, return_lse=True)
    with raises(TypeError, "query", "int64"):
        fovea.reference.attention(np.ones((4, 8), int), key, value)
    with raises(ValueError, "key", "8", "7"):
        fovea.reference.attention(query, key[:, :7], value)
