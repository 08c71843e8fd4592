# SPDX-License-Identifier: Apache-2.0
"""Tests the errors of layers."""

import numpy as np
import pytest
from problems import raises

import fovea
from fovea import nn

ONES = np.ones((2, 3, 8), np.float32)
MISTAKES = {
    "float64": (
        lambda: nn.Linear(8, 2).forward(ONES.astype("float64")),
        ValueError,
        ["x: expected float32", "float64"],
    ),
    "float16": (
        lambda: nn.Dropout(0.1).forward(ONES.astype("float16")),
        ValueError,
        ["x: expected float32", "float16"],
    ),
    "integers": (lambda: nn.LayerNorm(8).forward(ONES.astype(int)), TypeError, ["x: expected an array of float32"]),
    "a list": (lambda: nn.LayerNorm(8).forward([[1.0] * 8]), TypeError, ["x: expected an array", "got list"]),
    "width": (lambda: nn.Linear(7, 2).forward(ONES), ValueError, ["x: expected [..., 7], got [2, 3, 8]"]),
    "a number": (lambda: nn.Linear(1, 2).forward(np.float32(3)), ValueError, ["x: expected [..., 1]"]),
    "none": (lambda: nn.LayerNorm(8).forward(None), TypeError, ["x: expected an array, got None"]),
    "two dimensions": (
        lambda: nn.MultiHeadAttention(8, 2).forward(ONES[0]),
        ValueError,
        ["x: expected [batch, length, width], got [3, 8]"],
    ),
    "another batch": (
        lambda: nn.MultiHeadAttention(8, 2).forward(ONES, ONES[:1]),
        ValueError,
        ["memory: expected [2, kv_len, 8], got [1, 3, 8]"],
    ),
    "mask": (
        lambda: nn.MultiHeadAttention(8, 2).forward(ONES, mask="causal"),
        TypeError,
        ["mask: expected a fovea.Mask"],
    ),
    "mask of floats": (
        lambda: nn.MultiHeadAttention(8, 2).forward(ONES, mask=ONES),
        TypeError,
        ["mask: expected", "bool"],
    ),
    "mask of another size": (
        lambda: nn.TransformerEncoderLayer(8, 2, 4).forward(ONES, mask=fovea.key_lengths([1, 2, 3])),
        ValueError,
        ["key_lengths"],
    ),
    "lengths": (
        lambda: nn.Transformer(1, 1, 8, 2, 4).forward(ONES, ONES, source_lengths=[1.5, 2]),
        TypeError,
        ["source_lengths: expected an integer, got float"],
    ),
    "heads": (lambda: nn.MultiHeadAttention(8, 3), ValueError, ["heads: expected a divisor of width 8, got 3"]),
    "kv_heads": (
        lambda: nn.MultiHeadAttention(8, 4, kv_heads=3),
        ValueError,
        ["kv_heads: expected a divisor of heads 4"],
    ),
    "rotary": (
        lambda: nn.MultiHeadAttention(6, 2, rotary=fovea.Rotary()),
        ValueError,
        ["rotary: expected an even number of dims to rotate, got 3"],
    ),
    "rotary of a block": (
        lambda: nn.Transformer(1, 1, 8, 2, 4, rotary=fovea.Rotary(dims=6)),
        ValueError,
        ["rotary: expected dims from 0 (all) to head_dim = 4, got 6"],
    ),
    "dropout": (lambda: nn.Dropout(1.0), ValueError, ["dropout: expected a probability in [0, 1), got 1"]),
    "features": (lambda: nn.Linear(0, 2), ValueError, ["in: expected 1 or more features, got 0"]),
    "no features": (lambda: nn.FeedForward(8, 0), ValueError, ["out: expected 1 or more features, got 0"]),
    "negative": (lambda: nn.Embedding(-1, 2), ValueError, ["-1"]),
    "activation": (
        lambda: nn.FeedForward(8, 4, "tanh"),
        ValueError,
        ['activation: expected "relu" or "gelu", got "tanh"'],
    ),
    "norm": (
        lambda: nn.TransformerEncoderLayer(8, 2, 4, norm="first"),
        ValueError,
        ['norm: expected "after" or "before"'],
    ),
    "kind": (lambda: nn.Positions("rotary", 8, 8), ValueError, ['kind: expected "none", "sinusoidal" or "learned"']),
    "dtype": (lambda: nn.Linear(8, 2, dtype="float16"), ValueError, ['dtype: expected "float32" or "float64"']),
    "seed": (lambda: nn.Model(seed=-1), ValueError, ["seed: expected 0 to 2^32 - 1, got -1"]),
    "seed of 64 bits": (lambda: nn.Linear(8, 2, seed=2**32), ValueError, ["seed: expected"]),
    "step": (lambda: nn.Linear(8, 2).train(-1), ValueError, ["step: expected 0 to 2^32 - 1, got -1"]),
    "tokens": (lambda: nn.Embedding(3, 2).forward([0, 3]), ValueError, ["tokens: expected 0 to 2, got 3"]),
    "tokens of floats": (lambda: nn.Embedding(3, 2).forward([0.5]), TypeError, ["tokens: expected integers"]),
    "padding": (lambda: nn.Embedding(3, 2, padding=3), ValueError, ["padding: expected 0 to 2, got 3"]),
    "places": (
        lambda: nn.Positions("learned", 4, 8).forward(ONES, first=2),
        ValueError,
        ["x: expected positions within 4, got 3 from 2 on"],
    ),
    "targets": (
        lambda: nn.CrossEntropy().forward(ONES, [[0, 1, 2], [3, 4, 8]]),
        ValueError,
        ["targets: expected 0 to 7, got 8"],
    ),
    "shape of targets": (
        lambda: nn.CrossEntropy().forward(ONES, [0, 1]),
        ValueError,
        ["targets: expected int64 [2, 3]"],
    ),
    "smoothing": (lambda: nn.CrossEntropy(label_smoothing=1), ValueError, ["label_smoothing: expected a share"]),
    "no forward": (lambda: nn.Linear(8, 2).backward(ONES), RuntimeError, ["backward: expected a forward before it"]),
    "no loss": (lambda: nn.CrossEntropy().backward(), RuntimeError, ["backward: expected a forward before it"]),
    "no weights": (
        lambda: nn.MultiHeadAttention(8, 2).weights(),
        RuntimeError,
        ["weights: expected a forward before it"],
    ),
    "beta": (lambda: nn.Adam(nn.Linear(1, 1), beta1=1.0), ValueError, ["beta1: expected a number in [0, 1), got 1"]),
    "rate": (lambda: nn.Adam(nn.Linear(1, 1)).step(-1), ValueError, ["learning_rate: expected a number from 0 on"]),
    "a word": (lambda: nn.Linear(8, "two"), TypeError, ["out_features: expected an integer, got str"]),
    "no model": (lambda: nn.Linear(8, 2, model=8), TypeError, ["model: expected a fovea.nn.Model or None, got int"]),
    "missing": (lambda: nn.Linear(8), TypeError, ["Linear() missing the required argument 'out_features'"]),
    "steps": (
        lambda: setattr(nn.Adam(nn.Linear(1, 1)), "steps", 1.5),
        TypeError,
        ["steps: expected an integer, got float"],
    ),
    "norm to clip": (lambda: nn.clip_gradients(nn.Linear(1, 1), 0.0), ValueError, ["largest: expected a norm above 0"]),
    "threads": (lambda: nn.set_threads(0), ValueError, ["threads: expected 1 or more"]),
}


@pytest.mark.parametrize(("call", "kind", "parts"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(call, kind, parts):
    with raises(kind, *parts):
        call()
