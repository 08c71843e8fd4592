# SPDX-License-Identifier: Apache-2.0
"""Compares mask rules with their definitions in NumPy."""

import gc

import numpy as np
import pytest
from problems import raises, tensors

import fovea

IDS = [0, 0, 1, 1, 1, 2, 2]


def grid(q_len, kv_len, offset):
    return np.arange(q_len)[:, None] + offset, np.arange(kv_len)


# Each rule and its definition, for 5 queries at i + offset and 7 keys at j.
RULES = {
    "Mask()": (fovea.Mask(), lambda i, j: j >= 0 * i),
    "causal()": (fovea.causal(), lambda i, j: j <= i),
    "window(2, 1)": (fovea.window(2, 1), lambda i, j: (i - 2 <= j) & (j <= i + 1)),
    "window(-1, 0)": (fovea.window(-1, 0), lambda i, j: j <= i),
    "window(1, -1)": (fovea.window(1, -1), lambda i, j: j >= i - 1),
    "prefix(3)": (fovea.prefix(3), lambda i, j: (j < 3) & (i == i)),
    "key_lengths(6)": (fovea.key_lengths(6), lambda i, j: (j < 6) & (i == i)),
    "causal() & window(2, 0)": (fovea.causal() & fovea.window(2, 0), lambda i, j: (j <= i) & (j >= i - 2)),
    "(causal() | prefix(3))": (fovea.causal() | fovea.prefix(3), lambda i, j: (j <= i) | (j < 3)),
    "(causal() | prefix(3)) & window(1, 1)": (
        (fovea.causal() | fovea.prefix(3)) & fovea.window(1, 1),
        lambda i, j: ((j <= i) | (j < 3)) & (j >= i - 1) & (j <= i + 1),
    ),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("offset", [0, 2, -3])
def test_matrix(name, offset):
    mask, rule = RULES[name]
    assert np.array_equal(mask.matrix(5, 7, alignment=offset), rule(*grid(5, 7, offset)))


@pytest.mark.parametrize("name", RULES)
def test_repr(name):
    assert repr(RULES[name][0]) == name


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("offset", [0, 2, -3])
def test_attention_applies_the_matrix(name, offset):
    mask, _ = RULES[name]
    query, key, value = tensors((2, 5, 8), kv_len=7)
    by_rule = fovea.attention(query, key, value, mask=mask, alignment=offset)
    by_matrix = fovea.attention(query, key, value, mask=mask.matrix(5, 7, alignment=offset))
    np.testing.assert_allclose(by_rule, by_matrix, rtol=1e-6, atol=1e-6)


def test_default_alignment_is_bottom_right():
    assert np.array_equal(fovea.causal().matrix(2, 5), [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    assert np.array_equal(fovea.causal().matrix(2, 5, alignment="top-left"), [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
    # key_lengths shifts the default alignment.
    mask = fovea.causal() & fovea.key_lengths(4)
    assert np.array_equal(mask.matrix(2, 5), [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])


@pytest.mark.parametrize("ids", [IDS, tuple(IDS), np.array(IDS), np.array(IDS, np.int32), [IDS, IDS]], ids=repr)
def test_documents(ids):
    same = np.equal.outer(IDS, IDS)
    batch = 2 if np.ndim(ids) == 2 else 1
    assert np.array_equal(fovea.documents(ids).matrix(7, 7, batch=batch, item=batch - 1), same)
    assert np.array_equal(fovea.documents(IDS[2:], IDS).matrix(5, 7), same[2:])
    assert repr(fovea.documents(ids)) == "documents(ids)"


def test_a_length_of_any_integer_type():
    class Length:
        ndim = None  # as attributes of other libraries may be

        def __index__(self):
            return 2

    for length in (2, np.int32(2), Length()):
        assert np.array_equal(fovea.key_lengths(length).matrix(1, 3), [[1, 1, 0]])


def test_batches_and_heads():
    lengths = fovea.key_lengths([2, 4])
    assert np.array_equal(lengths.matrix(1, 5, batch=2, item=1), [[1, 1, 1, 1, 0]])
    per_head = np.random.default_rng(3).random((2, 3, 4, 5)) < 0.5
    for item, head in np.ndindex(2, 3):
        found = fovea.dense(per_head).matrix(4, 5, batch=2, q_heads=3, item=item, head=head)
        assert np.array_equal(found, per_head[item, head])


def test_dense_keeps_and_reads_its_array():
    visible = np.ones((5, 7), bool)
    mask = fovea.dense(visible) & fovea.causal()
    visible[:, 0] = False
    assert not mask.matrix(5, 7)[:, 0].any()
    mask = fovea.dense(np.arange(35).reshape(5, 7) % 3 == 0)
    gc.collect()
    np.zeros((5, 7), bool)
    assert np.array_equal(mask.matrix(5, 7), np.arange(35).reshape(5, 7) % 3 == 0)


@pytest.mark.parametrize("shape", [(), (7,), (5, 1), (1, 7), (1, 1, 5, 7)], ids=str)
def test_dense_broadcasts(shape):
    visible = np.random.default_rng(5).random(shape) < 0.5
    assert np.array_equal(fovea.dense(visible).matrix(5, 7), np.broadcast_to(visible, (1, 1, 5, 7))[0, 0])


def test_immutable_and_shared():
    left = fovea.causal()
    joined = left & fovea.window(1, 0)
    assert repr(left) == "causal()"
    assert repr(joined) == "causal() & window(1, 0)"
    masks = [joined]
    for _ in range(20):
        masks.append(fovea.window(3, 3) & masks[-1])
    assert repr(masks[-1]).count("window(3, 3)") == 20


def test_objects_that_are_not_masks():
    with raises(TypeError, "unsupported operand"):
        fovea.causal() & True
    with raises(TypeError, "expected a fovea.Mask", "NumPy"):
        fovea.causal() | np.True_
    with raises(ValueError, "window: expected", "-2"):
        fovea.window(-2, 0)
    with raises(ValueError, "prefix: expected", "-1"):
        fovea.prefix(-1)
    with raises(TypeError, "key_lengths: expected a list or an array of integers, got float"):
        fovea.key_lengths(1.5)
    with raises(TypeError, "key_lengths: expected an integer, got str"):
        fovea.key_lengths(["a"])
    with raises(TypeError, "query_ids: expected integers"):
        fovea.documents([0.5, 1.0])
    with raises(TypeError, "dense: expected an array of bool, got float64"):
        fovea.dense(np.ones((2, 2)))
    with raises(TypeError, "dense: expected an array", "got list"):
        fovea.dense([[True]])
    with raises(ValueError, "key_lengths: expected lengths from 0 to kv_len = 5, got 6"):
        fovea.key_lengths(6).matrix(2, 5)
    with raises(ValueError, "item, head: expected", "got 1 and 0"):
        fovea.causal().matrix(2, 5, item=1)
    with raises(ValueError, "at most", "rules"):
        mask = fovea.causal()
        for _ in range(7):
            mask = mask & mask
