# SPDX-License-Identifier: Apache-2.0
"""Compares maps of all heads or of parts, scores and received weights with a NumPy softmax in float64."""

import warnings

import numpy as np
import pytest
from problems import BFLOAT16, EXACT, pooled, raises, softmax, tensors, wide

import fovea

SHAPES = {
    "a matrix": ((7, 8), {"kv_len": 11}),
    "heads": ((4, 9, 16), {"kv_heads": 2, "kv_len": 8}),
    "batch": ((2, 3, 70, 8), {"kv_len": 90}),
}
REDUCTIONS = ["sum", "mean", "max"]
PARTS = [{}, {"queries": slice(1, -1)}, {"keys": slice(-6, None)}, {"queries": slice(2, 6), "keys": slice(1, 7)}]


def problem(shape, **more):
    """Returns query, key, a separate mask for every head, and weights in float64."""
    query, key, _ = tensors(shape, **more)
    mask = np.random.default_rng(7).random((*shape[:-1], key.shape[-2])) < 0.6
    mask[..., :3, :4] = False  # cells masked for all heads
    if len(shape) > 2:
        mask[..., 1, 3:6, :4] = False  # cells masked for one head
    return query, key, mask, softmax(query, key, mask)


def over_heads(cells, pairs, heads, reduce):
    """Returns each cell's mean or maximum over heads; with reduce="mean" over heads with visible pairs."""
    if reduce == "mean":
        cells = np.where(pairs > 0, cells, np.nan)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # from cells masked for all heads
        return np.nanmean(cells, axis=-3) if heads == "mean" else np.nanmax(cells, axis=-3)


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize(("shape", "more"), SHAPES.values(), ids=SHAPES)
def test_maps(shape, more, reduce, part):
    query, key, mask, weights = problem(shape, **more)
    cut = (..., part.get("queries", slice(None)), part.get("keys", slice(None)))
    expected, pairs = pooled(weights[cut], mask[cut], 3, 4, reduce)
    options = {"mask": mask, "reduce": reduce, **part}
    found = fovea.map(query, key, (3, 4), **options)
    assert type(found) is np.ndarray
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, **EXACT)
    lse = fovea.Weights(query, key, mask=mask).lse
    np.testing.assert_allclose(fovea.map(query, key, (3, 4), lse=lse, **options), expected, **EXACT)
    if query.ndim == 2:
        expected, pairs = expected[None], pairs[None]
    for head in {0, expected.shape[-3] - 1}:
        one = fovea.map(query, key, (3, 4), head=head, **options)
        np.testing.assert_allclose(one, expected[..., head, :, :], **EXACT)
    for heads in ("mean", "max"):
        together = fovea.map(query, key, (3, 4), heads=heads, **options)
        assert together.dtype == np.float32
        np.testing.assert_allclose(together, over_heads(expected, pairs, heads, reduce), **EXACT)
    at = (query.shape[0] - 1,) * (query.ndim == 4)
    w = fovea.Weights(query, key, mask=mask, batch=at[0] if at else 0, lse=lse)
    cells = w.pool(3, 4, reduce, **part)
    np.testing.assert_allclose(cells, expected[(*at, 0)], **EXACT)


def test_means_of_sums_add_up_to_the_queries():
    """The sums also add up if a cell is fully masked for a head: the cell then counts as 0."""
    query, key, mask, _ = problem((3, 40, 8))
    mask[..., 0] = True
    np.testing.assert_allclose(fovea.map(query, key, (5, 6), mask=mask, heads="mean").sum(), 40, rtol=1e-5)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("heads", ["mean", "max"])
def test_nan_of_one_head_stays(heads, reduce):
    query, key, mask, _ = problem((3, 9, 8))
    query[1, 4] = np.nan
    mask[1, 4] = True
    found = fovea.map(query, key, (9, 3), mask=mask, heads=heads, reduce=reduce)
    assert np.isnan(found[4]).all()
    assert not np.isnan(found[5:]).any()


def test_float64():
    query, key, mask, weights = problem((2, 9, 8), dtype="float64")
    found = fovea.map(query, key, (3, 3), mask=mask, heads="mean")
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, pooled(weights, mask, 3, 3, "sum")[0].mean(0), rtol=1e-12)


def test_passes():
    """A map of all heads takes one pass. A map of a part takes one for the shared lse, or none if lse is passed."""
    query, key, _ = tensors((2, 3, 20, 8))
    calls = fovea._fovea._forward_calls
    for more, passes in [
        ({}, 1),
        ({"heads": "mean", "reduce": "mean"}, 1),
        ({"keys": slice(3)}, 1),
        ({"head": 1}, 1),
        ({"lse": fovea.Weights(query, key).lse}, 0),
    ]:
        before = calls()
        fovea.map(query, key, (2, 2), **more)
        assert calls() - before == passes, more


@pytest.mark.parametrize("dtype", ["float32", BFLOAT16, "float64"], ids=str)
def test_scores(dtype):
    query, key, value = tensors((2, 3, 20, 16), kv_len=30, kv_heads=1, dtype=dtype)
    options = {"mask": fovea.causal(), "softcap": 2.0, "alibi": True, "scale": 0.7}
    visible = fovea.causal().matrix(20, 30)
    biased = fovea.reference.attention_steps(query, key, value, **options).biased_scores[1, 2]
    before = fovea._fovea._forward_calls()
    scores = fovea.Weights(query, key, batch=1, head=2, **options).scores
    assert scores.shape == (20, 30)
    assert len(scores) == 20
    whole = np.asarray(scores)
    assert whole.dtype == (np.float64 if dtype == "float64" else np.float32)
    assert np.array_equal(np.isneginf(whole), ~visible)
    np.testing.assert_allclose(whole[visible], biased[visible], rtol=1e-4, atol=1e-4)
    for index in [3, (4, 5), (slice(2, 7), slice(-3, None)), (slice(None), 0)]:
        assert np.array_equal(scores[index], whole[index]), index
    assert fovea._fovea._forward_calls() == before
    assert repr(scores) == "Weights(20 x 30, batch=1, head=2, mask=causal()).scores"


@pytest.mark.parametrize(("shape", "more"), SHAPES.values(), ids=SHAPES)
def test_received(shape, more):
    query, key, mask, weights = problem(shape, **more)
    found = fovea.received(query, key, mask=mask, recent=3, bins=5)
    assert isinstance(found, fovea.Received)
    sum_, largest, recent, histogram = found
    np.testing.assert_allclose(sum_, weights.sum(-2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(largest, weights.max(-2), **EXACT)
    np.testing.assert_allclose(recent, weights[..., -3:, :].sum(-2), rtol=1e-4, atol=1e-5)
    with np.errstate(divide="ignore"):
        bins = np.clip(np.floor(-np.log2(weights)), 0, 4)
    counts = [((bins == b) & mask).sum(axis=(-2, -1)) for b in range(5)]
    assert np.array_equal(histogram, np.stack(counts, -1))
    assert found.sum is sum_
    assert sum_.dtype == largest.dtype == recent.dtype == np.float32
    assert histogram.dtype == np.int64

    at = tuple(length - 1 for length in shape[:-2])
    own = (0,) * (2 - len(at)) + at
    lse = fovea.attention(query, key, key, mask=mask, return_lse=True)[1]
    w = fovea.Weights(query, key, mask=mask, batch=own[0], head=own[1], lse=lse)
    for of_head, of_all in zip(w.received(recent=3, bins=5), found, strict=True):
        np.testing.assert_allclose(of_head, of_all[at], **EXACT)
    few = fovea.received(query, key, mask=mask, lse=lse)
    np.testing.assert_allclose(few.sum, sum_, **EXACT)
    assert few.recent is few.histogram is None
    assert w.received().recent is None


def test_received_float64():
    query, key, _ = tensors((6, 8), dtype="float64")
    found = fovea.received(query, key)
    assert found.sum.dtype == found.largest.dtype == np.float64
    np.testing.assert_allclose(found.sum, softmax(wide(query), wide(key), np.ones((6, 6), bool)).sum(0), rtol=1e-12)


@pytest.mark.parametrize("heads", [None, "mean", "max"])
def test_nothing_to_map(heads):
    """Without batch items or heads there are no maps."""
    for shape in ((0, 2, 5, 8), (2, 0, 5, 8)):
        query = np.zeros(shape, np.float32)
        for part in ({}, {"queries": slice(1, 5)}):
            cells = fovea.map(query, query, (2, 3), heads=heads, **part)
            assert cells.shape == ((*shape[:2], 2, 3) if heads is None else (shape[0], 2, 3))
            assert cells.dtype == np.float32
            assert np.isnan(cells).all()


def test_empty_parts():
    query, key, _ = tensors((5, 8))
    with raises(ValueError, "queries: expected at least one of 5, got none in slice(3, 3, None)"):
        fovea.map(query, key, (1, 1), queries=slice(3, 3))
    with raises(ValueError, "keys: expected at least one of 5, got none in slice(9, None, None)"):
        fovea.Weights(query, key).pool(1, 1, keys=slice(9, None))
    with raises(TypeError, "queries: expected a slice of integers"):
        fovea.map(query, key, (1, 1), queries=slice("a", None))
    with raises(TypeError, "rows: expected an integer, got str"):
        fovea.Weights(query, key).plot(rows="a", ax=object())
    with raises(ValueError, 'heads: expected "mean", "max" or None'):
        fovea.map(query, key, (1, 1), heads=np.array(["mean", "max"]))
