# SPDX-License-Identifier: Apache-2.0
"""Compares lenses and recomputed weights with a NumPy softmax in float64."""

import numpy as np
import pytest
from problems import BFLOAT16, EXACT, FLOATS, Producer, pooled, softmax, tensors, wide

import fovea

SHAPES = {
    "a matrix": ((7, 8), {"kv_len": 11}),
    "heads": ((4, 9, 16), {"kv_heads": 2, "kv_len": 5}),
    "batch": ((2, 3, 70, 8), {"kv_len": 600}),
}
MASKS = {
    "everything": lambda q_len, kv_len: None,
    "causal": lambda q_len, kv_len: fovea.causal(),
    "window": lambda q_len, kv_len: fovea.causal() & fovea.window(3, 0),
    "an array": lambda q_len, kv_len: np.random.default_rng(3).random((q_len, kv_len)) < 0.4,
}
EVERYTHING = fovea.Lenses(statistics=True, top=4, map=(3, 4), pairs=True)
ROWS = fovea.Lenses(statistics=True, top=2)


def matrices(mask, shape, kv_len):
    """Returns the visible pairs, [q_len, kv_len]."""
    if mask is None:
        return np.ones((shape[-2], kv_len), bool)
    return mask.matrix(shape[-2], kv_len) if isinstance(mask, fovea.Mask) else mask


def assert_seen(seen, weights, visible):
    """Checks all results of the lenses EVERYTHING."""
    q_len, kv_len = weights.shape[-2:]
    sees = np.broadcast_to(visible.any(-1), weights.shape[:-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(weights > 0, weights * np.log(weights), 0).sum(-1)
    distances = np.arange(q_len)[:, None] + kv_len - q_len - np.arange(kv_len)
    mean = np.where(sees, (weights * distances).sum(-1), np.nan)
    variance = np.where(sees, (weights * (distances - mean[..., None]) ** 2).sum(-1), np.nan)
    size = max(kv_len, q_len)
    np.testing.assert_allclose(seen.entropy, entropy, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen.maximum, weights.max(-1), **EXACT)
    np.testing.assert_allclose(seen.mean_distance, mean, rtol=1e-4, atol=1e-5 * size)
    np.testing.assert_allclose(seen.distance_variance, variance, rtol=1e-3, atol=1e-5 * size**2)
    np.testing.assert_allclose(seen.first_key, weights[..., 0], **EXACT)
    assert np.array_equal(seen.maximum_key < 0, ~sees)
    at_maximum = np.take_along_axis(weights, np.maximum(seen.maximum_key, 0)[..., None], -1)[..., 0]
    np.testing.assert_allclose(seen.maximum, at_maximum, **EXACT)
    best = -np.sort(-weights, axis=-1)[..., :4]
    np.testing.assert_allclose(seen.top_weights, best, **EXACT)
    of_keys = np.take_along_axis(weights, np.maximum(seen.top_keys, 0), -1)
    np.testing.assert_allclose(seen.top_weights, np.where(seen.top_keys < 0, 0, of_keys), **EXACT)
    assert np.array_equal((seen.top_keys >= 0).sum(-1), np.minimum(4, np.broadcast_to(visible.sum(-1), sees.shape)))
    expected, pairs = pooled(weights, visible, 3, 4, "sum")
    np.testing.assert_allclose(seen.map, expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(seen.pairs, pairs)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "more"), SHAPES.values(), ids=SHAPES)
def test_against_a_softmax(shape, more, dtype, mask):
    query, key, value = tensors(shape, dtype=dtype, **more)
    kv_len = key.shape[-2]
    mask = mask(shape[-2], kv_len)
    visible = matrices(mask, shape, kv_len)
    weights = softmax(query, key, visible)
    context, seen = fovea.attention(query, key, value, mask=mask, lenses=EVERYTHING)
    assert isinstance(seen, fovea.Seen)
    # With bfloat16 products the context need not be bit-identical to that without lenses.
    np.testing.assert_allclose(wide(context), wide(fovea.attention(query, key, value, mask=mask)), rtol=2e-2, atol=2e-2)
    assert_seen(seen, weights, visible)
    sums = np.float64 if dtype == np.float64 else np.float32
    for name, rest in {"entropy": (), "top_weights": (4,), "first_key": ()}.items():
        array = getattr(seen, name)
        assert type(array) is np.ndarray
        assert array.dtype == sums
        assert array.shape == (*query.shape[:-1], *rest)
    assert seen.map.shape == (*query.shape[:-2], 3, 4)
    assert seen.maximum_key.dtype == seen.top_keys.dtype == seen.pairs.dtype == np.int64

    batch, head = ((0, 0), (0, query.shape[0] - 1), (1, 1))[len(shape) - 2]
    own = weights[(batch, head)[4 - len(shape) :]]
    found = fovea.weights(query, key, mask=mask, batch=batch, head=head)
    assert found.dtype == sums
    np.testing.assert_allclose(found, own, **EXACT)
    w = fovea.Weights(query, key, mask=mask, batch=batch, head=head)
    for reduce in ("sum", "mean", "max"):
        np.testing.assert_allclose(w.pool(3, 4, reduce), pooled(own, visible, 3, 4, reduce)[0], rtol=1e-4, atol=1e-5)
    of_all = fovea.attention(query, key, value, mask=mask, lenses=fovea.Lenses(statistics=True, top=4))[1]
    at = (batch, head)[4 - len(shape) :]
    keys, best = w.top(4)
    np.testing.assert_array_equal(keys, of_all.top_keys[at])
    np.testing.assert_allclose(best, of_all.top_weights[at], **EXACT)
    np.testing.assert_allclose(w.statistics().entropy, of_all.entropy[at], rtol=1e-5, atol=1e-6)
    assert w.statistics().map is None


def test_results():
    query, key, value = tensors((2, 5, 8))
    lens = fovea.Lenses(statistics=True)
    context, lse = fovea.attention(query, key, value, return_lse=True)
    assert type(fovea.attention(query, key, value, lenses=None)) is np.ndarray
    both = fovea.attention(query, key, value, lenses=lens)
    three = fovea.attention(query, key, value, lenses=lens, return_lse=True)
    assert len(both) == 2
    assert len(three) == 3
    np.testing.assert_allclose(three[0], context, **EXACT)
    np.testing.assert_allclose(three[1], lse, **EXACT)
    assert np.array_equal(both[1].entropy, three[2].entropy)
    for name in ("top_keys", "top_weights", "map", "pairs"):
        assert getattr(both[1], name) is None
    seen = fovea.attention(query, key, value, lenses=fovea.Lenses(top=2))[1]
    assert seen.entropy is seen.map is None
    out = np.empty_like(query)
    again, _ = fovea.attention(query, key, value, lenses=lens, out=out)
    assert again is out
    np.testing.assert_allclose(out, context, **EXACT)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_maps(reduce):
    query, key, value = tensors((2, 50, 8), kv_len=90)
    visible = fovea.causal().matrix(50, 90)
    expected, pairs = pooled(softmax(query, key, visible), visible, 6, 7, reduce)
    lens = fovea.Lenses(map=(6, 7), reduce=reduce, pairs=True)
    seen = fovea.attention(query, key, value, mask=fovea.causal(), lenses=lens)[1]
    np.testing.assert_allclose(seen.map, expected, **EXACT)
    assert np.array_equal(seen.pairs, pairs)


def test_ties():
    """On ties, the lowest key comes first."""
    ones = np.ones((4, 8), np.float32)
    seen = fovea.attention(ones, ones, ones, mask=fovea.causal(), lenses=fovea.Lenses(statistics=True, top=3))[1]
    assert np.array_equal(seen.maximum_key, [0, 0, 0, 0])
    assert np.array_equal(seen.top_keys, [[0, -1, -1], [0, 1, -1], [0, 1, 2], [0, 1, 2]])
    np.testing.assert_allclose(seen.entropy, np.log([1, 2, 3, 4]), atol=1e-6)


def test_other_options():
    query, key, value = tensors((2, 9, 8), kv_len=13)
    options = {"mask": fovea.causal(), "softcap": 2.0, "alibi": True, "scale": 0.7, "sinks": [0.5, -0.5]}
    options |= {"bias": np.random.default_rng(1).standard_normal((9, 13)), "alignment": 3}
    steps = fovea.reference.attention_steps(query, key, value, **options)
    expected = steps.weights[0]
    lse = fovea.attention(query, key, value, return_lse=True, **options)[1]
    for head in range(2):
        np.testing.assert_allclose(fovea.weights(query, key, head=head, **options), expected[head], **EXACT)
        np.testing.assert_allclose(fovea.weights(query, key, head=head, lse=lse, **options), expected[head], **EXACT)
        np.testing.assert_allclose(fovea.Weights(query, key, head=head, **options)[2:], expected[head, 2:], **EXACT)


@pytest.mark.parametrize("dtype", ["float32", BFLOAT16], ids=str)
def test_parts_are_bit_identical(dtype):
    query, key, _ = tensors((2, 130, 16), kv_len=700, dtype=dtype)
    whole = fovea.weights(query, key, head=1, mask=fovea.causal())
    w = fovea.Weights(query, key, head=1, mask=fovea.causal())
    assert whole.tobytes() == w[:, :].tobytes() == np.asarray(w).tobytes()
    for rows, cols in [((3, 4), (0, 700)), ((0, 130), (511, 513)), ((17, 99), (100, 650)), ((129, 130), (699, 700))]:
        part = whole[slice(*rows), slice(*cols)]
        assert fovea.weights(query, key, rows=rows, cols=cols, head=1, mask=fovea.causal()).tobytes() == part.tobytes()
        assert w[slice(*rows), slice(*cols)].tobytes() == part.tobytes()
    threads = fovea.weights(query, key, head=1, mask=fovea.causal(), threads=1)
    assert threads.tobytes() == whole.tobytes()


def test_indexing():
    query, key, _ = tensors((6, 8), kv_len=9)
    whole = fovea.weights(query, key)
    w = fovea.Weights(query, key)
    assert w.shape == (6, 9)
    assert len(w) == 6
    for index in [
        *(2, -1, np.int64(3), (2, 3), (-6, -9), (slice(None), 4), (4, slice(None)), (-2, slice(1, -1)), slice(1, 3)),
        *(slice(-3, None), (slice(2, 100), slice(-4, -1)), (slice(None), slice(None)), slice(None), (5,)),
        *((slice(4, 2), slice(None)), (slice(None), slice(9, None)), slice(0, 4, 1)),
    ]:
        found, expected = w[index], whole[index]
        assert np.array_equal(found, expected), index
        assert found.shape == expected.shape, index
        assert type(found) is type(expected), index
    assert np.array_equal(np.stack(list(w)), whole)
    assert np.asarray(w, dtype="float64").dtype == np.float64
    assert np.array_equal(fovea.weights(query, key, rows=slice(-2, None), cols=[1, 4]), whole[-2:, 1:4])


def test_weights_that_fit_in_no_memory():
    # Fails before the pass over all keys, which would take hours.
    rows = np.zeros((1, 20_000_000, 1), np.float32)
    for read in (lambda w: w[:], np.asarray):
        with pytest.raises(MemoryError):
            read(fovea.Weights(rows, rows))


def test_pools_add_up():
    query, key, _ = tensors((3, 100, 16), kv_len=200)
    for mask in (None, fovea.causal()):
        w = fovea.Weights(query, key, mask=mask, head=2)
        np.testing.assert_allclose(w.pool(7, 9).sum(), 100, rtol=1e-5)
        np.testing.assert_allclose(w.pool(100, 1)[:, 0], 1, rtol=1e-5)
        np.testing.assert_allclose(w.received().sum.sum(), 100, rtol=1e-5)
        np.testing.assert_allclose(w.received().sum, w.pool(1, 200)[0], rtol=1e-5)


def test_lse_is_computed_once_and_shared():
    query, key, value = tensors((3, 20, 8))
    before = fovea._fovea._forward_calls()
    w = fovea.Weights(query, key)
    assert fovea._fovea._forward_calls() == before
    _ = w[0], w[1, 2], w.pool(2, 2), w.received(), w.lse
    assert fovea._fovea._forward_calls() == before + 1
    other = fovea.Weights(query, key, head=1, lse=w.lse)
    assert other.lse is w.lse
    assert other[:].tobytes() == fovea.weights(query, key, head=1, lse=w.lse).tobytes()
    assert fovea._fovea._forward_calls() == before + 1
    np.testing.assert_array_equal(w.lse, fovea.attention(query, key, value, return_lse=True)[1])


def test_fully_masked_rows():
    query, key, value = tensors((4, 8), kv_len=3)
    seen = fovea.attention(query, key, value, mask=fovea.causal(), lenses=ROWS)[1]
    assert seen.entropy[0] == seen.maximum[0] == seen.first_key[0] == 0
    assert seen.maximum_key[0] == -1
    assert np.isnan(seen.mean_distance[0])
    assert np.array_equal(seen.top_keys[0], [-1, -1])
    assert not fovea.weights(query, key, mask=fovea.causal())[0].any()


def test_packed_sequences():
    query, key, value = tensors((2, 7, 8), kv_len=9)
    options = {"mask": fovea.causal(), "lenses": ROWS}
    packed = fovea.attention(query, key, value, query_starts=[0, 3, 7], key_starts=[0, 5, 9], **options)[1]
    for q, k in [(slice(0, 3), slice(0, 5)), (slice(3, 7), slice(5, 9))]:
        one = fovea.attention(query[:, q], key[:, k], value[:, k], **options)[1]
        np.testing.assert_allclose(packed.entropy[:, q], one.entropy, **EXACT)
        np.testing.assert_allclose(packed.mean_distance[:, q], one.mean_distance, **EXACT)


def test_other_arrays():
    """Results are NumPy arrays for any input library."""
    query, key, _ = tensors((5, 8))
    whole = fovea.weights(query, key)
    assert fovea.weights(memoryview(query), key).tobytes() == whole.tobytes()
    assert fovea.weights(Producer(query), Producer(key), lse=None).tobytes() == whole.tobytes()
    assert fovea.Weights(memoryview(query), np.asfortranarray(key))[2].tobytes() == whole[2].tobytes()
    assert fovea.weights(np.ones((0, 8), np.float32), key).shape == (0, 5)


def test_repr():
    query, key, _ = tensors((2, 3, 4, 8))
    assert repr(fovea.Lenses(statistics=True)) == "Lenses(statistics=True)"
    assert repr(fovea.Lenses(top=8, map=(256, 128), pairs=True)) == (
        'Lenses(top=8, map=(256, 128), reduce="sum", pairs=True)'
    )
    lens = fovea.Lenses(top=np.int64(8), map=[2, 3], reduce="max")
    assert (lens.statistics, lens.top, lens.map, lens.reduce, lens.pairs) == (False, 8, (2, 3), "max", False)
    assert fovea.Lenses(statistics=True).top is fovea.Lenses(top=1).map is None
    assert repr(fovea.Weights(query, key)) == "Weights(4 x 4)"
    assert repr(fovea.Weights(query, key, batch=1, head=2, mask=fovea.causal() & fovea.window(2, 0))) == (
        "Weights(4 x 4, batch=1, head=2, mask=causal() & window(2, 0))"
    )
    assert repr(fovea.Weights(query, key, mask=np.ones((4, 4), bool))) == "Weights(4 x 4, mask=an array)"
