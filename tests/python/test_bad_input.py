# SPDX-License-Identifier: Apache-2.0
"""Invalid arguments: the error names the argument, the expected and the actual value; outputs are unchanged."""

import contextlib
import gc
import re
import sys

import numpy as np
import pytest
from problems import BFLOAT16, Producer, raises, tensors

import fovea
from fovea import _nn

Q, K, V = tensors((2, 3, 5, 8), kv_len=6)


def changed(position, array):
    arrays = [Q, K, V]
    arrays[position] = array
    return arrays


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


KINDS = {
    "None": (None, ["got None"]),
    "a list": ([[1.0, 2.0]], ["got list", "numpy.asarray()"]),
    "a tuple": (((1.0,),), ["got tuple"]),
    "a number": (3.0, ["got float"]),
    "a NumPy number": (np.float32(3), []),
    "a string": ("abc", ["got str"]),
    "bytes": (b"abc", ['format "B"']),
    "a function": (len, ["got builtin_function_or_method"]),
    "a type": (np.ndarray, ["got the type", "ndarray"]),
    "a mask": (fovea.causal(), ["Mask"]),
    "int64": (Q.astype("int64"), ["float32, float64, float16 or bfloat16", "int64"]),
    "int8": (Q.astype("int8"), ["int8"]),
    "uint16": (Q.astype("uint16"), ["uint16"]),
    "bool": (Q > 0, ["bool"]),
    "complex": (Q.astype("complex64"), ["complex64"]),
    "long double": (Q.astype(np.longdouble), ["float128"]),
    "object": (Q.astype(object), ["object"]),
    "text": (Q.astype("U8"), ["<U"]),
    "a structure": (np.zeros((2, 3, 5, 8), [("x", "f4")]), ["x"]),
    "dates": (np.zeros((2, 3, 5, 8), "M8[s]"), ["datetime64"]),
    "big-endian": (Q.astype(">f4"), ["byte order", ">f4"]),
    "masked": (np.ma.masked_less(Q, 0), ["MaskedArray", "mask="]),
}


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize(("thing", "parts"), KINDS.values(), ids=KINDS)
def test_unsupported_arrays(thing, parts, position):
    name = ("query", "key", "value")[position]
    for function in (fovea.attention, fovea.decode, fovea.scaled_dot_product_attention, fovea.reference.attention):
        if function is fovea.decode and position == 2 and thing is None:
            continue
        # The rank of a scalar is checked after its dtype.
        with pytest.raises((TypeError, ValueError)) as caught:
            function(*changed(position, thing))
        assert type(caught.value) in (TypeError, ValueError)
        assert str(caught.value).startswith(name) or "broadcast" in str(caught.value)
        for part in parts:
            assert part in str(caught.value)


class Silent:
    def __dlpack__(self, **_):
        raise BufferError("not today")

    def __dlpack_device__(self):
        return (1, 0)


class Lying(Silent):
    def __dlpack__(self, **_):
        return "a capsule"


class Nowhere(Silent):
    def __dlpack_device__(self):
        raise RuntimeError("lost")


class Confused(Silent):
    def __dlpack_device__(self):
        return ("cpu", 0)


class Interrupted(Silent):
    def __dlpack__(self, **_):
        raise KeyboardInterrupt


DLPACK = {
    "CUDA": (ValueError, Producer(K, device=(2, 1)), ["key", "CPU", "cuda:1"]),
    "ROCm": (ValueError, Producer(K, device=(10, 0)), ["key", "CPU", "rocm:0"]),
    "unknown device": (ValueError, Producer(K, device=(99, 3)), ["key", "CPU", "device 3 of DLPack's type 99"]),
    "integers": (TypeError, Producer(K.astype("int32")), ["key", "float32", "int32"]),
    "refusing": (ValueError, Silent(), ["key", "DLPack", "not today"]),
    "no capsule": (TypeError, Lying(), ["key", "capsule", "str"]),
    "no device": (ValueError, Nowhere(), ["key", "CPU", "Nowhere", "lost"]),
    "device of text": (TypeError, Confused(), ["key", "two integers"]),
    "many dimensions": (ValueError, Producer(K.reshape(2, 3, 6, 2, 2, 2, 1)), ["key", "at most 6 dimensions", "7"]),
    "the type": (TypeError, Producer, ["key", "the type", "Producer"]),
}


@pytest.mark.parametrize(("kind", "thing", "parts"), DLPACK.values(), ids=DLPACK)
def test_dlpack(kind, thing, parts):
    with raises(kind, *parts):
        fovea.attention(Q, thing, V)


def test_keyboard_interrupt_of_a_producer_propagates():
    with pytest.raises(KeyboardInterrupt):
        fovea.attention(Q, Interrupted(), V)


def test_causes_are_kept():
    with pytest.raises(ValueError, match="not today") as caught:
        fovea.attention(Q, Silent(), V)
    assert isinstance(caught.value.__cause__, BufferError)


SHAPES = {
    "no dimensions": (changed(0, Q[0, 0, 0, 0, ...]), ["query", "[length, dim]", "[]"]),
    "one dimension": (changed(0, Q[0, 0, 0]), ["query", "[length, dim]", "[8]"]),
    "five dimensions": ([a[None] for a in (Q, K, V)], ["query", "[1, 2, 3, 5, 8]"]),
    "key's rank": (changed(1, K[0]), ["key", "4 dimensions", "[3, 6, 8]"]),
    "value's rank": (changed(2, V[0]), ["value", "4 dimensions", "[3, 6, 8]"]),
    "head_dim": (changed(1, K[..., :7]), ["key", "8", "7"]),
    "kv_len": (changed(2, V[:, :, :4]), ["value", "kv_len = 6", "[2, 3, 4, 8]"]),
    "kv_heads": ([Q, K[:, :2], V[:, :2]], ["heads", "multiple", "3 and 2"]),
    "value's heads": ([Q, K, V[:, :1]], ["value", "kv_heads = 3"]),
    "batch": ([Q, K[:1], V[:1]], ["batch", "2, 1 and 1"]),
}


@pytest.mark.parametrize(("arrays", "parts"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("function", [fovea.attention, fovea.decode])
def test_shapes(function, arrays, parts):
    with raises(ValueError, *parts):
        function(*arrays)


OPTIONS = {
    "mask's kind": (TypeError, {"mask": "causal"}, ["mask", "fovea.causal()", "str"]),
    "a mask of floats": (TypeError, {"mask": np.ones((5, 6))}, ["mask", "bool", "float64"]),
    "a function as mask": (TypeError, {"mask": fovea.causal}, ["mask"]),
    "mask's shape": (ValueError, {"mask": np.ones((5, 7), bool)}, ["[2, 3, 5, 6]", "[5, 7]"]),
    "key_lengths": (ValueError, {"mask": fovea.key_lengths([1, 2, 3])}, ["key_lengths", "batch item (2)", "3"]),
    "documents": (ValueError, {"mask": fovea.documents([1] * 5)}, ["documents", "[6]", "[5]"]),
    "scale of text": (TypeError, {"scale": "1"}, ["scale", "a number", "str"]),
    "scale of an array": (TypeError, {"scale": np.ones(2)}, ["scale", "a number"]),
    "scale of a bool": (TypeError, {"scale": True}, ["scale", "a number", "bool"]),
    "scale nan": (ValueError, {"scale": float("nan")}, ["scale", "finite", "nan"]),
    "scale beyond float32": (ValueError, {"scale": 1e300}, ["scale", "float32", "1e+300"]),
    "scale beyond float64": (ValueError, {"scale": 10**400}, ["scale", "float64", "larger"]),
    "softcap": (ValueError, {"softcap": -1.0}, ["softcap", "0 (off) or more", "-1"]),
    "softcap's kind": (TypeError, {"softcap": []}, ["softcap", "a number", "list"]),
    "bias's shape": (ValueError, {"bias": np.ones((2, 6))}, ["bias", "[2, 3, 5, 6]", "[2, 6]"]),
    "bias's type": (TypeError, {"bias": np.ones((5, 6), bool)}, ["bias", "float32", "bool"]),
    "bias of a list": (TypeError, {"bias": [0.0]}, ["bias", "an array", "list"]),
    "alibi's count": (ValueError, {"alibi": [0.5]}, ["alibi", "one number per query head (3)", "1"]),
    "alibi's kind": (TypeError, {"alibi": "yes"}, ["alibi", "numbers", "str"]),
    "alibi of text": (TypeError, {"alibi": ["a", "b", "c"]}, ["alibi", "a number", "str"]),
    "alibi of none": (ValueError, {"alibi": []}, ["alibi", "none"]),
    "alibi infinite": (ValueError, {"alibi": [0.5, 0.5, float("inf")]}, ["alibi", "inf"]),
    "relative": (TypeError, {"relative": np.ones((8, 3), "f4")}, ["relative", "RelativeTable", "float32"]),
    "relative's heads": (
        ValueError,
        {"relative": fovea.RelativeTable(np.ones((8, 2), "f4"))},
        ["relative", "[8, 2]"],
    ),
    "relative's distance": (
        ValueError,
        {"relative": fovea.RelativeTable(np.ones((8, 3), "f4"), max_distance=1)},
        ["relative", "max_distance", "1"],
    ),
    "sinks": (ValueError, {"sinks": [1.0, 2.0]}, ["sinks", "(3)", "2"]),
    "sinks of none": (ValueError, {"sinks": []}, ["sinks", "none"]),
    "sinks of a set": (TypeError, {"sinks": {1.0, 2.0, 3.0}}, ["sinks", "a list or an array", "set"]),
    "alignments of a dict": (TypeError, {"alignment": {1: 2}}, ["alignment", "dict"]),
    "sinks' kind": (TypeError, {"sinks": 1.0}, ["sinks", "float"]),
    "alignment": (ValueError, {"alignment": "left"}, ["alignment", "bottom-right", "left"]),
    "alignment's kind": (TypeError, {"alignment": 1.5}, ["alignment", "float"]),
    "alignments": (ValueError, {"alignment": [1, 2, 3]}, ["alignment", "(2)", "3"]),
    "alignment too far": (ValueError, {"alignment": 1 << 50}, ["alignment", str(1 << 50)]),
    "alignment beyond 64 bits": (ValueError, {"alignment": 1 << 70}, ["alignment", "64 bits"]),
    "starts alone": (ValueError, {"query_starts": [0, 5]}, ["key_starts", "query_starts"]),
    "starts of a batch": (ValueError, {"query_starts": [0, 5], "key_starts": [0, 6]}, ["sequences", "batch 2"]),
    "no starts": (ValueError, {"query_starts": [], "key_starts": []}, ["query_starts", "none"]),
    "starts of floats": (TypeError, {"query_starts": [0.0, 5.0], "key_starts": [0, 6]}, ["query_starts", "float"]),
    "no threads": (ValueError, {"threads": 0}, ["threads", "1 or more", "0"]),
    "threads' kind": (TypeError, {"threads": 2.0}, ["threads", "an integer", "float"]),
    "many threads": (ValueError, {"threads": 1 << 40}, ["threads", str(1 << 40)]),
    "return_lse": (TypeError, {"return_lse": 1}, ["return_lse", "True or False", "int"]),
    "out's kind": (TypeError, {"out": [1.0]}, ["out", "an array", "list"]),
    "out's shape": (ValueError, {"out": np.ones((2, 3, 5, 7), "f4")}, ["out", "[2, 3, 5, 8]", "[2, 3, 5, 7]"]),
    "out's rank": (ValueError, {"out": np.ones((3, 5, 8), "f4")}, ["out", "[2, 3, 5, 8]", "[3, 5, 8]"]),
    "out's type": (ValueError, {"out": np.ones((2, 3, 5, 8))}, ["out", "float32", "float64"]),
    "out of integers": (TypeError, {"out": np.ones((2, 3, 5, 8), int)}, ["out", "int64"]),
    "out read-only": (ValueError, {"out": read_only(np.ones((2, 3, 5, 8), "f4"))}, ["out", "read-only"]),
    "out repeats": (
        ValueError,
        {"out": np.lib.stride_tricks.as_strided(np.ones(8, "f4"), (2, 3, 5, 8), (0, 0, 0, 4))},
        ["out", "element in memory for each index"],
    ),
    "out's rows": (ValueError, {"out": np.ones((2, 3, 5, 16), "f4")[..., ::2]}, ["out", "contiguous last dimension"]),
    "out not aligned": (
        ValueError,
        {"out": np.frombuffer(bytearray(961), "f4", offset=1, count=240).reshape(2, 3, 5, 8)},
        ["out", "aligned"],
    ),
}


@pytest.mark.parametrize(("kind", "options", "parts"), OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("function", [fovea.attention, fovea.decode])
def test_options(function, kind, options, parts):
    with raises(kind, *parts):
        function(Q, K, V, **options)


def test_overlapping_out():
    query = Q.copy()
    before = query.copy()
    with raises(ValueError, "out: expected memory of its own", "query"):
        fovea.attention(query, K, V, out=query)
    both = np.zeros((3, 3, 5, 8), np.float32)
    with raises(ValueError, "out: expected memory of its own", "value"):
        fovea.attention(Q[:, :, :5], K[:, :, :5], both[1:], out=both[:2])
    assert np.array_equal(query, before)
    visible = np.ones((5, 5 * 3 * 4), bool)
    with raises(ValueError, "out: expected memory of its own", "mask"):
        fovea.attention(
            query[0, 0],
            K[0, 0],
            V[0, 0],
            mask=visible[:, : len(K[0, 0])],
            out=visible.view(np.float32)[:, : V.shape[-1]],
        )


def test_out_is_untouched_by_errors():
    out = np.full((2, 3, 5, 8), 7, np.float32)
    for options in ({"scale": float("inf")}, {"sinks": [1.0]}, {"mask": np.ones((9, 9), bool)}):
        with pytest.raises(ValueError, match=r"expected"):
            fovea.attention(Q, K, V, out=out, **options)
    assert np.all(out == 7)


@pytest.mark.parametrize("position", range(3))
def test_float64_among_others(position):
    arrays = changed(position, (Q, K, V)[position].astype("float64"))
    with raises(ValueError, "dtype", "float64", "float32"):
        fovea.attention(*arrays)


def huge(shape):
    return np.lib.stride_tricks.as_strided(np.ones(64, np.float32), shape, (0,) * (len(shape) - 1) + (4,))


def test_sizes_beyond_memory():
    with pytest.raises(MemoryError):
        fovea.attention(huge((1 << 45, 64)), K[0, 0, :, :1].repeat(64, 1), V[0, 0])
    # Products of extents that overflow 64 bits.
    with pytest.raises((MemoryError, ValueError)):
        fovea.attention(huge((1 << 30, 1 << 30, 1, 64)), huge((1 << 30, 1, 1, 64)), huge((1 << 30, 1, 1, 64)))
    with pytest.raises((MemoryError, ValueError)):
        fovea.causal().matrix(1 << 40, 1 << 40)


def test_errors_leak_nothing():
    bad = np.ones((2, 3, 5, 8), np.int32)
    cases = [((Q, K, bad), {}), ((Q, K, V), {"sinks": [1.0]}), ((Q, K, V), {"out": bad})]
    gc.collect()
    counts = [sys.getrefcount(x) for x in (Q, K, V, bad)]
    for arrays, options in 100 * cases:
        with contextlib.suppress(TypeError, ValueError):
            fovea.attention(*arrays, **options)
    gc.collect()
    assert [sys.getrefcount(x) for x in (Q, K, V, bad)] == counts


def test_bfloat16_cache_with_other_arrays():
    # The result has the dtype of the query, not of the cache.
    cache = fovea.KvCache(dtype="bfloat16", head_dim=8)
    cache.append(K[0, 0].astype(BFLOAT16), V[0, 0])
    assert fovea.decode(Q[0, 0], cache).dtype == np.float32


CACHE = fovea.KvCache(head_dim=8)
CALLS = {
    "an integer": (TypeError, lambda: fovea.window("a", 3), ["left: expected an integer, got str"]),
    "a float": (TypeError, lambda: fovea.window(3, 1.5), ["right: expected an integer, got float"]),
    "None": (TypeError, lambda: fovea.prefix(None), ["n: expected an integer, got None"]),
    "a number": (TypeError, lambda: fovea.Rotary(base="x"), ["base: expected a number, got str"]),
    "numbers": (
        TypeError,
        lambda: fovea.Rotary(inverse_frequencies=["x"]),
        ["inverse_frequencies: expected a number, got str"],
    ),
    "no numbers": (
        ValueError,
        lambda: fovea.Rotary(inverse_frequencies=[]),
        ["inverse_frequencies: expected one number per pair, got none"],
    ),
    "integers of uint64": (
        ValueError,
        lambda: fovea.documents(np.array([5, (1 << 64) - 1], "uint64")),
        ["query_ids: expected integers below 2^63, got", str((1 << 64) - 1)],
    ),
    "no path": (TypeError, lambda: fovea.Recording(None), ["path: expected a str or a path, got None"]),
    "a matrix and a mask": (TypeError, lambda: np.ones((0, 4), bool) & fovea.causal(), ["fovea.dense(array)"]),
    "a mask and a matrix": (TypeError, lambda: fovea.causal() | np.ones((4, 4), bool), ["fovea.dense(array)"]),
    "a choice": (TypeError, lambda: fovea.Rotary(pairs=2), ['pairs: expected "halves" or "interleaved", got int']),
    "an array": (TypeError, lambda: CACHE.append(None, None), ["key: expected an array, got None"]),
    "arrays of two ranks": (
        ValueError,
        lambda: CACHE.append(K, V[0, 0]),
        ["value: expected 4 dimensions as key has, got"],
    ),
    "an object": (
        TypeError,
        lambda: CACHE.append(K[0, 0], V[0, 0], rotary=8),
        ["rotary: expected a fovea.Rotary or None, got int"],
    ),
    "a sign": (ValueError, lambda: fovea.random.RandomState(-1), ["seed: expected 0 or more, got -1"]),
    "64 bits": (ValueError, lambda: fovea.prefix(1 << 70), ["n: expected an integer of 64 bits, got", str(1 << 70)]),
    "a surrogate": (ValueError, lambda: fovea.Scene.parse("\ud800"), ["json: expected text that UTF-8", r"\ud800"]),
    "a surrogate in a list": (
        ValueError,
        lambda: fovea.Recording.write("x", [{"name": "x", "query": Q[0], "key": K[0], "key_tokens": 6 * ["\ud800"]}]),
        [r"expected text that UTF-8 can encode, got '\ud800'"],
    ),
    "too many": (TypeError, lambda: fovea.causal(3), ["causal() takes 0 positional arguments but 1 were given"]),
    "keyword-only": (
        TypeError,
        lambda: fovea.Rotary(1.0),
        ["Rotary() takes 0 positional arguments but 1 were given; the others have names: base, dims"],
    ),
    "missing": (TypeError, lambda: fovea.window(3), ["window() missing the required argument 'right'"]),
    "missing in a class": (TypeError, fovea.KvCache, ["KvCache() missing the required argument 'head_dim'"]),
    "unknown": (
        TypeError,
        lambda: fovea.window(3, rigth=3),
        ["window() got an unexpected keyword argument 'rigth'; there are left, right"],
    ),
    "twice": (TypeError, lambda: fovea.window(3, left=3), ["window() got multiple values for argument 'left'"]),
}


@pytest.mark.parametrize(("kind", "call", "parts"), CALLS.values(), ids=CALLS)
def test_calls_of_small_functions(kind, call, parts):
    with raises(kind, *parts):
        call()


def members(module):
    for name, value in vars(module).items():
        yield name, value
        if isinstance(value, type):
            for member, part in vars(value).items():
                yield f"{name}.{member}", part
                yield f"{name}.{member}", getattr(part, "fset", None)


class Strange:
    """Fits no parameter."""


@pytest.mark.parametrize("module", [fovea._fovea, _nn])
def test_no_error_shows_a_signature(module):
    """Calls every function of the extension modules with wrong arguments, by position and by name."""
    found = {name: value for name, value in members(module) if hasattr(value, "__nb_signature__")}
    assert len(found) > 40
    for name, function in found.items():
        for arguments, keywords in (([Strange()] * 40, {}), ([], {"strange": Strange()}), ([], {})):
            try:
                function(*arguments, **keywords)
            except (TypeError, ValueError) as error:
                message = str(error)
                assert "\n" not in message, name
                assert not re.search("incompatible|Invoked|->|_fovea|_nn|typing", message), f"{name}: {message}"
