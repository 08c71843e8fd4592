# SPDX-License-Identifier: Apache-2.0
"""Compares fovea.attention with jax.nn.dot_product_attention: [batch, length, heads, dim], windows, lengths, biases.

By the 1x rule (docs/numerics.md): the oracle is JAX in float64, and the tolerance is the error of JAX in the dtype of
the arrays.
"""

import itertools

import numpy as np
import pytest
from problems import BFLOAT16, ROUNDING, wide

import fovea

jax = pytest.importorskip("jax", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402

SHAPES = ((2, 5, 9, 4, 4, 8, 8), (2, 33, 33, 6, 2, 16, 16), (1, 64, 130, 4, 1, 40, 40), (3, 1, 77, 2, 2, 64, 64))
DTYPES = (np.dtype("float32"), BFLOAT16, np.dtype("float16"))


def drawn(shape, dtype, seed=0):
    """Returns query, key and value in JAX's layout, and a bias and a mask for the scores."""
    batch, q_len, kv_len, heads, kv_heads, dim, value_dim = shape
    random = np.random.default_rng([seed, *shape])
    sizes = (batch, q_len, heads, dim), (batch, kv_len, kv_heads, dim), (batch, kv_len, kv_heads, value_dim)
    arrays = [random.standard_normal(size).astype(dtype) for size in sizes]
    bias = random.standard_normal((1, heads, q_len, kv_len)).astype(dtype)
    mask = random.random((batch, 1, q_len, kv_len)) < 0.7
    mask[..., 0] = True
    return arrays, bias, mask


def theirs(arrays, dtype, **options):
    """Returns JAX's result in `dtype`, converted to float64."""
    with jax.enable_x64(True):
        given = [jnp.asarray(array.astype(dtype)) for array in arrays]
        if "bias" in options:
            options["bias"] = jnp.asarray(options["bias"].astype(dtype))
        return wide(jax.nn.dot_product_attention(*given, implementation="xla", **options))


# JAX's arguments and the equivalent masks; query i is aligned with key i.
CAUSAL = [({}, None), ({"is_causal": True}, fovea.causal())]
WINDOWS = [({}, None)] + [({"local_window_size": size}, fovea.window(*size)) for size in ((3, 0), (2, 2), (0, 5))]
WINDOWS += [({"local_window_size": 4}, fovea.window(4, 4))]
SCALES = (None, 0.3)


def joined(masks):
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result & mask
    return result


def check(name, arrays, ours, options, rows=None):
    dtype = arrays[0].dtype
    found = fovea.attention(*(array.swapaxes(1, 2) for array in arrays), alignment="top-left", **ours)
    assert found.dtype == dtype
    found = wide(found).swapaxes(1, 2)
    right, plain = (theirs(arrays, one, **options) for one in (np.float64, dtype))
    assert found.shape == right.shape
    if rows is not None:  # JAX sets the rows after the last query to 0
        found, right, plain = (np.where(rows, array, 0) for array in (found, right, plain))
    off, of_plain = np.abs(found - right).max(), np.abs(plain - right).max()
    allowed = of_plain + 8 * ROUNDING[dtype.name] * max(np.abs(wide(arrays[2])).max(), 1)
    assert off <= allowed, f"{name}: off by {off:.3g}, JAX by {of_plain:.3g}, allowed {allowed:.3g}"
    return off, of_plain


def test_grid(say):
    for dtype in DTYPES:
        errors = []
        for shape, causal, window, scale, extra in itertools.product(
            SHAPES, CAUSAL, WINDOWS, SCALES, ("none", "bias", "mask", "lengths")
        ):
            arrays, bias, mask = drawn(shape, dtype)
            options = {**causal[0], **window[0], "scale": scale}
            ours = {"scale": scale}
            masks, rows = [causal[1], window[1]], None
            if extra == "bias":
                options["bias"] = ours["bias"] = bias
            elif extra == "mask":
                # Excludes windows with fully masked rows, which JAX averages over the masked keys.
                if causal[1] is not None or window[1] is not None:
                    continue
                options["mask"] = mask
                masks.append(fovea.dense(mask))
            elif extra == "lengths":
                batch, q_len, kv_len = shape[:3]
                queries = np.linspace(1, q_len, batch).astype(np.int32)
                keys = np.linspace(q_len, kv_len, batch).astype(np.int32)
                options |= {"query_seq_lengths": queries, "key_value_seq_lengths": keys}
                masks.append(fovea.key_lengths(keys))
                rows = (np.arange(q_len) < queries[:, None])[:, :, None, None]
            joint = joined(masks)
            ours |= {} if joint is None else {"mask": joint}
            name = f"{dtype} {shape} {options.keys()} {causal[0]} {window[0]}"
            errors.append(check(name, arrays, ours, options, rows))
        ours, plain = np.array(errors).max(axis=0)
        say(
            f"JAX {jax.__version__}, dot_product_attention on {fovea.info().target}, {dtype.name}: {len(errors)} cases "
            f"passed, largest error {ours:.1e}, JAX's {plain:.1e}"
        )
        assert len(errors) >= 200
