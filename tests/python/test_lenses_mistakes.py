# SPDX-License-Identifier: Apache-2.0
"""Tests the errors of lenses and weights."""

import numpy as np
import pytest
from problems import raises, tensors

import fovea


def test_wrong_lenses():
    query, key, value = tensors((4, 6, 8))
    with raises(ValueError, "Lenses: expected statistics, top or map"):
        fovea.Lenses()
    with raises(TypeError, "statistics: expected True or False, got int"):
        fovea.Lenses(statistics=1)
    with raises(TypeError, "top: expected an integer"):
        fovea.Lenses(top=2.5)
    for top in (0, -1, 65):
        with raises(ValueError, "top: expected 1 to 64 keys", str(top)):
            fovea.Lenses(top=top)
    with raises(ValueError, "map: expected (rows, columns)", "(3,)"):
        fovea.Lenses(map=(3,))
    with raises(ValueError, "map: expected (rows, columns), each 1 or more", "(0, 3)"):
        fovea.Lenses(map=(0, 3))
    with raises(TypeError, "map: expected"):
        fovea.Lenses(map=3)
    with raises(ValueError, 'reduce: expected "sum", "mean" or "max", got "median"'):
        fovea.Lenses(map=(2, 2), reduce="median")
    with raises(TypeError, 'reduce: expected "sum", "mean" or "max", got int'):
        fovea.Lenses(map=(2, 2), reduce=3)
    with raises(ValueError, "pairs: expected beside map"):
        fovea.Lenses(top=2, pairs=True)
    with raises(ValueError, "reduce: expected beside map"):
        fovea.Lenses(top=2, reduce="max")

    lens = fovea.Lenses(statistics=True)
    with raises(TypeError, "lenses: expected a fovea.Lenses", "list"):
        fovea.attention(query, key, value, lenses=[lens])
    with raises(ValueError, "lenses: expected top of at most kv_len = 6, got 7"):
        fovea.attention(query, key, value, lenses=fovea.Lenses(top=7))
    with raises(ValueError, "lenses: expected map of at most (q_len, kv_len) = (6, 6), got (7, 2)"):
        fovea.attention(query, key, value, lenses=fovea.Lenses(map=(7, 2)))
    with raises(ValueError, "dropout: expected none with lenses", "0.5"):
        fovea.attention(query, key, value, lenses=lens, dropout=fovea.Dropout(0.5, seed=1))
    with raises(ValueError, "map: expected no packed sequences"):
        fovea.attention(query, key, value, lenses=fovea.Lenses(map=(2, 2)), query_starts=[0, 6], key_starts=[0, 6])
    with raises(ValueError, "lenses: expected top of at most kv_len = 6, got 7"):
        fovea.decode(query, key, value, lenses=fovea.Lenses(top=7))


@pytest.mark.parametrize("function", [fovea.weights, fovea.Weights])
def test_wrong_weights(function):
    query, key, _ = tensors((2, 3, 4, 8), kv_len=5)
    with raises(ValueError, "head: expected 0 or more and less than q_heads = 3, got 3"):
        function(query, key, head=3)
    with raises(ValueError, "batch: expected 0 or more and less than batch = 2, got -1"):
        function(query, key, batch=-1)
    with raises(TypeError, "head: expected an integer"):
        function(query, key, head=1.5)
    with raises(ValueError, "key: expected 4 dimensions as query has"):
        function(query, key[0])
    with raises(TypeError, "query: expected an array", "list"):
        function([[1.0]], key)
    with raises(TypeError, "mask: expected a fovea.Mask"):
        function(query, key, mask="causal")
    with pytest.raises(TypeError, match="dropout"):
        function(query, key, dropout=fovea.Dropout(0.5))
    with raises(ValueError, "lse: expected 3 dimensions, one less than query has, got"):
        np.asarray(function(query, key, lse=np.zeros((3, 4), np.float32)))
    with raises(ValueError, "lse: expected [batch, q_heads, q_len] = [2, 3, 4]"):
        np.asarray(function(query, key, lse=np.zeros((2, 3, 5), np.float32)))
    with raises(ValueError, "lse: expected float32 for inputs of float32, got float64"):
        np.asarray(function(query, key, lse=np.zeros((2, 3, 4))))


def test_wrong_indices():
    query, key, _ = tensors((4, 8), kv_len=5)
    w = fovea.Weights(query, key)
    for index, name in [(4, "query"), (-5, "query"), ((0, 5), "key"), ((slice(None), -6), "key")]:
        with raises(IndexError, f"{name}: expected from -", "got"):
            w[index]
    with raises(IndexError, "index: expected at most 2", "3"):
        w[0, 0, 0]
    with raises(ValueError, "query: expected neighbours, a slice without a step, got slice(None, None, 2)"):
        w[::2]
    with raises(TypeError, "key: expected an integer or a slice, got list"):
        w[0, [1, 2]]
    with raises(ValueError, "rows: expected neighbours", "slice(None, None, -1)"):
        fovea.weights(query, key, rows=slice(None, None, -1))
    with raises(ValueError, "cols: expected a first and an end with 0 <= first <= end <= kv_len = 5, got (2, 6)"):
        fovea.weights(query, key, cols=(2, 6))
    with raises(ValueError, "rows: expected a first and an end", "(3, 2)"):
        fovea.weights(query, key, rows=(3, 2))
    with raises(TypeError, "rows: expected a slice of integers, got slice(0.5, None, None)"):
        fovea.weights(query, key, rows=slice(0.5, None))
    with raises(TypeError, "rows: expected an integer, got float"):
        fovea.weights(query, key, rows=(0, 2.5))
    with raises(TypeError, "rows: expected a slice, or a pair", "int"):
        fovea.weights(query, key, rows=3)
    with raises(ValueError, "rows: expected 1 to 4, as many as there are queries, got 5"):
        w.pool(5, 2)
    with raises(ValueError, "columns: expected 1 to 5, as many as there are keys, got 0"):
        w.pool(2, 0)
    with raises(ValueError, "columns: expected 1 to 2, as many as there are keys, got 3"):
        w.pool(2, 3, keys=slice(-2, None))
    with raises(ValueError, "queries: expected neighbours, a slice without a step"):
        w.pool(2, 2, queries=slice(None, None, 2))
    with raises(TypeError, "keys: expected a slice", "int"):
        w.pool(2, 2, keys=3)
    with raises(TypeError, "keys: expected a slice", "int"):
        w.plot(keys=3)
    with raises(IndexError, "query: expected from -4"):
        w.scores[4]
    with raises(ValueError, 'reduce: expected "sum", "mean" or "max"'):
        w.pool(2, 2, "min")
    with raises(ValueError, "recent: expected 1 to q_len = 4 queries, got 5"):
        w.received(recent=5)
    for bins in (0, 4097):
        with raises(ValueError, "bins: expected 1 to 4096, got", str(bins)):
            fovea.received(query, key, bins=bins)
    with raises(ValueError, "lenses: expected top of at most kv_len = 5, got 6"):
        w.top(6)
    with raises(ValueError, "copy: expected True or None"):
        w.__array__(copy=False)


def test_wrong_maps():
    query, key, _ = tensors((2, 3, 4, 8), kv_len=5)
    for size in (3, (3,), (1, 2, 3), (1.5, 2), "ab"):
        with raises(TypeError, "size: expected (rows, columns), two integers, got", repr(size)):
            fovea.map(query, key, size)
    for size in ((0, 1), (5, 1), (1, 6)):
        with raises(ValueError, "size: expected (1, 1) to (4, 5), as many as there are queries and keys", repr(size)):
            fovea.map(query, key, size)
    with raises(ValueError, "size: expected (1, 1) to (2, 5)"):
        fovea.map(query, key, (3, 5), queries=slice(1, 3))
    with raises(ValueError, "queries: expected neighbours, a slice without a step"):
        fovea.map(query, key, (1, 1), queries=slice(None, None, -1))
    with raises(TypeError, "keys: expected a slice or None, got tuple"):
        fovea.map(query, key, (1, 1), keys=(0, 3))
    for more in ({}, {"head": 1}):
        with raises(ValueError, 'reduce: expected "sum", "mean" or "max", got "median"'):
            fovea.map(query, key, (1, 1), reduce="median", **more)
    with raises(ValueError, "head: expected 0 or more and less than q_heads = 3, got 3"):
        fovea.map(query, key, (1, 1), head=3)
    with raises(ValueError, 'heads: expected "mean", "max" or None, got \'sum\''):
        fovea.map(query, key, (1, 1), heads="sum")
    with raises(ValueError, "heads: expected None beside head=1, got 'mean'"):
        fovea.map(query, key, (1, 1), head=1, heads="mean")
    with raises(ValueError, "lse: expected [batch, q_heads, q_len] = [2, 3, 4]"):
        fovea.map(query, key, (1, 1), lse=np.zeros((2, 3, 5), np.float32))
    with pytest.raises(TypeError, match="dropout"):
        fovea.map(query, key, (1, 1), dropout=fovea.Dropout(0.5))
