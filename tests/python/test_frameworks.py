# SPDX-License-Identifier: Apache-2.0
"""Tests arrays of other libraries: DLPack, buffers, torch and JAX; results are arrays of the argument's library. The
tests of torch and JAX run if these are installed."""

import array
import gc
import importlib
import subprocess
import sys
import weakref

import numpy as np
import pytest
from problems import BFLOAT16, Producer, raises, tensors, wide

import fovea

EXPECTED = fovea.attention(*tensors((2, 5, 8), kv_len=6))


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_dlpack(dtype, versioned):
    arrays = tensors((2, 5, 8), kv_len=6, dtype=dtype)
    context = fovea.attention(*(Producer(a, versioned=versioned) for a in arrays))
    assert type(context) is np.ndarray
    assert context.tobytes() == fovea.attention(*arrays).tobytes()


@pytest.mark.parametrize("argument", range(3))
def test_dlpack_of_any_layout(argument):
    arrays = tensors((2, 5, 8), kv_len=6)
    expected = fovea.attention(*arrays)
    laid_out = {
        "transposed": np.ascontiguousarray(arrays[argument].swapaxes(0, 1)).swapaxes(0, 1),
        "rows strided": np.repeat(arrays[argument], 2, axis=2)[:, :, ::2],
        "read-only": _read_only(arrays[argument]),
    }
    for other in laid_out.values():
        some = list(arrays)
        some[argument] = Producer(other)
        assert fovea.attention(*some).tobytes() == expected.tobytes()


def _read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def test_dlpack_everywhere():
    query, key, value = tensors((2, 5, 8), kv_len=6)
    visible = np.random.default_rng(2).random((5, 6)) < 0.7
    bias = np.random.default_rng(2).standard_normal((2, 5, 6)).astype("float32")
    expected = fovea.attention(query, key, value, mask=visible, bias=bias)
    out = np.zeros_like(expected)
    wrapped = Producer(out)
    result = fovea.attention(
        Producer(query), Producer(key), Producer(value), mask=Producer(visible), bias=Producer(bias), out=wrapped
    )
    assert result is wrapped
    assert np.array_equal(out, expected)
    assert np.array_equal(
        fovea.scaled_dot_product_attention(Producer(query), Producer(key), Producer(value), Producer(visible)),
        fovea.attention(query, key, value, mask=visible),
    )


def test_producers_are_released():
    arrays = tensors((2, 5, 8))
    producers = [Producer(a) for a in arrays]
    counts = [sys.getrefcount(a) for a in arrays]
    gone = [weakref.ref(p) for p in producers]
    for _ in range(10):
        fovea.attention(*producers)
    with raises(ValueError, "value"):
        fovea.attention(producers[0], producers[1], Producer(arrays[2][:, :2]))
    assert [sys.getrefcount(a) for a in arrays] == counts
    mask = fovea.dense(producers[0].array[0] > 0)
    del producers, mask
    gc.collect()
    assert all(reference() is None for reference in gone)


@pytest.mark.parametrize("code", ["f", "d"])
def test_buffers(code):
    query, key, value = tensors((5, 8), dtype=code)
    flat = array.array(code, query.ravel())
    context = fovea.attention(memoryview(flat).cast("B").cast(code, shape=[5, 8]), key, value)
    assert type(context) is np.ndarray
    assert context.tobytes() == fovea.attention(query, key, value).tobytes()
    out = array.array(code, bytes(query.nbytes))
    view = memoryview(out).cast("B").cast(code, shape=[5, 8])
    assert fovea.attention(query, key, value, out=view) is view
    assert out.tobytes() == context.tobytes()


def test_unsupported_buffers():
    query, key, value = tensors((5, 8))
    with raises(TypeError, "key", "float32", 'format "i"'):
        fovea.attention(query, memoryview(array.array("i", range(40))).cast("B").cast("i", shape=[5, 8]), value)
    with raises(TypeError, "key", 'format "B"'):
        fovea.attention(query, b"12345678", value)
    with raises(ValueError, "out", "written to"):
        fovea.attention(query, key, value, out=memoryview(query).toreadonly())


def test_bfloat16_of_ml_dtypes():
    arrays = tensors((2, 5, 8), kv_len=6, dtype=BFLOAT16)
    context = fovea.attention(*arrays)
    assert context.dtype == BFLOAT16
    np.testing.assert_allclose(wide(context), EXPECTED, atol=0.05)
    mask = np.zeros((5, 6), BFLOAT16)
    assert fovea.scaled_dot_product_attention(*arrays, attn_mask=mask).dtype == BFLOAT16


def same(found, expected):
    np.testing.assert_allclose(wide(found), wide(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_torch():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    numpys = tensors((2, 5, 8), kv_len=6)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        arrays = [torch.from_numpy(a).to(dtype) for a in numpys]
        context, lse = fovea.attention(*arrays, return_lse=True)
        assert isinstance(context, torch.Tensor)
        assert isinstance(lse, torch.Tensor)
        assert context.dtype == dtype
        assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        right = torch.nn.functional.scaled_dot_product_attention(*(a.double() for a in arrays))
        tolerance = {torch.bfloat16: 0.02, torch.float16: 2e-3}.get(dtype, 1e-5)
        assert (context.double() - right).abs().max() < tolerance
        out = torch.empty_like(context)
        assert fovea.attention(*arrays, out=out) is out
        assert torch.equal(out, context)
        by_their_name = fovea.scaled_dot_product_attention(*arrays, attn_mask=torch.ones(5, 6, dtype=torch.bool))
        assert isinstance(by_their_name, torch.Tensor)
        same(by_their_name.double(), context.double())
        assert type(fovea.reference.attention(*arrays)) is np.ndarray
    query, key, value = (torch.from_numpy(a) for a in numpys)
    same(fovea.attention(query, key.mT.contiguous().mT, value), EXPECTED)
    same(fovea.attention(query, key, value, mask=fovea.dense(torch.ones(5, 6, dtype=torch.bool))), EXPECTED)
    part = torch.complex(query, -query).conj().imag
    assert part.is_neg()
    with raises(ValueError, "query", "resolve_neg()"):
        fovea.attention(part, key, value)
    same(fovea.attention(part.resolve_neg(), key, value), EXPECTED)
    with raises(ValueError, "query", "requires", "fovea.torch.attention()", "query.detach()"):
        fovea.attention(query.clone().requires_grad_(), key, value)
    with raises(TypeError, "scale", "a tensor that requires a gradient"):
        fovea.attention(query, key, value, scale=torch.tensor(0.3, requires_grad=True))
    forward_mode = torch.autograd.forward_ad
    with forward_mode.dual_level():
        dual = forward_mode.make_dual(key, key)
        for function in (fovea.attention, fovea.scaled_dot_product_attention):
            with raises(ValueError, "key", "tangent", "key.detach()"):
                function(query, dual, value)
            same(function(query, dual.detach(), value), EXPECTED)
        with pytest.raises(NotImplementedError, match="jvp"):
            pytest.importorskip("fovea.torch").attention(query, dual, value)
    halves = [key.bfloat16(), value.half()]
    context, lse = fovea.attention(query, *halves, return_lse=True)
    found = fovea.attention_backward(query, *halves, context, lse, context, sinks=[0.0, 0.0])
    assert all(isinstance(one, torch.Tensor) for one in (*found, found.sinks))
    assert [one.dtype for one in found] == [torch.float32, torch.bfloat16, torch.float16]
    mixed = fovea.attention_backward(query, numpys[1], value, context, lse, context)
    assert [type(one) for one in mixed] == [torch.Tensor, np.ndarray, torch.Tensor]
    with raises(ValueError, "key", "CPU"):
        fovea.attention(query, key.to("meta"), value)
    with raises(ValueError, "query", "Tensor without values", "transformed"):
        torch.func.vmap(lambda one: fovea.attention(one, key, value))(query[None])
    with importlib.import_module("torch._subclasses").FakeTensorMode():
        fake = torch.randn(2, 5, 8)
        with raises(ValueError, "query", "FakeTensor without values"):
            fovea.attention(fake, fake, fake)
    with raises(TypeError, "value", "int32"):
        fovea.attention(query, key, value.int())


REFUSED_FIRST = """
import torch
import fovea

dense = torch.rand(2, 5, 8)
for other in (dense.to_sparse(), dense.to_sparse_csr(), dense.to(torch.float8_e4m3fn),
              torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)):
    try:
        fovea.attention(other, dense, dense)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"""


def test_numbers_as_torch_tensors():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    query, key, value = tensors((2, 6, 8))
    for options in (
        {"query_starts": [0, 2, 6], "key_starts": [0, 3, 6]},
        {"alibi": [1.0, 0.5]},
        {"sinks": [0.5, -1.0]},
        {"alignment": [3]},
    ):
        as_tensors = {name: torch.tensor(numbers) for name, numbers in options.items()}
        expected = fovea.attention(query, key, value, mask=fovea.causal(), **options)
        same(fovea.attention(query, key, value, mask=fovea.causal(), **as_tensors), expected)
    assert np.array_equal(
        fovea.key_lengths(torch.tensor([1, 4])).matrix(2, 5, batch=2, item=1),
        fovea.key_lengths([1, 4]).matrix(2, 5, batch=2, item=1),
    )
    assert repr(fovea.key_lengths(torch.tensor(3))) == repr(fovea.key_lengths(3))
    frequencies = [1.0, 0.5, 0.25, 0.0]
    assert repr(fovea.Rotary(inverse_frequencies=torch.tensor(frequencies))) == repr(
        fovea.Rotary(inverse_frequencies=frequencies)
    )
    rotary = fovea.Rotary()
    same(fovea.apply_rotary(query, torch.arange(2, 8), rotary), fovea.apply_rotary(query, 2, rotary))
    for wrong, words in (
        (torch.tensor(0.5), ["a list or an array of numbers", "Tensor"]),
        (torch.ones(2, 1), ["expected a number", "list"]),
        (torch.ones(2, device="meta"), ["a list or an array of numbers", "Tensor"]),
        (torch.ones(2, requires_grad=True), ["a tensor that requires a gradient"]),
    ):
        with raises(TypeError, "alibi", *words):
            fovea.attention(query, key, value, alibi=wrong)


def test_torch_counts_the_changes_of_out():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    x, out, factor = torch.ones(2, 3, 4), torch.zeros(2, 3, 4), torch.ones(2, 3, 4, requires_grad=True)
    product = (factor * out).sum()
    fovea.attention(x, x, x, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        out = torch.zeros(2, 3, 4)
    assert fovea.attention(x, x, x, out=out) is out
    assert torch.equal(out, x)


def test_torch_layouts():
    pytest.importorskip("torch", exc_type=ImportError)
    # In a new process, because the first tensor of a process is converted in another way.
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REFUSED_FIRST], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    sparse, rows, small, quantized = result.stdout.splitlines()
    assert sparse == "TypeError query: expected a tensor of layout torch.strided, got one of torch.sparse_coo"
    assert rows.endswith("got one of torch.sparse_csr")
    assert small.endswith("float8_e4m3fn")
    assert quantized.startswith("ValueError query: expected an array that DLPack can take")


def test_jax():
    jax = pytest.importorskip("jax", exc_type=ImportError)
    import jax.numpy as jnp

    numpys = tensors((2, 5, 8), kv_len=6)
    for dtype in (jnp.float32, jnp.float16, jnp.bfloat16):
        arrays = [jnp.asarray(a, dtype) for a in numpys]
        context, lse = fovea.attention(*arrays, return_lse=True)
        assert isinstance(context, jax.Array)
        assert isinstance(lse, jax.Array)
        assert context.dtype == dtype
        np.testing.assert_allclose(wide(context), EXPECTED, atol=0.03 if dtype != jnp.float32 else 1e-5)
        assert isinstance(fovea.scaled_dot_product_attention(*arrays, is_causal=True), jax.Array)
        with raises(ValueError, "query", "Tracer without values", "traced"):
            jax.jit(fovea.attention)(*arrays)
        found = fovea.attention_backward(*arrays, context, lse, context)
        assert all(isinstance(one, jax.Array) and one.dtype == dtype for one in found)
        with raises(ValueError, "out", "JAX"):
            fovea.attention(*arrays, out=context)
