# SPDX-License-Identifier: Apache-2.0
"""Inputs of `fovea view` for tests, written by NumPy alone, and their weights by the formula in float64."""

import json
import struct

import numpy as np

# Texts that must be shown, never interpreted.
HOSTILE = [
    '<img src=x onerror="document.title=1">',
    "</script><script>document.title=2</script>",
    "\x1b[31mred\x07\x00",
    "\u202eright to left",
    "a" * 10_000,
    "&lt;b&gt; & \"quoted\" 'once'",
    "\n\t ",
    "👩\u200d👩\u200d👧",
    "",
    "猫",
]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "then", "an", "old", "dog", "came", "by", "to", "see", "it"]


def write_safetensors(path, arrays, metadata=None):
    """Writes arrays, one after another, so that large ones are not copied."""
    types = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "uint8": "U8", "bool": "BOOL"}
    header, begin = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, array in arrays.items():
        end = begin + array.nbytes
        header[name] = {"dtype": types[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)
    return path


def normal(shape, seed, scale=1.0):
    """Returns float32 numbers from a normal distribution."""
    return scale * np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def words(length):
    """Returns tokens like those of a tokenizer: a word, from the second on with a space."""
    return [(" " if i else "") + WORDS[i % len(WORDS)] for i in range(length)]


# ---- the formula -----------------------------------------------------------------------------------------------


def visible(q_len, kv_len, rows, mask="causal", before=None):
    """Returns whether the queries `rows` may attend to each key. `mask` is "causal" or "none"; `before` is the number
    of earlier keys that a window keeps."""
    position = np.asarray(rows)[:, None] + (kv_len - q_len)
    keys = np.arange(kv_len)[None]
    seen = np.ones((len(rows), kv_len), bool) if mask == "none" else keys <= position
    return seen if before is None else seen & (keys >= position - before)


def weights(query, key, rows, mask="causal", before=None, scale=None):
    """Returns (weights, lse) of the queries `rows` of a head in float64: query is [q_len, head_dim]."""
    q, k = query[np.asarray(rows)].astype(np.float64), key.astype(np.float64)
    scores = q @ k.T * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores[~visible(len(query), len(key), rows, mask, before)] = -np.inf
    largest = scores.max(axis=1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    sums = powers.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(sums[:, 0]) + np.where(np.isfinite(largest[:, 0]), largest[:, 0], 0)
    return powers / np.where(sums > 0, sums, 1), lse


# ---- files -----------------------------------------------------------------------------------------------------


def tensors(path, q_len=4096, kv_len=None, head_dim=64, heads=1, layers=1, seed=1, scale=1.0):
    """Writes tensors and returns [(query, key)] of the layers, each [1, heads, length, head_dim]. A single layer has
    the plain names "query" and "key"."""
    made = [
        (
            normal((1, heads, q_len, head_dim), seed + 2 * i, scale),
            normal((1, heads, kv_len or q_len, head_dim), seed + 2 * i + 1, scale),
        )
        for i in range(layers)
    ]
    names = ["" if layers == 1 else f"layers.{i}." for i in range(layers)]
    arrays = {}
    for name, (query, key) in zip(names, made, strict=True):
        arrays |= {f"{name}query": query, f"{name}key": key}
    write_safetensors(path, arrays)
    return made


def token_tensors(texts, name="text"):
    data = [text.encode() for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in data])]).astype(np.int64)
    return {
        f"tokens.{name}.text": np.frombuffer(b"".join(data), np.uint8),
        f"tokens.{name}.offsets": offsets,
        f"tokens.{name}.ids": np.unique(texts, return_inverse=True)[1].astype(np.int64),
    }


def recording(path, layers, texts=None, model="a model", source="a text", kinds=None):
    """Writes a causal recording. `layers` are pairs of query [q_heads, length, head_dim] and key [kv_heads, ...]."""
    arrays = {} if texts is None else token_tensors(texts)
    attentions = []
    for i, (query, key) in enumerate(layers):
        name, group = f"layers.{i}", len(query) // len(key)
        rows = range(query.shape[1])
        lse = np.stack([weights(one, key[h // group], rows)[1] for h, one in enumerate(query)])
        arrays |= {f"{name}.query": query[None], f"{name}.key": key[None], f"{name}.lse": lse[None].astype(np.float32)}
        entry = {"name": name, "layer": i, "kind": kinds[i] if kinds else "self", "options": {"mask": {"causal": True}}}
        if texts is not None:
            entry |= {"query_tokens": "text", "key_tokens": "text"}
        attentions.append(entry)
    about = {
        "model": model,
        "source": source,
        "written_by": "a test",
        "tokens": [] if texts is None else [{"name": "text"}],
        "attentions": attentions,
    }
    write_safetensors(path, arrays, {"fovea.recording": "1", "fovea": json.dumps(about)})
    return layers


def random_layers(layers, heads, length, head_dim, seed=1, kv_heads=None):
    return [
        (
            normal((heads, length, head_dim), seed + 2 * i, 1.5),
            normal((kv_heads or heads, length, head_dim), seed + 2 * i + 1, 1.5),
        )
        for i in range(layers)
    ]


def patterned_layers(layers=30, heads=9, length=96, seed=1):
    """Returns layers whose heads have different patterns in turn: previous token, own token, sink, uniform, random.
    Positions are encoded by waves, so that a product is largest at an exact distance."""
    position = np.arange(length)[:, None] * np.pi / length * np.arange(1, length // 2)[None]
    waves = np.concatenate([np.cos(position), np.sin(position)], axis=1)
    earlier = np.arange(length)[:, None] - 1
    shifted = earlier * np.pi / length * np.arange(1, length // 2)[None]
    previous = np.concatenate([np.cos(shifted), np.sin(shifted)], axis=1)
    width = waves.shape[1]
    first = np.zeros((length, width))
    first[:, 0] = 20
    sink = np.zeros((length, width))
    sink[0, 0] = 20
    kinds = [
        (6 * previous, waves),
        (6 * waves, waves),
        (first, sink),
        (np.zeros((length, width)), waves),
        None,
    ]
    found = []
    for layer in range(layers):
        query, key = np.empty((2, heads, length, width), np.float32)
        for head in range(heads):
            kind = kinds[(layer + head) % len(kinds)]
            if kind is None:
                query[head] = normal((length, width), seed + layer * heads + head)
                key[head] = normal((length, width), seed + 10_000 + layer * heads + head)
            else:
                query[head], key[head] = kind
        found.append((query, key))
    return found


def planted(path, length=131_072, query=77_777, key=12_345, head_dim=16, seed=5):
    """Writes tensors in which query `query` has the weight 1 on key `key`, and small weights elsewhere."""
    q, k = normal((1, 1, length, head_dim), seed, 0.5), normal((1, 1, length, head_dim), seed + 1, 0.5)
    q[..., 0] = k[..., 0] = 0  # a direction of their own
    q[0, 0, query], k[0, 0, key] = 0, 0
    q[0, 0, query, 0], k[0, 0, key, 0] = 64, 64
    write_safetensors(path, {"query": q, "key": k})
    return q[0, 0], k[0, 0]


# Options of `fovea view` for the tensors of wide().
WINDOW = 4096
WIDE = ["--window", f"{WINDOW - 1},0"]


def wide(path, length=1 << 20, head_dim=16, seed=9):
    """Writes tensors of 1,048,576 tokens, to be opened with the options WIDE."""
    query, key = normal((1, 1, length, head_dim), seed), normal((1, 1, length, head_dim), seed + 1)
    write_safetensors(path, {"query": query, "key": key})
    return query[0, 0], key[0, 0]


def token_file(path, texts):
    """Writes the file of --tokens: a token in each line."""
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


# ---- frames ----------------------------------------------------------------------------------------------------

NAN, ZERO, UNKNOWN = 1, 2, 65535
PREVIEW_FLAG = 8


def frame(data):
    """Returns the fields of a frame, and what follows it. `codes` is [rows, columns] or None; `values` has -1 for
    hidden cells. `states` is None if all rows are final, else 0, 1 or 2 for each: unknown, preview, final."""
    length, magic = struct.unpack_from("<I4s", data)
    assert magic == b"FVT1", magic
    kind, reduce, level, flags, x, y, columns, rows, job, smallest, largest, reserved = struct.unpack_from(
        "<BBBBIIHHIffI", data, 8
    )
    assert kind == 1, kind
    assert reserved == 0, reserved
    codes = None
    if length + 4 > 40:
        codes = np.frombuffer(data, "<u2", columns * rows, 40).reshape(rows, columns)
    states = None
    if flags & PREVIEW_FLAG:
        states = np.frombuffer(data, np.uint8, rows, length + 4 - rows)
    assert length + 4 == 40 + sum(part.nbytes for part in (codes, states) if part is not None)
    fields = {
        "reduce": ["mean", "max"][reduce],
        "level": level,
        "flags": flags,
        "x": x,
        "y": y,
        "columns": columns,
        "rows": rows,
        "job": job,
        "smallest": smallest,
        "largest": largest,
        "codes": codes,
        "states": states,
    }
    if codes is not None:
        fields["values"] = values(codes)
    return fields, data[4 + length :]


def values(codes):
    """Returns the cells of log16 codes: -1 if hidden, nan if nan or unknown."""
    found = 2.0 ** ((codes.astype(np.float64) - 3) / 1023 - 64)
    found[codes == 0], found[(codes == NAN) | (codes == UNKNOWN)], found[codes == ZERO] = -1, np.nan, 0
    return found
