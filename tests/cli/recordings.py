# SPDX-License-Identifier: Apache-2.0
"""Small recordings for tests, written without Fovea, and their weights by the formula."""

import json
import math

from support import CliTest
from tensor_files import Array, attention, safetensors_of

HEADS, KV_HEADS, LENGTH, DIM, VALUE_DIM, LAYERS = 4, 2, 9, 6, 3, 3
# Texts that must be shown, never interpreted: HTML, a terminal escape, a right-to-left mark.
TOKENS = ["<b>The</b>", " cat", "\x1b[31mred", "\u202eabc", " sat", " cat", " on", " a", " cat"]
IDS = [1, 2, 3, 4, 5, 2, 6, 7, 2]


def causal(_batch, _head, i, j):
    return j <= i


class Layer:
    """An attention of a recording, causal unless `visible` and `options` say otherwise."""

    def __init__(self, layer, seed, *, name=None, kind="self", q_len=LENGTH, kv_len=LENGTH, values=True, heads=None,
                 options=None, visible=causal, batch=1, tokens="text"):
        q_heads = HEADS if heads is None else len(heads)
        self.kind, self.visible, self.heads = kind, visible, heads
        self.name = f"layers.{layer}" if name is None else name
        self.query = Array.normal((batch, q_heads, q_len, DIM), 3 * seed)
        self.key = Array.normal((batch, min(KV_HEADS, q_heads), kv_len, DIM), 3 * seed + 1)
        self.value = Array.normal((batch, min(KV_HEADS, q_heads), kv_len, VALUE_DIM), 3 * seed + 2)
        self.context, lse = attention(self.query, self.key, self.value, visible)
        self.lse = lse.as_type("float32")
        self.tensors = {f"{self.name}.query": self.query, f"{self.name}.key": self.key, f"{self.name}.lse": self.lse}
        if values:
            self.tensors[f"{self.name}.value"] = self.value
        self.entry = {"name": self.name, "layer": layer, "kind": kind,
                      "options": {"mask": {"causal": True}} if options is None else options}
        if tokens:
            self.entry.update(query_tokens=tokens, key_tokens=tokens)
        if heads is not None:
            self.entry["heads"] = heads

    def weights(self, head, batch=0):
        """Returns the weights of a head, a list of rows."""
        of = head // (self.query.shape[1] // self.key.shape[1])
        rows = []
        for i in range(self.query.shape[2]):
            row = []
            for j in range(self.key.shape[2]):
                product = sum(self.query.at(batch, head, i, c) * self.key.at(batch, of, j, c) for c in range(DIM))
                visible = self.visible(batch, head, i, j)
                row.append(math.exp(product / math.sqrt(DIM)) if visible else 0.0)
            total = math.fsum(row)
            rows.append([w / total for w in row])
        return rows


def token_tensors(texts, ids, name="text"):
    data = [text.encode() for text in texts]
    offsets = [sum(map(len, data[:i])) for i in range(len(data) + 1)]
    tensors = {f"tokens.{name}.text": Array((offsets[-1],), b"".join(data), "uint8"),
               f"tokens.{name}.offsets": Array((len(offsets),), offsets, "int64")}
    if ids is not None:
        tensors[f"tokens.{name}.ids"] = Array((len(ids),), ids, "int64")
    return tensors


def recording_of(layers, *, texts=TOKENS, ids=IDS, model="a model", source="a text", version="1"):
    """Returns the bytes of a recording."""
    tensors = token_tensors(texts, ids) if texts is not None else {}
    for layer in layers:
        tensors.update(layer.tensors)
    description = {"model": model, "source": source, "written_by": "a test",
                   "tokens": [{"name": "text"}] if texts is not None else [],
                   "attentions": [layer.entry for layer in layers]}
    return safetensors_of(tensors, {"fovea.recording": version, "fovea": json.dumps(description)})


class RecordingTest(CliTest):
    def record(self, name="run.safetensors", layers=None, **options):
        """Writes a recording; returns its path and layers."""
        layers = [Layer(i, i + 1) for i in range(LAYERS)] if layers is None else layers
        return self.write(name, recording_of(layers, **options)), layers
