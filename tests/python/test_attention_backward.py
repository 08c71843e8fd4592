# SPDX-License-Identifier: Apache-2.0
"""Compares fovea.attention_backward with the reference's gradients, and those with finite differences."""

import array
import os
import subprocess
import sys

import numpy as np
import pytest
from problems import (
    BFLOAT16,
    FLOATS,
    GRADIENTS,
    Producer,
    assert_gradients_as_exact,
    gradients_of,
    raises,
    tensors,
    wide,
)

import fovea

RANDOM = np.random.default_rng(11)
Q_LEN, KV_LEN = 7, 19
TABLE = RANDOM.standard_normal((8, 4)).astype("float32")
VISIBLE = RANDOM.random((2, 1, Q_LEN, KV_LEN)) < 0.6
OPTIONS = {
    "plain": {},
    "causal": {"mask": fovea.causal()},
    "window from the top left": {"mask": fovea.window(2, 4), "alignment": "top-left"},
    "key lengths": {"mask": fovea.key_lengths([19, 8])},
    "dense": {"mask": VISIBLE},
    "scale": {"scale": 0.7},
    "softcap": {"softcap": 1.5},
    "bias": {"bias": RANDOM.standard_normal((2, 4, Q_LEN, KV_LEN)).astype("float32")},
    "bias that repeats": {"bias": RANDOM.standard_normal((4, 1, KV_LEN)).astype("float32")},
    "bias that masks": {"bias": np.where(VISIBLE, 0.5, -np.inf).astype("float32")},
    "alibi": {"alibi": True},
    "relative": {"relative": fovea.RelativeTable(TABLE, max_distance=16)},
    "sinks": {"sinks": [0.5, -1.0, 2.0, 0.0]},
    "dropout": {"dropout": fovea.Dropout(0.3, seed=5, call=2)},
    "all": {
        "mask": fovea.causal() | fovea.prefix(3),
        "scale": 0.4,
        "softcap": 5.0,
        "bias": RANDOM.standard_normal((KV_LEN,)).astype("float32"),
        "alibi": True,
        "relative": fovea.RelativeTable(TABLE, max_distance=16),
        "sinks": [0.5, -1.0, 2.0, 0.0],
        "alignment": [3, 12],
        "dropout": fovea.Dropout(0.1, seed=6),
    },
}


def normal(*shape, dtype="float32", seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def problem(dtype="float32"):
    """Returns query, key, value, grad_context and grad_lse, with grouped heads and value_dim != head_dim."""
    inputs = tensors((2, 4, Q_LEN, 24), kv_len=KV_LEN, kv_heads=2, value_dim=17, dtype=dtype)
    sums = "float64" if dtype == "float64" else "float32"
    return *inputs, normal(2, 4, Q_LEN, 17, dtype=dtype), normal(2, 4, Q_LEN, dtype=sums, seed=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_as_exact_as_the_reference(dtype, options):
    *inputs, grad_context, grad_lse = problem(dtype)
    if dtype == "float64" and "bias" in options:  # the gradient of a float32 bias would be rounded
        options = options | {"bias": wide(options["bias"])}
    for of_lse in (None, grad_lse):
        found = gradients_of(*inputs, grad_context, of_lse, **options)
        assert [g.dtype for g in found] == [dtype] * 3
        assert_gradients_as_exact(found, *inputs, grad_context, of_lse, **options)


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("function", [gradients_of, fovea.reference.attention_gradients])
def test_ranks(rank, function):
    query, key, value = tensors((2, 3, 5, 8)[4 - rank :], kv_len=6, value_dim=4)
    grad_context, grad_lse = normal(*query.shape[:-1], 4), normal(*query.shape[:-1])
    found = function(query, key, value, grad_context=grad_context, grad_lse=grad_lse)
    whole = [a.reshape((1,) * (4 - a.ndim) + a.shape) for a in (query, key, value, grad_context)]
    right = gradients_of(*whole, grad_lse.reshape(whole[0].shape[:-1]))
    for one, other in zip(found, right, strict=True):
        assert one.shape == other.shape[4 - rank :]
        np.testing.assert_allclose(one, other.reshape(one.shape), rtol=1e-5, atol=1e-6)


def loss(query, key, value, grad_context, grad_lse, **options):
    context, lse = fovea.reference.attention(query, key, value, return_lse=True, **options)
    return (context * grad_context).sum() + (lse * grad_lse).sum()


def test_differences():
    """Every element of every gradient equals the central difference of the loss."""
    query, key, value = tensors((2, 3, 4), kv_len=5, value_dim=2, dtype="float64")
    grad_context, grad_lse = normal(2, 3, 2, dtype="float64"), normal(2, 3, dtype="float64")
    inputs = {
        "query": query,
        "key": key,
        "value": value,
        "bias": normal(2, 1, 5, dtype="float64"),
        "relative": normal(4, 2, dtype="float64"),
        "sinks": normal(2, dtype="float64"),
    }
    others = {"mask": fovea.causal(), "softcap": 2.0, "dropout": fovea.Dropout(0.4, seed=1)}

    def call(function, given):
        tensors = given["query"], given["key"], given["value"]
        options = {"bias": given["bias"], "sinks": given["sinks"], "relative": fovea.RelativeTable(given["relative"])}
        return function(*tensors, grad_context=grad_context, grad_lse=grad_lse, **options, **others)

    found = call(gradients_of, inputs)
    for name, numbers in inputs.items():
        gradient = getattr(found, name)
        assert gradient.shape == numbers.shape
        for index in np.ndindex(numbers.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = numbers.copy()
                moved[index] += step
                sides.append(call(loss, inputs | {name: moved}))
            assert abs((sides[0] - sides[1]) / 2e-6 - gradient[index]) < 1e-7, (name, index)


def test_gradients_through_weights():
    """A loss on the weights; only the reference supports it."""
    query, key, value = tensors((3, 4), kv_len=5, dtype="float64")
    where = normal(3, 5, dtype="float64")
    found = fovea.reference.attention_gradients(query, key, value, grad_weights=where, mask=fovea.causal())
    assert np.array_equal(found.value, np.zeros_like(value))

    def loss_of(key):
        return (fovea.reference.attention_steps(query, key, value, mask=fovea.causal()).weights * where).sum()

    for index in np.ndindex(key.shape):
        step = np.zeros_like(key)
        step[index] = 1e-6
        assert abs((loss_of(key + step) - loss_of(key - step)) / 2e-6 - found.key[index]) < 1e-7


def test_packed_sequences():
    query, key, value = tensors((2, 11, 8), kv_len=16)
    grad = normal(2, 11, 8)
    starts = {"query_starts": [0, 4, 4, 11], "key_starts": [0, 7, 9, 16]}
    found = gradients_of(query, key, value, grad, mask=fovea.causal(), **starts)
    for q, k in ((slice(0, 4), slice(0, 7)), (slice(4, 11), slice(9, 16))):
        right = gradients_of(query[:, q], key[:, k], value[:, k], grad[:, q], mask=fovea.causal())
        np.testing.assert_allclose(found.query[:, q], right.query, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.key[:, k], right.key, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.value[:, k], right.value, rtol=1e-5, atol=1e-6)
    assert np.array_equal(found.key[:, 7:9], np.zeros((2, 2, 8)))


def test_masked_keys_have_zero_gradients_and_no_effect():
    visible = np.ones((5, 9), bool)
    visible[2] = visible[:, 4] = False
    query, key, value = tensors((2, 5, 8), kv_len=9)
    grad = normal(2, 5, 8)
    right = gradients_of(query, key, value, grad, mask=visible)
    for array_, at in ((query, 2), (key, 4), (value, 4), (grad, 2)):
        array_[:, at] = np.nan
    found = gradients_of(query, key, value, grad, mask=visible)
    for one, other in zip(found, right, strict=True):
        assert np.array_equal(one, other)
    assert not found.query[:, 2].any()
    assert not found.key[:, 4].any()
    assert not found.value[:, 4].any()


def test_threads_and_bits():
    inputs = tensors((2, 4, 70, 16), kv_len=300, kv_heads=2)
    grad = normal(2, 4, 70, 16)
    options = {"mask": fovea.causal(), "bias": normal(70, 300), "dropout": fovea.Dropout(0.2, seed=3)}
    one = gradients_of(*inputs, grad, threads=1, **options)
    for threads in (2, 3, 8):
        other = gradients_of(*inputs, grad, threads=threads, **options)
        assert all(
            getattr(one, name) is getattr(other, name) or np.array_equal(getattr(one, name), getattr(other, name))
            for name in GRADIENTS
        )


def test_uninitialized_memory_is_not_read():
    """Memory beyond the last row or key is not read: here malloc fills it with NaN."""
    program = """if True:
        import numpy as np, fovea
        random = np.random.default_rng(1).standard_normal
        for q_len, kv_len in ((7, 19), (1, 64), (50, 33)):
            query, key, value, bias = (random(s).astype("float32") for s in (
                (4, q_len, 24), (2, kv_len, 24), (2, kv_len, 17), (4, q_len, kv_len)))
            for options in ({}, {"bias": bias}, {"bias": bias, "softcap": 2.0, "alibi": True, "mask": fovea.causal()},
                            {"bias": bias, "dropout": fovea.Dropout(0.5, seed=1), "sinks": [0.0] * 4}):
                context, lse = fovea.attention(query, key, value, return_lse=True, **options)
                found = fovea.attention_backward(query, key, value, context, lse, context, **options)
                assert all(np.isfinite(one).all() for one in found), (q_len, list(options))
                assert found.bias is None or np.isfinite(found.bias).all(), (q_len, list(options))
    """
    for byte in ("1", "128"):  # glibc's malloc fills memory with the complement: 0xfe or 0x7f
        environment = {**os.environ, "MALLOC_PERTURB_": byte}
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_the_result():
    *inputs, grad_context, _ = problem()
    found = gradients_of(*inputs, grad_context, bias=np.zeros((1, KV_LEN), "float32"))
    assert type(found) is fovea.Gradients
    query, key, value = found
    assert query is found.query
    assert key is found.key
    assert value is found.value
    assert found.bias.shape == (1, KV_LEN)
    assert found.relative is None
    assert found.sinks is None
    assert repr(found).startswith("fovea.Gradients(query=array(")


def test_wanted():
    *inputs, grad_context, _ = problem()
    options = {"bias": normal(Q_LEN, KV_LEN), "sinks": [0.1, 0.2, 0.3, 0.4]}
    everything = gradients_of(*inputs, grad_context, **options)
    for names in ([], ["query"], ("key", "bias"), ["sinks"], ["value", "value"], list(GRADIENTS[:4])):
        found = gradients_of(*inputs, grad_context, wanted=names, **options)
        for name in GRADIENTS:
            if name in names:
                assert np.array_equal(getattr(found, name), getattr(everything, name))
            else:
                assert getattr(found, name) is None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("options", ["plain", "causal", "sinks", "dropout"])
def test_relevance(dtype, options):
    *inputs, grad_context, _ = problem(dtype)
    options = OPTIONS[options]
    names = ["relevance", "magnitude"]
    found = gradients_of(*inputs, grad_context, wanted=names, **options)
    assert list(found) == [None] * 3
    exact = fovea.reference.attention_gradients(*inputs, grad_context=grad_context, **options)
    for name in names:
        lens, right = getattr(found, name), getattr(exact, name)
        assert lens.dtype == ("float64" if dtype == "float64" else "float32")
        assert lens.shape == (2, 4, KV_LEN)
        np.testing.assert_allclose(lens, right, rtol=1e-3, atol=1e-3)
    # With a single key its weight is 1, so the whole loss is its relevance.
    one = [a[:, :, :1] for a in inputs[1:]]
    only = gradients_of(inputs[0], *one, grad_context, wanted=names).relevance[..., 0]
    heads = np.repeat(wide(one[1]), 2, axis=1)
    np.testing.assert_allclose(only, (wide(grad_context) * heads).sum((2, 3)), rtol=1e-4, atol=1e-4)


def test_relevance_is_none_by_default():
    *inputs, grad_context, _ = problem()
    found = gradients_of(*inputs, grad_context)
    assert found.relevance is None
    assert found.magnitude is None
    beside = gradients_of(*inputs, grad_context, wanted=["key", "relevance"])
    assert np.array_equal(beside.key, found.key)
    assert beside.relevance is not None
    assert beside.magnitude is None


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_ranks_of_relevance(rank):
    query, key, value = tensors((2, 3, 5, 8)[4 - rank :], kv_len=6, value_dim=4)
    grad_context = normal(*query.shape[:-1], 4)
    right = fovea.reference.attention_gradients(query, key, value, grad_context=grad_context)
    found = gradients_of(query, key, value, grad_context, wanted=["relevance"])
    assert found.relevance.shape == right.relevance.shape == (2, 3, 6)[4 - rank :]
    np.testing.assert_allclose(found.relevance, right.relevance, rtol=1e-5, atol=1e-5)


def test_gradients_have_the_dtypes_of_their_inputs():
    query, key, value = tensors((2, 5, 8), kv_len=6)
    key, value, bias = key.astype(BFLOAT16), value.astype("float16"), normal(5, 6, dtype="float64")
    table = fovea.RelativeTable(normal(4, 2, dtype="float16"))
    found = gradients_of(query, key, value, normal(2, 5, 8), bias=bias, relative=table, sinks=[0.5, 0.5])
    assert [g.dtype for g in found] == [np.float32, BFLOAT16, np.float16]
    assert found.bias.dtype == np.float64
    assert found.relative.dtype == found.sinks.dtype == np.float32
    assert found.relative.shape == (4, 2)
    right = gradients_of(
        query,
        wide(key).astype("float32"),
        wide(value).astype("float32"),
        normal(2, 5, 8),
        bias=bias,
        relative=table,
        sinks=[0.5, 0.5],
    )
    np.testing.assert_allclose(wide(found.key), right.key, atol=0.02)
    np.testing.assert_allclose(found.query, right.query, rtol=1e-3, atol=1e-3)


def test_arrays_of_other_libraries():
    query, key, value = tensors((2, 5, 8), kv_len=6)
    context, lse = fovea.attention(query, key, value, return_lse=True)
    grad = normal(2, 5, 8)
    right = fovea.attention_backward(query, key, value, context, lse, grad)
    found = fovea.attention_backward(*map(Producer, (query, key, value, context, lse, grad)))
    strided = [np.repeat(a, 2, axis=-1)[..., ::2] for a in (query, key, value, context, lse, grad)]
    flat = memoryview(array.array("f", key.ravel())).cast("B").cast("f", shape=[2, 6, 8])
    for other in (
        found,
        fovea.attention_backward(*strided),
        fovea.attention_backward(query, flat, value, context, lse, grad),
    ):
        for one, same in zip(other, right, strict=True):
            assert type(one) is np.ndarray
            assert np.array_equal(one, same)


@pytest.mark.parametrize("shape", [(0, 5, 8), (2, 0, 8), (0, 2, 5, 8)], ids=str)
def test_empty(shape):
    query, key, value = tensors(shape, kv_len=4)
    found = gradients_of(query, key, value, np.zeros(shape, "float32"))
    assert [g.shape for g in found] == [query.shape, key.shape, value.shape]
    assert not any(g.any() for g in found)


def test_no_keys():
    query, key, value = tensors((2, 5, 8), kv_len=0)
    found = gradients_of(query, key, value, normal(2, 5, 8))
    assert not found.query.any()
    assert found.key.shape == (2, 0, 8)


Q, K, V = tensors((2, 3, 5, 8), kv_len=6)
C, L = fovea.attention(Q, K, V, return_lse=True)
REFUSED = {
    "no lse": (TypeError, (Q, K, V, C), {}, ["attention_backward()", "'lse'"]),
    "a list": (TypeError, (Q, K, V, C, L, [[1.0]]), {}, ["grad_context", "list"]),
    "integers": (TypeError, (Q, K, V, C, L.astype(int), C), {}, ["lse", "int64"]),
    "None": (TypeError, (Q, K, V, None, L, C), {}, ["context", "None"]),
    "query's rank": (ValueError, (Q[None], K, V, C, L, C), {}, ["query", "[1, 2, 3, 5, 8]"]),
    "context's rank": (ValueError, (Q, K, V, C[0], L, C), {}, ["context", "4 dimensions", "[3, 5, 8]"]),
    "lse's rank": (ValueError, (Q, K, V, C, L[0], C), {}, ["lse", "3 dimensions", "[3, 5]"]),
    "context's shape": (ValueError, (Q, K, V, C[..., :4], L, C), {}, ["context", "[2, 3, 5, 8]", "[2, 3, 5, 4]"]),
    "lse's shape": (ValueError, (Q, K, V, C, L[..., :4], C), {}, ["lse", "[2, 3, 5]", "[2, 3, 4]"]),
    "grad_context's shape": (ValueError, (Q, K, V, C, L, C[:1]), {}, ["grad_context", "[1, 3, 5, 8]"]),
    "grad_lse's shape": (ValueError, (Q, K, V, C, L, C), {"grad_lse": L[:, :2]}, ["grad_lse", "[2, 2, 5]"]),
    "grad_lse's rank": (ValueError, (Q, K, V, C, L, C), {"grad_lse": C}, ["grad_lse", "3 dimensions"]),
    "key's width": (ValueError, (Q, K[..., :7], V, C, L, C), {}, ["key", "8", "7"]),
    "lse of float64": (ValueError, (Q, K, V, C, L.astype("float64"), C), {}, ["lse", "float32", "float64"]),
    "context of float64": (ValueError, (Q, K, V, C.astype("float64"), L, C), {}, ["context", "float64"]),
    "bias' shape": (ValueError, (Q, K, V, C, L, C), {"bias": np.zeros((5, 5), "float32")}, ["bias", "[5, 5]"]),
    "a probability": (TypeError, (Q, K, V, C, L, C), {"dropout": 0.1}, ["dropout", "fovea.Dropout", "float"]),
    "out": (TypeError, (Q, K, V, C, L, C), {"out": C}, ["attention_backward()", "'out'"]),
    "wanted": (ValueError, (Q, K, V, C, L, C), {"wanted": ["mask"]}, ["wanted", '"sinks"', '"mask"']),
    "a name": (TypeError, (Q, K, V, C, L, C), {"wanted": "key"}, ["wanted", "a list", "str"]),
    "no names": (ValueError, (Q, K, V, C, L, C), {"wanted": [1]}, ["wanted", '"1"']),
    "what is not there": (ValueError, (Q, K, V, C, L, C), {"wanted": ["bias"]}, ["wanted", '"bias"', "without bias="]),
}


@pytest.mark.parametrize(("kind", "arrays", "options", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(kind, arrays, options, parts):
    with raises(kind, *parts):
        fovea.attention_backward(*arrays, **options)


def test_the_reference_refuses():
    with raises(ValueError, "grad_lse", "3 dimensions", "[3, 5]"):
        fovea.reference.attention_gradients(Q, K, V, grad_lse=L[0])
    with raises(ValueError, "grad_weights", "[2, 3, 5, 6]", "[2, 3, 5, 5]"):
        fovea.reference.attention_gradients(Q, K, V, grad_weights=np.zeros((2, 3, 5, 5)))
    with raises(TypeError, "attention_gradients()", "'threads'"):
        fovea.reference.attention_gradients(Q, K, V, threads=1)
