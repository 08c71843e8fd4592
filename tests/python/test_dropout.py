# SPDX-License-Identifier: Apache-2.0
"""Tests dropout: the dropped weights against Philox in NumPy; the stream of manual_seed()."""

import concurrent.futures

import numpy as np
import pytest
from problems import FLOATS, assert_as_exact, raises, tensors

import fovea


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al. 2011): four 32-bit words for each counter."""
    x = [np.asarray(word, np.uint64) for word in counter]
    key = list(key)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        low = np.uint64(0xFFFFFFFF)
        x = [(b >> np.uint64(32)) ^ x[1] ^ key[0], b & low, (a >> np.uint64(32)) ^ x[3] ^ key[1], a & low]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return x


def expected(dropout, batch, heads, q_len, kv_len):
    """Returns the kept weights [batch, heads, q_len, kv_len]; four consecutive keys share a counter."""
    head, query, key = np.ogrid[: batch * heads, :q_len, :kv_len]
    counter = np.broadcast_arrays(key // 4, query, head, np.uint64(dropout.call))
    words = philox(counter, [np.uint64(dropout.seed % 2**32), np.uint64(dropout.seed >> 32)])
    word = np.choose(np.broadcast_to(key % 4, counter[0].shape), words)
    return (word >= np.floor(dropout.probability * 2**32)).reshape(batch, heads, q_len, kv_len)


def test_philox():
    """Two of Random123's known-answer tests."""
    full = 2**32 - 1
    zeros = philox([0] * 4, [np.uint64(0)] * 2)
    assert [f"{int(word):08x}" for word in zeros] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = philox([full] * 4, [np.uint64(full)] * 2)
    assert [f"{int(word):08x}" for word in ones] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.999])
def test_kept_weights(probability):
    dropout = fovea.Dropout(probability, seed=2**63 + 12345, call=2**32 - 1)
    kept = dropout.kept(2, 3, 5, 11)
    assert kept.dtype == np.bool_
    assert np.array_equal(kept, expected(dropout, 2, 3, 5, 11))
    assert np.array_equal(dropout.kept(3, 5, 11), kept[0])
    assert np.array_equal(dropout.kept(5, 11), kept[0, 0])
    assert np.array_equal(dropout.kept(4, 7), kept[0, 0, :4, :7])
    assert dropout.kept(0, 3, 0, 2).shape == (0, 3, 0, 2)


def test_share():
    share = fovea.Dropout(0.25, seed=8).kept(1000, 1000).mean()
    assert abs(share - 0.75) < 4 * np.sqrt(0.25 * 0.75 / 1e6)


@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_context(dtype, kv_heads):
    """Kept weights are divided by 1 - probability; lse does not depend on dropout, except that without dropout heads
    of one key head may be computed together, which rounds in another order."""
    query, key, value = tensors((2, 4, 9, 16), kv_len=21, kv_heads=kv_heads, dtype=dtype)
    dropout = fovea.Dropout(0.3, seed=4, call=1)
    context, lse = fovea.attention(query, key, value, mask=fovea.causal(), dropout=dropout, return_lse=True)
    assert_as_exact(context, query, key, value, mask=fovea.causal(), dropout=dropout)
    plain_lse = fovea.attention(query, key, value, mask=fovea.causal(), return_lse=True)[1]
    np.testing.assert_allclose(lse, plain_lse, rtol=4 * np.finfo(lse.dtype).eps)
    assert kv_heads < 4 or np.array_equal(lse, plain_lse)
    steps = fovea.reference.attention_steps(query, key, value, mask=fovea.causal(), dropout=dropout)
    kept = dropout.kept(2, 4, 9, 21)
    np.testing.assert_allclose(steps.dropped_weights, steps.weights * kept / 0.7, rtol=1e-12)
    plain = fovea.reference.attention_steps(query, key, value, mask=fovea.causal())
    assert plain.dropped_weights is None
    assert np.array_equal(plain.weights, steps.weights)


def test_decoding():
    query, key, value = tensors((4, 1, 8), kv_len=70, kv_heads=2)
    dropout = fovea.Dropout(0.5, seed=2)
    found = fovea.decode(query, key, value, dropout=dropout)
    assert np.array_equal(found, fovea.attention(query, key, value, dropout=dropout))
    assert not np.array_equal(found, fovea.decode(query, key, value))


def test_no_dropout_and_probability_0():
    query, key, value = tensors((2, 5, 8))
    right = fovea.attention(query, key, value)
    assert np.array_equal(fovea.attention(query, key, value, dropout=None), right)
    assert np.array_equal(fovea.attention(query, key, value, dropout=fovea.Dropout(0, seed=1)), right)


def test_packed_sequences_index_like_batch_items():
    query, key, value = tensors((2, 9, 8))
    dropout = fovea.Dropout(0.5, seed=1)
    packed = fovea.attention(query, key, value, query_starts=[0, 4, 9], key_starts=[0, 4, 9], dropout=dropout)
    kept = dropout.kept(2, 2, 5, 5)
    for item, at in enumerate((slice(0, 4), slice(4, 9))):
        weights = fovea.reference.attention_steps(query[:, at], key[:, at], value[:, at]).weights[0]
        right = 2 * (weights * kept[item, :, : at.stop - at.start, : at.stop - at.start]) @ value[:, at]
        np.testing.assert_allclose(packed[:, at], right, rtol=1e-5, atol=1e-6)


def test_the_stream():
    fovea.manual_seed(7)
    drawn = [fovea.Dropout(0.1) for _ in range(3)]
    assert [(d.probability, d.seed, d.call) for d in drawn] == [(0.1, 7, 0), (0.1, 7, 1), (0.1, 7, 2)]
    assert repr(drawn[1]) == "Dropout(0.1, seed=7, call=1)"
    explicit = fovea.Dropout(0.1, seed=9)
    assert (explicit.seed, explicit.call) == (9, 0)
    assert fovea.Dropout(0.2).call == 3
    fovea.manual_seed(2**64 - 1)
    assert (fovea.Dropout(0.1).seed, fovea.Dropout(0.1).call) == (2**64 - 1, 1)


def test_threads_share_the_stream():
    fovea.manual_seed(1)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        calls = list(pool.map(lambda _: fovea.Dropout(0.5).call, range(4000)))
    assert sorted(calls) == list(range(4000))


def test_scaled_dot_product_attention():
    """Each call uses the next call number; with dimensions before batch and heads, each of their indices uses one."""
    arrays = tensors((2, 3, 5, 8), kv_len=6)
    for _ in range(2):
        fovea.manual_seed(5)
        for call in range(3):
            found = fovea.scaled_dot_product_attention(*arrays, dropout_p=0.4)
            right = fovea.attention(*arrays, dropout=fovea.Dropout(0.4, seed=5, call=call))
            assert np.array_equal(found, right)
    plain = fovea.scaled_dot_product_attention(*arrays, dropout_p=0.0)
    assert np.array_equal(plain, fovea.attention(*arrays))
    assert fovea.Dropout(0.4).call == 3
    many = tensors((4, 2, 3, 5, 8))
    found = fovea.scaled_dot_product_attention(*many, dropout_p=0.4)
    for call in range(4):
        right = fovea.attention(*(a[call] for a in many), dropout=fovea.Dropout(0.4, seed=5, call=4 + call))
        assert np.array_equal(found[call], right)
    assert fovea.Dropout(0.4).call == 8


def test_a_refused_call_takes_no_call_number():
    query, key, value = tensors((2, 5, 8))
    fovea.manual_seed(2)
    with raises(ValueError, "attn_mask"):
        fovea.scaled_dot_product_attention(query, key, value, np.ones((4, 5), bool), 0.5)
    with raises(ValueError, "dropout_p", "from 0 up to, but not, 1", "1"):
        fovea.scaled_dot_product_attention(query, key, value, dropout_p=1.0)
    assert fovea.Dropout(0.5).call == 0


def test_refused():
    for probability in (1.0, -0.1, float("nan"), 2):
        with raises(ValueError, "probability", "from 0 up to, but not, 1", f"{probability:g}"):
            fovea.Dropout(probability)
    with raises(TypeError, "probability", "a number", "str"):
        fovea.Dropout("0.1")
    with raises(ValueError, "call", "without a seed"):
        fovea.Dropout(0.1, call=3)
    with raises(ValueError, "seed", "18446744073709551615", "-1"):
        fovea.Dropout(0.1, seed=-1)
    with raises(ValueError, "seed", "18446744073709551616"):
        fovea.manual_seed(2**64)
    with raises(ValueError, "call", "4294967295", "4294967296"):
        fovea.Dropout(0.1, seed=1, call=2**32)
    with raises(TypeError, "seed", "an integer", "float"):
        fovea.manual_seed(1.0)
    dropout = fovea.Dropout(0.1, seed=1)
    with raises(ValueError, "shape", "1 dimensions"):
        dropout.kept(5)
    with raises(ValueError, "shape", "-1"):
        dropout.kept(2, -1)
    with raises(TypeError, "shape", "float"):
        dropout.kept(2, 1.5)
    query, key, value = tensors((5, 8))
    with raises(TypeError, "dropout", "fovea.Dropout", "float"):
        fovea.attention(query, key, value, dropout=0.1)
