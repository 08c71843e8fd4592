# SPDX-License-Identifier: Apache-2.0
"""Tests fovea.Recording on recordings made from arrays. Recordings of models are tested in test_record.py."""

import os
import pathlib
import re
import sys

import ml_dtypes
import numpy as np
import pytest

import fovea

HEADS, KEY_HEADS, QUERIES, KEYS, DIM = 4, 2, 7, 9, 8


def arrays(seed=0, batch=2, dtype=np.float32):
    random = np.random.default_rng(seed)
    query = random.standard_normal((batch, HEADS, QUERIES, DIM)).astype(dtype)
    key, value = random.standard_normal((2, batch, KEY_HEADS, KEYS, DIM)).astype(dtype)
    return query, key, value


OPTIONS = {
    "nothing": {},
    "rules": {"mask": (fovea.causal() | fovea.prefix(2)) & fovea.window(5, -1) & fovea.key_lengths([9, 6])},
    "documents": {"mask": fovea.documents(np.arange(QUERIES) // 3, np.arange(KEYS) // 4)},
    "dense": {"mask": np.tri(QUERIES, KEYS, 2, dtype=bool)},
    "score": {"scale": 0.3, "softcap": 4.0, "sinks": [0.5, -1.0, 0.0, 2.0], "alignment": "top-left"},
    "biases": {"bias": np.linspace(-1, 1, QUERIES * KEYS, dtype=np.float32).reshape(QUERIES, KEYS), "alibi": True},
    "slopes": {"alibi": [0.5, 0.25, 0.125, 0.0625], "alignment": [1, 3], "mask": fovea.causal()},
    "table": {"relative": fovea.RelativeTable(np.linspace(-2, 2, 24).reshape(6, HEADS), bidirectional=False)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_round_trip(name, tmp_path):
    options = OPTIONS[name]
    query, key, value = arrays()
    lse = fovea.attention(query, key, value, return_lse=True, **options)[1]
    path = tmp_path / "run.safetensors"
    fovea.Recording.write(path, [{"name": "a.0", "query": query, "key": key, "value": value, **options}])
    each = fovea.Recording(path)[0]
    for found, given in ((each.query, query), (each.key, key), (each.value, value), (each.lse, lse)):
        np.testing.assert_array_equal(found, given)
        assert not found.flags.writeable
    for item in range(2):
        for head in range(HEADS):
            right = fovea.Weights(query, key, lse=lse, batch=item, head=head, **options)
            np.testing.assert_array_equal(each[item, head], right)


def test_bfloat16(tmp_path):
    query, key, _ = arrays(dtype=ml_dtypes.bfloat16)
    path = tmp_path / "run.safetensors"
    fovea.Recording.write(path, [{"name": "a", "query": query, "key": key}])
    each = fovea.Recording(path)["a"]
    np.testing.assert_array_equal(each[1, 2], fovea.Weights(query, key, batch=1, head=2))
    assert fovea.Recording(path).heads().shape == (2 * HEADS,)


def test_descriptions(tmp_path):
    query, key, _ = arrays(batch=1)
    path = tmp_path / "run.safetensors"
    words = [f"word {number}" for number in range(KEYS)]
    layers = [
        {"name": "model.layers.0.attn", "query": query, "key": key, "query_tokens": "answer", "key_tokens": ["text"]},
        {"name": "model.layers.1.attn", "query": query[:, 1:3], "key": key[:, :1], "heads": [1, 5], "layer": 4},
        {"name": "decoder.layers.1.attn", "query": query, "key": key, "kind": "cross", "layer": 4},
    ]
    tokens = [fovea.Tokens("text", words, list(range(KEYS)), (3, 3)), fovea.Tokens("answer", words[:QUERIES])]
    fovea.Recording.write(path, layers, tokens, model="a model", source="a text")
    recording = fovea.Recording(path)
    assert repr(recording) == f"<Recording {path}, a model: 3 attentions, 7 x 9>"
    assert recording.source == "a text"
    assert recording.written_by == f"fovea {fovea.__version__}"
    assert recording.tokens["text"].grid == (3, 3)
    assert recording.tokens["text"][2:4] == words[2:4]
    first = recording["layers.0"]
    assert first is recording["model.layers.0.attn"]
    assert first.query_tokens().ids == []
    assert first.key_tokens().ids == list(range(KEYS))
    assert recording.layer(4, "cross").kind == "cross"
    assert recording.layer(4, "self")[5].shape == (QUERIES, KEYS)
    assert repr(recording.layer(4, "self")) == ("<model.layers.1.attn: layer 4, self, batch 1, heads 1, 5, 7 x 9>")
    assert first[3].key_tokens == recording.tokens["text"]
    for call, message in (
        (lambda: recording[3], "expected one of the layers 0, 4, got 3; recorded: model.layers.0.attn, "),
        (lambda: recording[4], "expected one of the layers 0, 4, got 4, which has model.layers.1.attn, decoder"),
        (lambda: recording.layer(0, "cross"), "expected one of the layers 4, got 0"),
        (lambda: recording["layers"], "got 'layers', which has model.layers.0.attn, "),
        (lambda: recording["layer.0"], "expected the name of an attention, or parts of one, got 'layer.0'"),
        (lambda: first[4], "head: expected one of 0 to 3, which were recorded, got 4"),
        (lambda: first[1, 0], "batch: expected 0 or more and less than 1, got 1"),
    ):
        with pytest.raises(LookupError, match=re.escape(message)):
            call()


def test_heads(tmp_path):
    query, key, _ = arrays()
    path = tmp_path / "run.safetensors"
    layers = [
        {"name": f"layers.{layer}", "query": query * layer, "key": key, "mask": fovea.causal()} for layer in (0, 2)
    ]
    fovea.Recording.write(path, layers)
    found = fovea.Recording(path).heads()
    assert found.shape == (2 * 2 * HEADS,)
    right = fovea.heads(query * 2, key, mask=fovea.causal())
    at = found[(found["name"] == "layers.2") & (found["batch"] == 1) & (found["head"] == 3)]
    assert at["entropy"] == right.entropy[1, 3]
    assert at["layer"] == 1


def test_page(tmp_path):
    query, key, _ = arrays(batch=1)
    path = tmp_path / "run.safetensors"
    fovea.Recording.write(path, [{"name": "a<b>", "query": query, "key": key}], model="<i>", source="\u202e")
    page = fovea.Recording(path)._repr_html_()
    assert page.count("data:image/png;base64,") == HEADS
    assert "a&lt;b&gt;, head 3" in page
    assert "<i>" not in page
    fovea.Recording.write(path, [{"name": "a", "query": query[:, :, :0], "key": key}])
    assert "<img" not in fovea.Recording(path)._repr_html_()
    fovea.Recording.write(path, [])
    assert "0 attentions" in fovea.Recording(path)._repr_html_()


def test_errors_leave_the_file(tmp_path):
    query, key, value = arrays()
    path = tmp_path / "run.safetensors"
    path.write_text("an earlier file")
    good = {"name": "a", "query": query, "key": key}
    short = np.zeros((2, HEADS, 3), np.float32)
    for change, kind, message in (
        ({"lse": short}, ValueError, '"a.lse": expected float32 [2, 4, 7], one per query'),
        ({"value": value[:, :1]}, ValueError, '"a.value": expected float32 [2, 2, 9, value_dim]'),
        ({"mask": fovea.key_lengths(12)}, ValueError, "key_lengths: expected lengths from 0 to kv_len = 9, got 12"),
        ({"kind": "other"}, ValueError, 'kind: expected "self", "encoder", "decoder" or "cross", got "other"'),
        (
            {"softcaps": 1},
            TypeError,
            "attentions: expected tensors, names and the options of attention(), got 'softcaps'",
        ),
        ({"key_tokens": "text"}, ValueError, 'key_tokens: expected the name of a token list, got "text"'),
        ({"name": None}, TypeError, "name"),
    ):
        with pytest.raises(kind, match=re.escape(message)):
            fovea.Recording.write(path, [good | change])
    with pytest.raises(ValueError, match=re.escape('name: expected a name used once, got "a" again')):
        fovea.Recording.write(path, [good, good])
    with pytest.raises(ValueError, match=re.escape('store: expected "float32", "float16" or "bfloat16", got "int8"')):
        fovea.Recording.write(path, [good], store="int8")
    for wrong in ({"a": good}, 3, "a", [3]):
        with pytest.raises(TypeError, match=r"attentions: expected .*mappings, got"):
            fovea.Recording.write(path, wrong)
    for ending in ("npz", "NPY"):
        with pytest.raises(ValueError, match=r"path: expected a name that ends in \.safetensors, got"):
            fovea.Recording.write(tmp_path / f"run.{ending}", [good])
    with pytest.raises(ValueError, match="path: expected a name without null characters"):
        fovea.Recording.write(f"{path}\0.safetensors", [good])
    assert path.read_text() == "an earlier file"
    assert os.listdir(tmp_path) == ["run.safetensors"]
    with pytest.raises(ValueError, match="expected a"):
        fovea.Recording(path)
    with pytest.raises(OSError, match="cannot be read: No such file"):
        fovea.Recording(tmp_path / "none.safetensors")
    with pytest.raises(TypeError, match="path: expected a str or a path, got int"):
        fovea.Recording(3)


def test_names_that_are_not_utf_8(tmp_path):
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"y\xff.safetensors"))
    query = np.ones((2, 4), np.float32)
    fovea.Recording.write(path, [{"name": "a", "query": query, "key": query}])
    for name in (path, os.fsencode(path), pathlib.Path(path)):
        recording = fovea.Recording(name)
        assert recording.path == path
        assert len(recording) == 1
    with pytest.raises(OSError, match=re.escape(r"x\xff.safetensors: cannot be read: No such file")):
        fovea.Recording(os.fsdecode(b"x\xff.safetensors"))
    with pytest.raises(ValueError, match="surrogates not allowed"):
        fovea.Recording("\ud800")


def test_record_without_torch(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "fovea._recording.record", raising=False)
    with pytest.raises(ImportError, match="record: expected torch, whose models it records"):
        fovea.record(None, tmp_path / "run.safetensors")
