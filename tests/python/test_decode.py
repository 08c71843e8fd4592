# SPDX-License-Identifier: Apache-2.0
"""Tests decode, KvCache and rotary embedding."""

import threading
import time

import numpy as np
import pytest
from problems import BFLOAT16, FLOATS, assert_as_exact, raises, tensors, wide

import fovea


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1, 64), (8, 1, 64), (2, 8, 3, 64)], ids=str)
def test_as_exact_as_attention(shape, dtype):
    query, key, value = tensors(shape, kv_len=300, kv_heads=2 if len(shape) > 2 else None, dtype=dtype)
    for options in ({}, {"mask": fovea.causal(), "softcap": 3.0}, {"alibi": True, "mask": fovea.window(100, 0)}):
        assert_as_exact(fovea.decode(query, key, value, **options), query, key, value, **options)


def test_out_and_lse():
    query, key, value = tensors((4, 1, 16), kv_len=50)
    out = np.empty((4, 1, 16), np.float32)
    context, lse = fovea.decode(query, key, value, out=out, return_lse=True)
    assert context is out
    _, expected = fovea.attention(query, key, value, return_lse=True)
    np.testing.assert_allclose(lse, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_cache(dtype):
    query, key, value = tensors((2, 8, 1, 16), kv_len=40, kv_heads=2, value_dim=12)
    cache = fovea.KvCache(dtype=dtype, batch=2, kv_heads=2, head_dim=16, value_dim=12)
    for begin, end in [(0, 30), (30, 31), (31, 31), (31, 40)]:
        cache.append(key[:, :, begin:end], value[:, :, begin:end])
        assert len(cache) == cache.length == end <= cache.capacity
    stored = BFLOAT16 if dtype == "bfloat16" else dtype
    assert np.array_equal(wide(cache.key()), wide(key.astype(stored)))
    assert np.array_equal(wide(cache.value()), wide(value.astype(stored)))
    context = fovea.decode(query, cache)
    assert context.shape == (2, 8, 1, 12)
    assert np.array_equal(context, fovea.decode(query, key.astype(stored), value.astype(stored)))
    masked = fovea.decode(query, cache, mask=fovea.window(7, 0), return_lse=True)[0]
    assert not np.array_equal(context, masked)


def test_cache_of_one_sequence():
    query, key, value = tensors((4, 1, 16), kv_len=9)
    cache = fovea.KvCache(kv_heads=4, head_dim=16, capacity=10)
    cache.append(key, value)
    assert np.array_equal(fovea.decode(query, cache), fovea.decode(query, key, value))
    fork = cache.fork(5)
    assert (len(fork), len(cache)) == (5, 9)
    cache.truncate(3)
    assert np.array_equal(fovea.decode(query, fork), fovea.decode(query, key[:, :5], value[:, :5]))
    assert np.array_equal(fovea.decode(query, cache), fovea.decode(query, key[:, :3], value[:, :3]))
    cache.reserve(20)
    assert cache.capacity >= 20
    assert cache.bytes > 0
    assert cache.dtype == "float32"
    assert repr(fork) == (
        'KvCache(dtype="float32", batch=1, kv_heads=4, head_dim=16, value_dim=16, length=5, capacity=10)'
    )


def test_full_cache():
    cache = fovea.KvCache(head_dim=4, capacity=3)
    rows = np.ones((2, 4), np.float32)
    cache.append(rows, rows)
    with pytest.raises(fovea.CacheFull, match="3"):
        cache.append(rows, rows)
    assert len(cache) == 2
    assert issubclass(fovea.CacheFull, RuntimeError)


def test_cache_in_use():
    # Another thread must not change the cache while a long call reads it.
    query = np.ones((1, 64, 64), np.float32)
    rows = np.ones((1, 60000, 64), np.float32)
    cache = fovea.KvCache(head_dim=64)
    cache.append(rows, rows)
    thread = threading.Thread(target=lambda: [fovea.decode(query, cache, threads=1) for _ in range(5)])
    thread.start()
    refused = 0
    while thread.is_alive():
        try:
            cache.append(rows[:, :1], rows[:, :1])
        except RuntimeError as error:
            refused += "another thread" in str(error)
    thread.join()
    assert refused > 0
    cache.append(rows[:, :1], rows[:, :1])

    reading = threading.Event()

    def read():
        reading.set()
        for _ in range(20):
            fovea.decode(query, cache, threads=1)

    class Late:
        """An array whose conversion lets another thread begin to read the cache."""

        def __dlpack__(self, **options):
            thread.start()
            reading.wait()
            time.sleep(0.02)
            return rows[:, :1].__dlpack__(**options)

        def __dlpack_device__(self):
            return rows.__dlpack_device__()

    thread = threading.Thread(target=read)
    with raises(RuntimeError, "another thread"):
        cache.append(Late(), rows[:, :1])
    thread.join()


ROWS = np.ones((2, 3, 4), np.float32)
REFUSED = {
    "dtype": (ValueError, lambda: fovea.KvCache(head_dim=4, dtype="float64"), ["dtype", "float64"]),
    "head_dim": (ValueError, lambda: fovea.KvCache(head_dim=-1), ["head_dim", "-1"]),
    "no array": (TypeError, lambda: _cache().append([[1.0]], ROWS), ["key", "list"]),
    "heads": (ValueError, lambda: _cache().append(ROWS[:1], ROWS[:1]), ["key", "[1, 1, 3, 4]"]),
    "lengths": (ValueError, lambda: _cache().append(ROWS, ROWS[:, :2]), ["value"]),
    "ranks": (ValueError, lambda: _cache().append(ROWS, ROWS[None]), ["value", "3 dimensions"]),
    "truncate": (ValueError, lambda: _cache().truncate(1), ["length: expected 0 to 0 tokens", "1"]),
    "fork": (ValueError, lambda: _cache().fork(1), ["prefix_length: expected 0 to 0 tokens", "1"]),
    "value too": (TypeError, lambda: fovea.decode(ROWS, _cache(), ROWS), ["value", "KvCache"]),
    "no value": (TypeError, lambda: fovea.decode(ROWS, ROWS), ["decode()", "'value'"]),
    "query's batch": (ValueError, lambda: fovea.decode(np.ones((2, 2, 1, 4), "f4"), _cache()), ["batch", "2"]),
}


def _cache():
    return fovea.KvCache(kv_heads=2, head_dim=4)


@pytest.mark.parametrize(("kind", "call", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(kind, call, parts):
    with raises(kind, *parts):
        call()


def rotated(x, positions, base=10000.0, dims=None, interleaved=False):
    """Rotary embedding in NumPy (Su et al. 2021, eq. 34)."""
    dims = dims or x.shape[-1]
    angles = np.asarray(positions)[..., None] * base ** (-2 * np.arange(dims // 2) / dims)
    first, second = (
        (np.arange(0, dims, 2), np.arange(1, dims, 2))
        if interleaved
        else (np.arange(dims // 2), np.arange(dims // 2, dims))
    )
    result = wide(x).copy()
    a, b = result[..., first].copy(), result[..., second].copy()
    result[..., first] = a * np.cos(angles) - b * np.sin(angles)
    result[..., second] = a * np.sin(angles) + b * np.cos(angles)
    return result


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("options", [{}, {"pairs": "interleaved"}, {"base": 500.0, "dims": 4}], ids=repr)
def test_rotary(options, dtype):
    x = tensors((2, 3, 5, 8), dtype=dtype)[0]
    kinds = {"interleaved": options.get("pairs") == "interleaved"} | {
        name: options[name] for name in ("base", "dims") if name in options
    }
    tolerance = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-14}[dtype.name]
    rotary = fovea.Rotary(**options)
    for positions, each in [(7, 7 + np.arange(5)), ([3, 1, 4, 1, 5], [3, 1, 4, 1, 5])]:
        found = fovea.apply_rotary(x, positions, rotary)
        assert found.dtype == dtype
        np.testing.assert_allclose(wide(found), rotated(x, each, **kinds), rtol=tolerance, atol=tolerance)


def test_rotary_in_append():
    _, key, value = tensors((2, 1, 8), kv_len=6)
    rotary = fovea.Rotary(base=100.0)
    cache = fovea.KvCache(kv_heads=2, head_dim=8)
    cache.append(key[:, :4], value[:, :4], rotary=rotary)
    cache.append(key[:, 4:], value[:, 4:], rotary=rotary)
    np.testing.assert_allclose(cache.key()[0], rotated(key, np.arange(6), base=100.0), rtol=1e-5, atol=1e-6)


def test_rotary_refuses():
    assert repr(fovea.Rotary(dims=4)) == 'Rotary(base=10000, dims=4, pairs="halves")'
    with raises(ValueError, "pairs", "quarters"):
        fovea.Rotary(pairs="quarters")
    with raises(TypeError, "positions", "float"):
        fovea.apply_rotary(ROWS, [0.5], fovea.Rotary())
    with raises(ValueError, "positions"):
        fovea.apply_rotary(ROWS, [1, 2], fovea.Rotary())


def test_lenses_of_a_token():
    """Lens results equal those of attention(), with and without a cache."""
    query, key, value = tensors((2, 4, 1, 16), kv_heads=2, kv_len=40)
    cache = fovea.KvCache(batch=2, kv_heads=2, head_dim=16)
    cache.append(key, value)
    lens = fovea.Lenses(statistics=True, top=3, map=(1, 5))
    context, expected = fovea.attention(query, key, value, lenses=lens)
    for seen_context, seen in (
        fovea.decode(query, cache, lenses=lens),
        fovea.decode(query, key, value, lenses=lens),
        fovea.decode(query, cache, lenses=lens, return_lse=True)[::2],
    ):
        np.testing.assert_allclose(seen_context, context, rtol=1e-5, atol=1e-6)
        assert np.array_equal(seen.top_keys, expected.top_keys)
        assert np.array_equal(seen.maximum_key, expected.maximum_key)
        for name in ("entropy", "maximum", "mean_distance", "distance_variance", "first_key", "top_weights", "map"):
            np.testing.assert_allclose(getattr(seen, name), getattr(expected, name), rtol=1e-5, atol=1e-6, err_msg=name)
