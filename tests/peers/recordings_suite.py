# SPDX-License-Identifier: Apache-2.0
"""Recordings and the library safetensors: a file that Fovea writes has the expected tensors and metadata, and a file
that is written by hand, after docs/recording.schema.json, has the weights that NumPy computes.

tests/peers/run runs it in its virtual environment, with the path of recordings_call.cc's library.
"""

import ctypes
import json
import pathlib
import sys
import tempfile

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

import suite

BATCH, Q_HEADS, KV_HEADS, LENGTH, DIM = 2, 4, 2, 9, 16
DOCUMENTS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])


def normal(shape, seed, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def weights_of(query, key, scale, softcap=0.0, bias=0.0, visible=None):
    """Returns weights and lse in float64."""
    query, key = query.astype(np.float64), key.astype(np.float64)
    key = np.repeat(key, query.shape[1] // key.shape[1], axis=1)
    scores = query @ key.swapaxes(-1, -2) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    lse = largest[..., 0] + np.log(np.exp(scores - largest).sum(-1))
    return np.exp(scores - lse[..., None]), lse


def causal(rows, columns):
    return np.arange(columns)[None, :] <= np.arange(rows)[:, None] + columns - rows


def tolerance(query, key, scale, lse):
    """Returns a bound on the relative error of weights that are recomputed in float32 from an lse in float32: the
    rounding of the dot product and of the other terms, each of which is at most `size`."""
    size = abs(scale) * np.linalg.norm(query.astype(np.float64), axis=-1).max() * np.linalg.norm(
        key.astype(np.float64), axis=-1).max()
    return 2.0**-24 * (query.shape[-1] + 8) * (1 + size + np.abs(lse).max())


class Recordings:
    def __init__(self, library, folder):
        library = ctypes.CDLL(str(library))
        self.write = library.peer_write_recording
        self.write.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_bool]
        self.read = library.peer_read_recording
        self.read.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64]
        self.write.restype = self.read.restype = ctypes.c_char_p
        self.folder = pathlib.Path(folder)

    def call(self, function, *arguments):
        said = function(*(str(each).encode() if isinstance(each, pathlib.Path) else each for each in arguments))
        if said is not None:
            raise suite.Mismatch(said.decode())

    def weights(self, path):
        """Returns the weights that Fovea recomputes by attention, and the first token of queries and of keys."""
        target = self.folder / "weights.safetensors"
        texts = ctypes.create_string_buffer(100)
        self.call(self.read, path, target, texts, len(texts))
        return safetensors.numpy.load_file(target), texts.value.decode().split("\n")

    def written_by_fovea(self, bfloat16):
        arrays = {"query": normal((BATCH, Q_HEADS, LENGTH, DIM), 1), "key": normal((BATCH, KV_HEADS, LENGTH, DIM), 2),
                  "value": normal((BATCH, KV_HEADS, LENGTH, DIM + 1), 3), "bias": normal((LENGTH, LENGTH), 4),
                  "documents": DOCUMENTS}
        visible = causal(LENGTH, LENGTH) & (DOCUMENTS[:, None] == DOCUMENTS[None, :])
        weights, lse = weights_of(arrays["query"], arrays["key"], DIM**-0.5, 5.0, arrays["bias"], visible)
        arrays["lse"] = lse.astype(np.float32)
        source, path = self.folder / "arrays.safetensors", self.folder / "run.safetensors"
        safetensors.numpy.save_file(arrays, source)
        self.call(self.write, source, path, bfloat16)

        stored = ml_dtypes.bfloat16 if bfloat16 else np.float32
        expected = {f"layers.0.{name}": arrays[name].astype(stored) for name in ("query", "key", "value")}
        expected |= {f"layers.0.{name}": arrays[name] for name in ("lse", "bias", "documents")}
        words = [f"é{i}" for i in range(LENGTH)]
        ends = np.cumsum([len(word.encode()) for word in words])
        expected |= {"tokens.text.ids": np.arange(LENGTH) ** 2,
                     "tokens.text.text": np.frombuffer("".join(words).encode(), np.uint8),
                     "tokens.text.offsets": np.concatenate([[0], ends])}
        got = safetensors.numpy.load_file(path)
        if sorted(got) != sorted(expected):
            raise suite.Mismatch(f"tensors {sorted(got)}, expected {sorted(expected)}")
        for name, array in expected.items():
            if got[name].dtype != array.dtype or got[name].shape != array.shape or got[name].tobytes() != array.tobytes():
                raise suite.Mismatch(f"{name} differs")
        with safetensors.safe_open(path, "np") as file:
            metadata = file.metadata()
        if sorted(metadata) != ["fovea", "fovea.recording"] or metadata["fovea.recording"] != "1":
            raise suite.Mismatch(f"metadata {metadata}")
        content = json.loads(metadata["fovea"])
        if not content.pop("written_by").startswith("fovea "):
            raise suite.Mismatch("written_by does not name Fovea")
        attention = {"name": "layers.0", "layer": 0, "kind": "self", "query_tokens": "text", "key_tokens": "text",
                     "options": {"score": {"softcap": 5.0, "bias": "layers.0.bias"},
                                 "mask": {"all": [{"documents": "layers.0.documents"}, {"causal": True}]},
                                 "alignment": "bottom-right"}}
        described = {"model": "a model", "source": "a \"text\"\n", "attentions": [attention],
                     "tokens": [{"name": "text"}]}
        if content != described:
            raise suite.Mismatch(f"description {content}, expected {described}")
        if bfloat16:
            return 0.0
        # Fovea reads its own file with the weights of NumPy.
        recomputed, texts = self.weights(path)
        if texts != ["é0", "é0"]:
            raise suite.Mismatch(f"tokens {texts}")
        return suite.compare("weights", recomputed["layers.0"], weights.astype(np.float32),
                             tolerance(arrays["query"], arrays["key"], DIM**-0.5, lse), 0.0)

    def by_hand(self, options, expected, dtype=np.float32, more=None):
        """Writes a recording with safetensors alone and compares the weights that Fovea reads from it. `expected`
        are keyword arguments of weights_of(), `more` further tensors."""
        rows, columns, scale = 6, 8, DIM**-0.5
        query = normal((BATCH, Q_HEADS, rows, DIM), 5, dtype)
        key = normal((BATCH, KV_HEADS, columns, DIM), 6, dtype)
        weights, lse = weights_of(query, key, **({"scale": scale} | expected))
        words = {"question": ["who", "é", "", "a", "b", "c", "d", "?"], "answer": ["I", " am", "x", "y", "z", "."]}
        tensors = {"encoder/1.query": query, "encoder/1.key": key, "encoder/1.lse": lse.astype(np.float32)}
        for name, texts in words.items():
            coded = [text.encode() for text in texts]
            tensors[f"tokens.{name}.text"] = np.frombuffer(b"".join(coded), np.uint8)
            tensors[f"tokens.{name}.offsets"] = np.cumsum([0, *map(len, coded)])
        description = {"attentions": [{"name": "encoder/1", "kind": "cross", "query_tokens": "answer",
                                       "key_tokens": "question", "options": options}],
                       "tokens": [{"name": "question"}, {"name": "answer"}], "key of a later version": [1]}
        path = self.folder / "hand.safetensors"
        safetensors.numpy.save_file(tensors | (more or {}), path, metadata={
            "fovea.recording": "1", "fovea": json.dumps(description), "format": "np"})
        got, texts = self.weights(path)
        if texts != ["I", "who"]:
            raise suite.Mismatch(f"tokens {texts}")
        allowed = tolerance(query, key, expected.get("scale", scale), lse)
        return suite.compare("weights", got["encoder/1"], weights.astype(np.float32), allowed, 0.0)

    def handmade(self):
        window = causal(6, 8) & (np.arange(8)[None, :] > np.arange(6)[:, None] + 2 - 3)
        lengths = np.arange(8)[None, :] < np.array([8, 7])[:, None]
        visible = np.random.default_rng(7).random((6, 8)) < 0.7
        visible[:, 0] = True
        bias = normal((Q_HEADS, 6, 8), 8)
        cases = {
            "no options": ({}, {}),
            "softcap 0": ({"score": {"scale": 0.25, "softcap": 0}}, {"scale": 0.25}),
            "softcap": ({"score": {"softcap": 2.5}}, {"softcap": 2.5}),
            "causal": ({"mask": "causal"}, {"visible": causal(6, 8)}),
            "window": ({"mask": {"causal": True, "window": [2, 0]}}, {"visible": window}),
            "key lengths": ({"mask": {"key_lengths": "lengths"}}, {"visible": lengths[:, None, None, :]}, np.float32,
                            {"lengths": np.array([8, 7], np.int32)}),
            "dense": ({"mask": {"dense": "visible"}}, {"visible": visible}, np.float32, {"visible": visible}),
            "bias": ({"score": {"bias": "bias"}}, {"bias": bias}, np.float32, {"bias": bias}),
            "alignment": ({"mask": "causal", "alignment": "top-left"},
                          {"visible": np.arange(8)[None, :] <= np.arange(6)[:, None]}),
            "float16": ({"mask": {"any": ["causal", {"prefix": 5}]}},
                        {"visible": causal(6, 8) | (np.arange(8) < 5)[None, :]}, np.float16),
            "bfloat16": ({}, {}, ml_dtypes.bfloat16),
        }
        return {name: lambda case=case: self.by_hand(*case) for name, case in cases.items()}


def main():
    tally = suite.Tally()
    with tempfile.TemporaryDirectory() as folder:
        recordings = Recordings(sys.argv[1], folder)
        tally.run_group("recordings written by Fovea", {
            "float32": lambda: recordings.written_by_fovea(False),
            "bfloat16": lambda: recordings.written_by_fovea(True)})
        tally.run_group("recordings written with safetensors", recordings.handmade())
    return tally.close(f"Recordings of NumPy {np.__version__} and safetensors {safetensors.__version__}")


if __name__ == "__main__":
    sys.exit(main())
