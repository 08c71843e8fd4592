# SPDX-License-Identifier: Apache-2.0
"""Uses of the package for a type checker (test_types.py). Only the lines marked as wrong have type errors."""

import pathlib
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import fovea
from fovea import distributed, nn

Floats = NDArray[np.float32]


def attend(query: Floats, key: Floats, value: Floats, out: Floats) -> None:
    assert_type(fovea.attention(query, key, value), Floats)
    assert_type(fovea.attention(query, key, value, return_lse=True), tuple[Floats, Any])
    assert_type(fovea.attention(query, key, value, out=out), Floats)
    assert_type(fovea.attention(memoryview(bytes(96)), key, value), NDArray[Any])
    mask = fovea.causal() & fovea.window(3, 0) | fovea.prefix(2)
    assert_type(mask, fovea.Mask)
    assert_type(mask.matrix(3, 3), NDArray[np.bool_])
    fovea.attention(query, key, value, mask=mask, scale=0.5, softcap=30, alibi=True, sinks=[0.5], threads=2)
    fovea.attention(query, key, value, mask=np.ones((3, 3), np.bool_), alignment="top-left", bias=query)
    fovea.attention(query, key, value, mask=fovea.key_lengths([3]) & fovea.documents([1, 2]), alignment=[1, 2])
    fovea.attention(query, key, value, relative=fovea.RelativeTable(query, bidirectional=False))
    assert_type(fovea.scaled_dot_product_attention(query, key, value, is_causal=True), Floats)
    assert_type(fovea.reference.attention(query, key, value), NDArray[np.float64])
    assert_type(fovea.reference.attention_steps(query, key, value).visible, NDArray[np.bool_])

    fovea.attention(query, key)  # wrong: no value
    fovea.attention([[1.0]], key, value)  # wrong: a list
    fovea.attention(query, key, value, mask="causal")  # wrong: not a mask
    fovea.attention(query, key, value, threads=1.5)  # wrong: not an integer
    fovea.attention(query, key, value, fovea.causal())  # wrong: keyword-only
    fovea.causal() & True  # wrong: not a mask


def train(query: Floats, key: Floats, value: Floats) -> None:
    dropout = fovea.Dropout(0.1, seed=7, call=2)
    assert_type(dropout.kept(2, 3), NDArray[np.bool_])
    context, lse = fovea.attention(query, key, value, dropout=dropout, return_lse=True)
    found = fovea.attention_backward(query, key, value, context, lse, context, mask=fovea.causal(), dropout=dropout)
    assert_type(found, fovea.Gradients[Floats])
    grad_query, _, _ = found
    assert_type(grad_query, Floats)
    assert_type(found.value, Floats)
    fovea.attention_backward(query, key, value, context, lse, context, grad_lse=lse, wanted=["key", "relevance"])
    assert_type(fovea.reference.attention_gradients(query, key, value, grad_weights=query).key, NDArray[Any])
    fovea.manual_seed(42)

    fovea.attention_backward(query, key, value, context, lse)  # wrong: no gradient
    fovea.attention_backward(query, key, value, context, lse, context, wanted=["mask"])  # wrong: has no gradient
    fovea.attention(query, key, value, dropout=0.1)  # wrong: not a Dropout


def shard(query: Floats, key: Floats, value: Floats) -> None:
    sharding = distributed.Sharding.zigzag(100, 4)
    assert_type(sharding.ranges(3), list[tuple[int, int]])
    part = distributed.shard(query, sharding, 3)
    assert_type(part, Floats)
    assert_type(distributed.attention(part, key, value, sharding=sharding, mask=fovea.causal()), Floats)
    assert_type(distributed.attention(query, key, value, sharding="zigzag", return_lse=True), tuple[Floats, Any])
    distributed.attention(query, key, value, group=None, key_sharding="contiguous", timeout=30, alibi=True, sinks=[0.5])

    distributed.attention(query, key, value, sharding="spiral")  # wrong: no such sharding
    distributed.attention(query, key, value, lenses=fovea.Lenses())  # wrong: no such keyword
    distributed.attention(query, key, value, mask="causal")  # wrong: not a mask
    distributed.shard(query, "zigzag", 3)  # wrong: not a Sharding


def look(query: Floats, key: Floats, value: Floats) -> None:
    lenses = fovea.Lenses(statistics=True, top=8, map=(64, 64), reduce="mean", pairs=True)
    assert_type(fovea.attention(query, key, value, lenses=lenses), tuple[Floats, fovea.Seen])
    assert_type(fovea.attention(query, key, value, lenses=lenses, return_lse=True), tuple[Floats, Any, fovea.Seen])
    assert_type(fovea.decode(query, key, value, lenses=lenses), tuple[Floats, fovea.Seen])
    context, lse, seen = fovea.attention(query, key, value, out=value, lenses=lenses, return_lse=True)
    assert_type(context, Floats)
    print(seen.entropy.mean(), seen.top_keys[0], lenses.map, lenses.reduce)
    assert_type(fovea.weights(query, key, rows=slice(3, 5), cols=(0, 2), head=1, lse=lse, scale=0.5), NDArray[Any])
    assert_type(fovea.heads(query, key, blocks=4, mask=fovea.causal(), threads=2), fovea.HeadSummary)
    assert_type(fovea.heads(query, key).own_key, NDArray[Any])
    w = fovea.Weights(query, key, mask=fovea.causal(), alibi=True, batch=1, head=2, lse=lse)
    assert_type(w.shape, tuple[int, int])
    assert_type(w[3], NDArray[Any])
    assert_type(w[3, 4], np.floating[Any])
    assert_type(w[3:, -4], NDArray[Any])
    assert_type(w[:, :].T, NDArray[Any])
    assert_type(w.top(3), tuple[NDArray[np.int64], NDArray[Any]])
    assert_type(w.statistics(), fovea.Seen)
    assert_type(w.pool(3, 4, "max"), NDArray[Any])
    assert_type(w.pool(3, 4, queries=slice(3, 9), keys=slice(-4, None)), NDArray[Any])
    assert_type(w.scores[3, 4], np.floating[Any])
    assert_type(w.scores[3:, :4], NDArray[Any])
    assert_type(w.received(recent=3), fovea.Received)
    assert_type(fovea.received(query, key, bins=8, lse=lse, softcap=30), fovea.Received)
    assert_type(fovea.map(query, key, (3, 4), reduce="max", heads="mean", mask=fovea.causal()), NDArray[Any])

    fovea.Lenses(map=3)  # wrong: not a pair
    fovea.Lenses(map=(3, 4), reduce="median")  # wrong: no such reduction
    fovea.attention(query, key, value, lenses=True)  # wrong: not a Lenses
    fovea.decode(query, key, value, lenses=3)  # wrong: not a Lenses
    fovea.weights(query, key, value)  # wrong: takes no value
    fovea.heads(query, key, blocks=0.5)  # wrong: not an integer
    fovea.weights(query, key, rows=3)  # wrong: not a range
    fovea.weights(query, key, dropout=fovea.Dropout(0.1))  # wrong: no such keyword
    w[0.5]  # wrong: not an index
    w[1, 2, 3]  # wrong: too many indices
    w.pool(3, 4, "median")  # wrong: no such reduction
    fovea.map(query, key, 3)  # wrong: not a pair
    fovea.map(query, key, (3, 4), heads="sum")  # wrong: no such reduction


def learn(x: Floats, path: pathlib.Path) -> None:
    model = nn.Model(seed=3, dtype="float64")
    layer = nn.TransformerDecoderLayer(64, 4, 256, activation="gelu", norm="before", model=model, name="decoder")
    assert_type(layer.forward(x, x, mask=fovea.causal(), memory_mask=fovea.key_lengths([3])), NDArray[Any])
    assert_type(layer.backward(x), tuple[NDArray[Any], NDArray[Any]])
    layer.parameters["decoder.norm1.weight"][...] = 1
    loss, adam = nn.CrossEntropy(ignored=0), nn.Adam(model, weight_decay=0.01)
    assert_type(loss.forward(x, [1, 2]), float)
    assert_type(nn.clip_gradients(layer, 1.0), float)
    adam.step(nn.Schedule(kind="cosine", total=10).rate(adam.steps))
    nn.save(model, path)
    nn.Linear(3, 2, dtype="float16")  # wrong: unsupported dtype
    nn.FeedForward(3, 2, "tanh")  # wrong: no such activation
    layer.parameters["decoder.norm1.weight"] = x  # wrong: read-only mapping
    nn.Embedding(3, 2).forward(fovea.causal())  # wrong: not tokens
    layer.forward(x)  # wrong: memory is missing


def generate(query: Floats, key: Floats, value: Floats) -> Floats:
    rotary = fovea.Rotary(base=500000.0)
    cache = fovea.KvCache(dtype="bfloat16", kv_heads=8, head_dim=128)
    cache.append(key, value, rotary=rotary)
    assert_type(len(cache), int)
    assert_type(fovea.apply_rotary(query, cache.length, rotary), Floats)
    fovea.KvCache(dtype="int8", head_dim=128)  # wrong: unsupported dtype
    return fovea.decode(query, cache, mask=fovea.window(1023, 0))


def analyse(path: pathlib.Path) -> None:
    recording = fovea.Recording(path)
    assert_type(recording.rollout(-1, kind="encoder"), NDArray[np.float64])
    norms = recording[0].value_norms(np.ones((4, 3, 2)))
    assert_type(recording[0].value_weighted(8, (2, 3), reduce="max", norms=norms), NDArray[np.float32])
    print(fovea.diff(recording, path)["mean"].max(), recording.heads()["pattern"])
    recording.rollout("cat")  # wrong: not an index
    recording[0].value_weighted(8, norms="l2")  # wrong: not an array
    fovea.diff(path, 3)  # wrong: not a recording


def explain(path: pathlib.Path) -> str:
    trace = fovea.explain("a b c", causal=True)
    assert_type(trace, fovea.Trace)
    assert_type(trace.names(), list[str])
    assert_type([step.title for step in trace.steps], list[str])
    fovea.explain(path, query="b")
    fovea.explain(fovea.Scene.load(path))
    words = np.eye(3)
    assert_type(fovea.explain(embeddings=words, w_query=words, w_key=words, w_value=words, focus=-1), fovea.Trace)
    fovea.explain(query=[[1, 2]], key=words, value=words, scale=1, mask=fovea.causal(), focus=(0, np.int64(1)))
    fovea.explain("a b c", tokens=[1, 2], projections="random", normalizations=["naive", "softmax"], dtype=np.float32)
    assert_type(trace.scene.with_focus(1).with_focus("a"), fovea.Scene)
    fovea.explain(3)  # wrong: not a scene
    fovea.explain(embeding=words)  # wrong: no such argument
    fovea.explain("a b c", focus=1.5)  # wrong: not a word or a position
    trace.scene.with_focus(1.5)  # wrong: not a word or a position
    random = fovea.random.RandomState(42)
    print(random.randint(0, 10, size=(2, 3)), random.rand(3), fovea.info().version)
    return trace.to_html() + trace.to_html(compare=trace)
