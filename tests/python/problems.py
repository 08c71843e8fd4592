# SPDX-License-Identifier: Apache-2.0
"""Shared test helpers: random problems, the tolerance rule, a NumPy softmax, arrays of other libraries."""

import contextlib

import ml_dtypes
import numpy as np
import pytest

import fovea

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype("float32"), np.dtype("float16"), BFLOAT16, np.dtype("float64")]
ARITHMETIC = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16", "float64": "float64"}
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}


def tensors(q_shape, kv_len=None, kv_heads=None, value_dim=None, dtype="float32", seed=1):
    """Returns normally distributed query, key and value; key and value have query's shape by default."""
    random = np.random.default_rng(seed)
    *outer, q_len, dim = q_shape
    if kv_heads is not None:
        outer[-1] = kv_heads
    kv_len = q_len if kv_len is None else kv_len
    shapes = [q_shape, (*outer, kv_len, dim), (*outer, kv_len, dim if value_dim is None else value_dim)]
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def wide(array):
    """Converts to a float64 NumPy array."""
    return np.asarray(array).astype(np.float64)


def assert_as_exact(found, query, key, value, **options):
    """Asserts the 1x rule (docs/numerics.md): the error against the oracle is at most that of the naive
    computation in the same precision, plus a few roundings of the largest element."""
    name = np.asarray(query).dtype.name
    oracle = fovea.reference.attention(query, key, value, **options)
    naive = fovea.reference.attention_steps(query, key, value, arithmetic=ARITHMETIC[name], **options).context
    assert found.shape == oracle.shape
    of_naive = np.abs(wide(naive).reshape(oracle.shape) - oracle).max(initial=0)
    of_found = np.abs(wide(found) - oracle).max(initial=0)
    size = max(np.abs(wide(value)).max(initial=0), 1.0)
    allowed = of_naive + 8 * ROUNDING[name] * size
    assert of_found <= allowed, f"off by {of_found:.3g}, naive by {of_naive:.3g}, allowed {allowed:.3g}"


# Tolerance for float32 weights whose scores are sums of a few products.
EXACT = {"rtol": 2e-5, "atol": 2e-6}


def softmax(query, key, visible):
    """Returns the float64 weights of all heads; fully masked rows are 0."""
    if query.ndim > 2:
        key = np.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
    scores = wide(query) @ np.swapaxes(wide(key), -1, -2) / np.sqrt(query.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True)) * visible
    total = powers.sum(-1, keepdims=True)
    return np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)


def cells(length, count):
    return [slice(c * length // count, (c + 1) * length // count) for c in range(count)]


def pooled(weights, visible, rows, columns, reduce):
    """Returns the sums, means or maxima of cells, and the number of visible pairs in each."""
    shape = (*weights.shape[:-2], rows, columns)
    found, pairs = np.zeros(shape), np.zeros(shape, np.int64)
    for r, q in enumerate(cells(weights.shape[-2], rows)):
        for c, k in enumerate(cells(weights.shape[-1], columns)):
            pairs[..., r, c] = visible[..., q, k].sum(axis=(-2, -1))
            part = weights[..., q, k]
            found[..., r, c] = part.max(axis=(-2, -1)) if reduce == "max" else part.sum(axis=(-2, -1))
    if reduce == "mean":
        with np.errstate(invalid="ignore"):
            found = found / pairs
    return found, pairs


GRADIENTS = ("query", "key", "value", "bias", "relative", "sinks")


def gradients_of(query, key, value, grad_context, grad_lse=None, wanted=None, **options):
    """Runs attention(), then attention_backward()."""
    context, lse = fovea.attention(query, key, value, return_lse=True, **options)
    return fovea.attention_backward(
        query, key, value, context, lse, grad_context, grad_lse=grad_lse, wanted=wanted, **options
    )


def assert_gradients_as_exact(found, query, key, value, grad_context, grad_lse=None, roundings=16, **options):
    """Asserts the 1x rule for every gradient: at most the error of the naive computation, plus some roundings: half of
    them for lse, because the forward pass of few queries adds products in another order than attention_backward()."""
    name = np.asarray(query).dtype.name
    given = {"grad_context": grad_context, "grad_lse": grad_lse, **options}
    oracle = fovea.reference.attention_gradients(query, key, value, **given)
    naive = fovea.reference.attention_gradients(query, key, value, arithmetic=ARITHMETIC[name], **given)
    for which in GRADIENTS:
        ours, right, plain = (getattr(gradients, which) for gradients in (found, oracle, naive))
        assert (ours is None) == (right is None), which
        if right is None:
            continue
        assert ours.shape == right.shape, which
        of_naive = np.abs(wide(plain) - right).max(initial=0)
        of_ours = np.abs(wide(ours) - right).max(initial=0)
        allowed = of_naive + roundings * ROUNDING[name] * max(np.abs(right).max(initial=0), 1.0)
        assert of_ours <= allowed, f"{which}: off by {of_ours:.3g}, naive by {of_naive:.3g}, allowed {allowed:.3g}"


class Producer:
    """An array that supports only DLPack; reports `device`, and rejects keyword arguments unless `versioned`."""

    def __init__(self, array, device=(1, 0), versioned=True):
        self.array, self.device, self.versioned = array, device, versioned

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **arguments):
        if arguments and not self.versioned:
            raise TypeError("__dlpack__() takes no keyword arguments")
        return self.array.__dlpack__(**arguments)


@contextlib.contextmanager
def raises(kind, *parts):
    """Expects an error of exactly this type, with all parts in its message."""
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    message = str(caught.value)
    for part in parts:
        assert part in message, f'"{part}" is not in "{message}"'
