# SPDX-License-Identifier: Apache-2.0
"""Compares fovea.attention with the reference and with plain NumPy."""

import numpy as np
import pytest
from problems import BFLOAT16, FLOATS, assert_as_exact, raises, tensors, wide

import fovea

SHAPES = {
    "a matrix": ((4, 3), {}),
    "heads": ((2, 5, 8), {}),
    "batch": ((2, 3, 5, 8), {}),
    "more keys, other values": ((2, 3, 5, 8), {"kv_len": 97, "value_dim": 5}),
    "grouped heads": ((2, 6, 7, 16), {"kv_heads": 2}),
    "grouped heads without batch": ((6, 7, 16), {"kv_heads": 2, "kv_len": 33}),
    "more queries than keys": ((3, 59, 16), {"kv_len": 7}),
    "longer than a block": ((1, 2, 111, 59), {"kv_len": 1025}),
    "one of each": ((1, 1), {}),
}


def options_of(heads, q_len, kv_len):
    """Returns every option by name, for a problem with these extents."""
    random = np.random.default_rng(7)
    table = random.standard_normal((8, heads)).astype("float32")
    return {
        "none": {},
        "scale": {"scale": 0.3},
        "softcap": {"softcap": 1.5},
        "causal": {"mask": fovea.causal()},
        "causal and window": {"mask": fovea.causal() & fovea.window(3, 0)},
        "causal or prefix": {"mask": fovea.causal() | fovea.prefix(2)},
        "dense": {"mask": fovea.dense(random.random((q_len, kv_len)) < 0.7)},
        "an array as mask": {"mask": random.random((heads, q_len, kv_len)) < 0.7},
        "bias": {"bias": random.standard_normal((heads, q_len, kv_len)).astype("float32")},
        "bias that repeats": {"bias": random.standard_normal((1, kv_len))},
        "alibi": {"alibi": True},
        "no alibi": {"alibi": False},
        "slopes": {"alibi": np.linspace(0.1, 0.9, heads)},
        "relative": {"relative": fovea.RelativeTable(table)},
        "sinks": {"sinks": list(np.linspace(-1, 1, heads))},
        "top-left": {"mask": fovea.causal(), "alignment": "top-left"},
        "bottom-right": {"mask": fovea.causal(), "alignment": "bottom-right"},
        "an offset": {"mask": fovea.causal(), "alignment": 2},
        "many": {"mask": fovea.causal(), "softcap": 2.0, "alibi": True, "sinks": [0.5] * heads, "scale": 1.0},
    }


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "more"), SHAPES.values(), ids=SHAPES)
def test_shapes_and_types(shape, more, dtype):
    query, key, value = tensors(shape, dtype=dtype, **more)
    context = fovea.attention(query, key, value)
    assert type(context) is np.ndarray
    assert context.dtype == dtype
    assert context.shape == (*query.shape[:-1], value.shape[-1])
    assert_as_exact(context, query, key, value)


@pytest.mark.parametrize("name", options_of(1, 1, 1))
@pytest.mark.parametrize("dtype", ["float32", "float64", BFLOAT16], ids=str)
def test_options(name, dtype):
    query, key, value = tensors((2, 4, 5, 8), kv_len=9, dtype=dtype)
    options = options_of(4, 5, 9)[name]
    assert_as_exact(fovea.attention(query, key, value, **options), query, key, value, **options)


@pytest.mark.parametrize("name", options_of(1, 1, 1))
def test_options_change_the_result(name):
    query, key, value = tensors((2, 4, 5, 8), kv_len=9)
    same = np.array_equal(
        fovea.attention(query, key, value), fovea.attention(query, key, value, **options_of(4, 5, 9)[name])
    )
    assert same == (name in {"none", "no alibi"})


def plain(query, key, value, visible=None, scale=None, softcap=None, bias=0.0, sinks=None):
    """Computes the context and lse with NumPy, directly from the formula."""
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    scores = wide(query) @ np.swapaxes(wide(key), -1, -2) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    powers = np.exp(scores)
    total = powers.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.reshape(sinks, (-1, 1, 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.where(total > 0, powers / total, 0)
        return weights @ wide(value), np.log(total[..., 0])


def distances(q_len, kv_len, offset):
    return np.arange(kv_len) - (np.arange(q_len)[:, None] + offset)


PLAIN = {
    "nothing": ({}, {}),
    "scale": ({"scale": 0.2}, {"scale": 0.2}),
    "softcap": ({"softcap": 0.8}, {"softcap": 0.8}),
    "causal": ({"mask": fovea.causal()}, {"visible": distances(5, 9, 4) <= 0}),
    "top-left": ({"mask": fovea.causal(), "alignment": "top-left"}, {"visible": distances(5, 9, 0) <= 0}),
    "nothing to see at first": ({"mask": fovea.causal(), "alignment": -2}, {"visible": distances(5, 9, -2) <= 0}),
    "window": ({"mask": fovea.window(1, 2)}, {"visible": (distances(5, 9, 4) >= -1) & (distances(5, 9, 4) <= 2)}),
    "alibi": ({"alibi": [0.5, 0.25]}, {"bias": np.array([0.5, 0.25])[:, None, None] * -np.abs(distances(5, 9, 4))}),
    "alibi's own slopes": (
        {"alibi": True},
        {"bias": np.array([2.0**-4, 2.0**-8])[:, None, None] * -np.abs(distances(5, 9, 4))},
    ),
    "sinks": ({"sinks": [0.3, -2.0]}, {"sinks": [0.3, -2.0]}),
    "bias": ({"bias": np.arange(9.0) / 9}, {"bias": np.arange(9.0) / 9}),
}


@pytest.mark.parametrize(("options", "meaning"), PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("function", [fovea.attention, fovea.decode, fovea.reference.attention])
def test_against_plain_numpy(function, options, meaning):
    query, key, value = tensors((2, 5, 8), kv_len=9, value_dim=3)
    context, lse = function(query, key, value, return_lse=True, **options)
    expected, expected_lse = plain(query, key, value, **meaning)
    np.testing.assert_allclose(context, expected, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (3, 2, 5, 8)], ids=str)
def test_lse(dtype, shape):
    query, key, value = tensors(shape, dtype=dtype)
    context, lse = fovea.attention(query, key, value, return_lse=True)
    assert lse.shape == shape[:-1]
    assert lse.dtype == ("float64" if dtype == "float64" else "float32")
    assert np.array_equal(wide(context), wide(fovea.attention(query, key, value)))
    _, expected = fovea.reference.attention(query, key, value, return_lse=True)
    np.testing.assert_allclose(lse, expected, rtol=1e-5 if dtype != "float64" else 1e-14, atol=1e-6)


LAYOUTS = {
    "transposed heads": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    "every second": lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
    "backwards": lambda a: np.ascontiguousarray(a[:, :, ::-1])[:, :, ::-1],
    "last dimension strided": lambda a: np.repeat(a, 2, axis=3)[..., ::2],
    "last dimension transposed": lambda a: np.ascontiguousarray(a.swapaxes(2, 3)).swapaxes(2, 3),
    "Fortran's order": np.asfortranarray,
    "not aligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    "strides of odd bytes": lambda a: _odd_strides(a),
    "read-only": lambda a: _read_only(a),
    "of a subclass": lambda a: a.view(_Subclass),
}


class _Subclass(np.ndarray):
    pass


def _odd_strides(array):
    """Returns a copy whose row stride is not a multiple of the element size."""
    bytes_of_row = array.shape[-1] * array.itemsize + 1
    memory = np.zeros((*array.shape[:-1], bytes_of_row), np.uint8)
    rows = memory[..., :-1]
    rows[...] = array.view(np.uint8)
    return np.ndarray(array.shape, array.dtype, memory, strides=(*memory.strides[:-1], array.itemsize))


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts(layout, dtype):
    arrays = tensors((2, 3, 7, 6), kv_len=9, dtype=dtype)
    laid_out = [layout(array) for array in arrays]
    assert all(np.array_equal(wide(a), wide(b)) for a, b in zip(arrays, laid_out, strict=True))
    assert fovea.attention(*laid_out).tobytes() == fovea.attention(*arrays).tobytes()
    assert type(fovea.attention(*laid_out)) is np.ndarray


def test_nothing_is_copied():
    # With a stride of 0, the tensor has a nominal size of 2 TB, so a copy would not fit in memory.
    row = np.ones((1, 64), np.float32)
    query = np.broadcast_to(row, (4, 64))
    key = np.lib.stride_tricks.as_strided(row, (1 << 33, 64), (0, 4))
    context = fovea.attention(query, key, key, mask=fovea.prefix(3))
    np.testing.assert_array_equal(context, query)


def test_broadcast_inputs():
    query, key, value = tensors((2, 3, 5, 8))
    one = [np.broadcast_to(array[:1], array.shape) for array in (query, key, value)]
    context = fovea.attention(*one)
    assert np.array_equal(context[0], context[1])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_out(dtype):
    query, key, value = tensors((2, 5, 8), dtype=dtype)
    expected = fovea.attention(query, key, value)
    out = np.zeros_like(expected)
    assert fovea.attention(query, key, value, out=out) is out
    assert out.tobytes() == expected.tobytes()
    again, lse = fovea.attention(query, key, value, out=out, return_lse=True)
    assert again is out
    assert lse.shape == (2, 5)


def test_out_with_another_type_and_layout():
    query, key, value = tensors((2, 5, 8))
    expected = fovea.attention(query, key, value)
    out = np.zeros((5, 2, 8), np.float16).swapaxes(0, 1)
    fovea.attention(query, key, value, out=out)
    assert np.array_equal(out, expected.astype(np.float16))


def test_mixed_types():
    query, key, value = tensors((2, 5, 8))
    context = fovea.attention(query.astype(BFLOAT16), key.astype("float16"), value)
    assert context.dtype == BFLOAT16


def test_results_own_their_memory():
    query, key, value = tensors((2, 5, 8))
    context = fovea.attention(query, key, value)
    assert context.flags.owndata
    assert context.flags.c_contiguous
    assert context.flags.writeable


@pytest.mark.parametrize(
    "shape", [(0, 8), (0, 5, 8), (0, 2, 5, 8), (2, 0, 8), (3, 2, 0, 8), (4, 0), (2, 5, 0)], ids=str
)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_empty(shape, dtype):
    query, key, value = tensors(shape, dtype=dtype)
    context, lse = fovea.attention(query, key, value, return_lse=True)
    assert context.shape == shape
    assert lse.shape == shape[:-1]


def test_no_keys_and_no_values():
    query, key, value = tensors((5, 8), kv_len=0, value_dim=3)
    context, lse = fovea.attention(query, key, value, return_lse=True)
    assert np.array_equal(context, np.zeros((5, 3)))
    assert np.all(lse == -np.inf)
    query, key, value = tensors((5, 8), kv_len=4, value_dim=0)
    assert fovea.attention(query, key, value).shape == (5, 0)


def test_fully_masked_rows():
    query, key, value = tensors((2, 5, 8), kv_len=3)
    context, lse = fovea.attention(query, key, value, mask=fovea.causal(), return_lse=True)
    assert np.array_equal(context[:, :2], np.zeros((2, 2, 8)))
    assert np.all(lse[:, :2] == -np.inf)
    assert np.all(np.isfinite(lse[:, 2:]))
    _, lse = fovea.attention(query, key, value, mask=fovea.causal(), sinks=[0.5, -0.25], return_lse=True)
    assert np.array_equal(lse[:, :2], [[0.5, 0.5], [-0.25, -0.25]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_reach_only_rows_that_attend_to_them(bad):
    query, key, value = tensors((6, 8))
    clean = fovea.attention(query, key, value, mask=fovea.causal())
    value[3, 2] = bad
    context = fovea.attention(query, key, value, mask=fovea.causal())
    seen = np.zeros((6, 8), bool)
    seen[3:, 2] = True
    assert np.array_equal(~np.isfinite(context), seen)
    np.testing.assert_allclose(context[~seen], clean[~seen], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3, None])
def test_bit_identical_for_any_thread_count(threads):
    query, key, value = tensors((4, 200, 32))
    assert fovea.attention(query, key, value, threads=threads).tobytes() == fovea.attention(query, key, value).tobytes()


def test_packed_sequences():
    query, key, value = tensors((2, 7, 8), kv_len=9)
    options = {"mask": fovea.causal(), "alibi": True}
    packed = fovea.attention(query, key, value, query_starts=[0, 3, 7], key_starts=np.array([0, 5, 9]), **options)
    parts = [
        fovea.attention(query[:, q], key[:, k], value[:, k], **options)
        for q, k in [(slice(0, 3), slice(0, 5)), (slice(3, 7), slice(5, 9))]
    ]
    assert packed.tobytes() == np.concatenate(parts, axis=1).tobytes()


def test_an_offset_per_item():
    query, key, value = tensors((2, 1, 3, 8), kv_len=5)
    both = fovea.attention(query, key, value, mask=fovea.causal(), alignment=[0, 2])
    each = [
        fovea.attention(query[i], key[i], value[i], mask=fovea.causal(), alignment=offset)
        for i, offset in enumerate((0, 2))
    ]
    assert both.tobytes() == np.stack(each).tobytes()


def test_inputs_are_untouched():
    arrays = tensors((2, 5, 8))
    copies = [array.copy() for array in arrays]
    fovea.attention(*arrays, mask=fovea.causal(), bias=np.zeros((5, 5)))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))


def test_none_is_the_default():
    query, key, value = tensors((2, 5, 8))
    names = ["mask", "scale", "softcap", "bias", "alibi", "relative", "sinks", "alignment", "query_starts"]
    names += ["key_starts", "threads", "return_lse", "out", "lenses"]
    context = fovea.attention(query, key, value, **dict.fromkeys(names))
    assert context.tobytes() == fovea.attention(query, key, value).tobytes()


def test_names_of_arguments():
    query, key, value = tensors((5, 8))
    assert np.array_equal(fovea.attention(key=key, value=value, query=query), fovea.attention(query, key, value=value))
    # Names built at run time are not interned.
    name = "".join(["soft", "cap"])
    assert np.array_equal(
        fovea.attention(query, key, value, **{name: 1.0}), fovea.attention(query, key, value, softcap=1.0)
    )
    with raises(TypeError, "attention()", "'sofcap'", "softcap"):
        fovea.attention(query, key, value, sofcap=1.0)
    with raises(TypeError, "takes 3 positional arguments but 4 were given"):
        fovea.attention(query, key, value, fovea.causal())
    with raises(TypeError, "missing the required argument 'value'"):
        fovea.attention(query, key)
    with raises(TypeError, "multiple values for argument 'key'"):
        fovea.attention(query, key, value, key=key)
