# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles options of attention, and copies caches."""

import copy
import pickle

import numpy as np
import pytest
from problems import BFLOAT16, raises, tensors

import fovea

IDS = [0, 0, 1, 1, 1, 2, 2]
VISIBLE = np.random.default_rng(1).random((7, 2)) < 0.5
TABLE = np.random.default_rng(2).standard_normal((8, 4)).astype("float32")

MASKS = {
    "nothing": fovea.Mask(),
    "causal": fovea.causal(),
    "window": fovea.window(2, -1),
    "prefix": fovea.prefix(3),
    "lengths": fovea.key_lengths([7, 4]),
    "documents": fovea.documents(IDS),
    "two documents": fovea.documents([IDS, IDS[::-1]], IDS),
    "dense": fovea.dense(VISIBLE[:, :1]),
    "transposed": fovea.dense(np.repeat(VISIBLE, 4, axis=1)[:, :7].T),
    "joined": (fovea.causal() | fovea.prefix(3)) & fovea.window(3, 1) & fovea.documents(IDS),
}
OPTIONS = {
    "relative": ("relative", fovea.RelativeTable(TABLE, bidirectional=False, max_distance=6)),
    "relative, transposed": ("relative", fovea.RelativeTable(np.ascontiguousarray(TABLE.T).T)),
    "relative, bfloat16": ("relative", fovea.RelativeTable(TABLE.astype(BFLOAT16))),
    "dropout": ("dropout", fovea.Dropout(0.25, seed=2**64 - 1, call=2**32 - 1)),
    **{f"mask, {name}": ("mask", mask) for name, mask in MASKS.items()},
}
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda given, protocol=protocol: pickle.loads(pickle.dumps(given, protocol))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name, way):
    parameter, given = OPTIONS[name]
    made = WAYS[way](given)
    assert type(made) is type(given)
    assert repr(made) == repr(given)
    query, key, value = tensors((2, 4, 7, 16))
    expected = fovea.attention(query, key, value, **{parameter: given})
    assert np.array_equal(fovea.attention(query, key, value, **{parameter: made}), expected, equal_nan=True)
    plain = fovea.attention(query, key, value)
    assert (name == "mask, nothing") == np.array_equal(expected, plain)


@pytest.mark.parametrize("way", WAYS)
def test_only_a_shallow_copy_reads_the_array(way):
    visible, table = np.ones((2, 2), bool), np.zeros((8, 4), "float32")
    mask, relative = WAYS[way]([fovea.dense(visible)])[0], WAYS[way]((fovea.RelativeTable(table),))[0]
    one_by_one = WAYS[way](fovea.dense(visible))
    visible[0, 0] = False
    table[:] = np.arange(8)[:, None]
    assert mask.matrix(2, 2)[0, 0] == (way != "copy")
    assert one_by_one.matrix(2, 2)[0, 0] == (way != "copy")
    query, key, value = tensors((4, 9, 16))
    same = fovea.attention(query, key, value, relative=relative) == fovea.attention(query, key, value)
    assert same.all() == (way != "copy")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "rotary",
    [
        fovea.Rotary(base=500.0, dims=8),
        fovea.Rotary(pairs="interleaved"),
        fovea.Rotary(inverse_frequencies=[1.0, 0.5, 0.25, 0.125, 0.0, 2.0, 3.0, 4.0]),
    ],
    ids=repr,
)
def test_rotary(rotary, way):
    made = WAYS[way](rotary)
    assert repr(made) == repr(rotary)
    rows = tensors((5, 16))[0]
    assert np.array_equal(fovea.apply_rotary(rows, 3, made), fovea.apply_rotary(rows, 3, rotary))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_copies_of_a_cache_are_independent(dtype):
    query, key, value = tensors((2, 1, 16), kv_len=40)
    cache = fovea.KvCache(dtype=dtype, kv_heads=2, head_dim=16)
    assert len(copy.deepcopy(cache)) == 0
    cache.append(key[:, :30], value[:, :30])
    made = copy.deepcopy({"cache": cache})["cache"]
    before = fovea.decode(query, cache)
    assert np.array_equal(fovea.decode(query, made), before)
    cache.append(key[:, 30:], value[:, 30:])
    assert (len(cache), len(made)) == (40, 30)
    assert np.array_equal(fovea.decode(query, made), before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "lenses",
    [fovea.Lenses(statistics=True, top=2), fovea.Lenses(map=(3, 2), reduce="max", pairs=True), fovea.Lenses(top=1)],
    ids=repr,
)
def test_lenses(lenses, way):
    made = WAYS[way](lenses)
    assert repr(made) == repr(lenses)
    query, key, value = tensors((4, 7, 16))
    for one, expected in zip(
        fovea.attention(query, key, value, lenses=made)[1],
        fovea.attention(query, key, value, lenses=lenses)[1],
        strict=True,
    ):
        assert (one is None) == (expected is None)
        assert one is None or np.array_equal(one, expected)


def test_damaged_states():
    for kind, state, *words in (
        (ValueError, ("explain", ("a b",)), "state", "fovea.Mask", "explain"),
        (ValueError, ("and_", (1, 2)), "state", "fovea.Mask", "and_"),
        (ValueError, ("prefix", (-1,)), "prefix: expected", "-1"),
        (TypeError, ("window", (1,)), "window", "right"),
        (TypeError, (), "state"),
        (TypeError, 3, "state", "int"),
    ):
        with raises(kind, *words):
            fovea.Mask.__new__(fovea.Mask).__setstate__(state)
    for state in ((2.0, 1, 0), (float("nan"), 1, 0), (0.5, -1, 0), (0.5, 2**64, 0), ()):
        with pytest.raises((TypeError, ValueError)):
            fovea.Dropout.__new__(fovea.Dropout).__setstate__(state)


@pytest.mark.parametrize("kind", ["Mask", "RelativeTable", "Dropout", "Rotary", "Lenses", "KvCache"])
def test_no_subclasses(kind):
    # Copies would lose their class and attributes.
    with raises(TypeError, "prohibits subclassing"):
        type("Own", (getattr(fovea, kind),), {})
