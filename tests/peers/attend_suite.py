# SPDX-License-Identifier: Apache-2.0
"""Tests `fovea attend` on files that NumPy, ml_dtypes and safetensors write. Results are compared with the formula
in NumPy float64, and the output files with the files that the libraries write for the same arrays.

tests/peers/run runs it in its virtual environment, with the path of the program.
"""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

import suite

TYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
         "f64": np.dtype(np.float64)}
# Covers the rounding of the weights, of the context and of float32 sums.
TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2, "f64": 1e-13}
ENDINGS = (".npy", ".npz", ".safetensors")
NAMES = ("query", "key", "value")


def attention(query, key, value, visible=None, bias=None):
    """Returns (context, lse) in float64 for inputs [batch, heads, length, dim]."""
    query, key, value = (array.astype(np.float64) for array in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[3])
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    largest = scores.max(axis=3, keepdims=True, initial=-1e300)
    weights = np.exp(scores - largest)
    sums = weights.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(sums > 0, largest + np.log(sums), -np.inf)[..., 0]
    return weights @ value / np.where(sums > 0, sums, 1), lse


class Attend:
    """Writes arrays with the Python libraries, runs the program, and reads its results with the same libraries."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = pathlib.Path(folder)

    def write(self, name, ending, array):
        """Writes an array to a separate file and returns the file's spec."""
        path = self.folder / f"{name}{ending}"
        bfloat16 = ":bf16" if array.dtype == TYPES["bf16"] and ending != ".safetensors" else ""
        if ending == ".npy":
            np.save(path, array)
            return f"{path}{bfloat16}"
        if ending == ".npz":
            np.savez_compressed(path, other=np.zeros(3), **{name: array})
            return f"{path}:{name}{bfloat16}"
        safetensors.numpy.save_file({"other": np.zeros(3), name: np.ascontiguousarray(array)}, path)
        return f"{path}:{name}"

    @staticmethod
    def read(path, name, dtype):
        if path.suffix == ".safetensors":
            array = safetensors.numpy.load_file(path)[name]
        else:
            loaded = np.load(path, allow_pickle=False)
            array = loaded[name] if path.suffix == ".npz" else loaded
        return array.view(dtype) if array.dtype == np.dtype("V2") else array

    def run(self, arrays, *options, endings=(".npz",) * 3, output=".npz", dtype=None):
        """Runs `fovea attend --verify` and returns (context, lse)."""
        arguments = []
        for name, ending in zip(NAMES, endings):
            arguments += [f"--{name}", self.write(name, ending, arrays[name])]
        context, lse = (self.folder / f"{name}{output}" for name in ("context", "lse"))
        result = subprocess.run([str(self.program), "attend", *arguments, *map(str, options), "--output",
                                 str(context), "--lse", str(lse), "--verify", "--json"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        if result.returncode != 0:
            raise suite.Mismatch(result.stderr.strip())
        verdict = json.loads(result.stdout)["verify"]
        if verdict["rows"] == 0 and arrays["query"].size > 0:
            raise suite.Mismatch("no row was verified")
        dtype = dtype or arrays["query"].dtype
        return (self.read(context, "context", dtype),
                self.read(lse, "lse", np.float64 if dtype == np.float64 else np.float32))

    def check(self, arrays, *options, word="f32", layout=lambda array: array, visible=None, bias=None, **how):
        context, lse = self.run(arrays, *options, **how)
        right, right_lse = attention(*(layout(arrays[name]) for name in NAMES), visible, bias)
        tolerance = TOLERANCE[word]
        error = suite.compare("context", layout(context).astype(np.float64), right, tolerance, tolerance)
        suite.compare("lse", lse.astype(np.float64), right_lse, *(2 * [min(tolerance, 1e-5)]))
        return error


def problem(word, shape=(2, 4, 2, 17, 29, 16, 8), seed=0):
    batch, heads, kv_heads, q_len, kv_len, dim, value_dim = shape
    random = np.random.default_rng([seed, *shape])
    return {name: random.standard_normal(extents).astype(TYPES[word])
            for name, extents in (("query", (batch, heads, q_len, dim)), ("key", (batch, kv_heads, kv_len, dim)),
                                  ("value", (batch, kv_heads, kv_len, value_dim)))}


def types_and_formats(attend, word):
    cases = {}
    for endings in itertools.product(ENDINGS, repeat=3):
        for output in ENDINGS:
            cases[f"{''.join(endings)} to {output}"] = lambda e=endings, o=output: attend.check(
                problem(word), word=word, endings=e, output=o)
    sizes = [(1, 1, 1, 1, 1, 1, 1), (1, 2, 1, 300, 1000, 64, 64), (3, 4, 4, 40, 40, 59, 7), (1, 1, 1, 0, 5, 4, 4),
             (1, 8, 2, 1, 4097, 128, 128)]
    if word == "f64":
        sizes[-1] = (1, 8, 2, 1, 97, 128, 128)
    for shape in sizes:
        cases[str(shape)] = lambda s=shape: attend.check(problem(word, s), word=word)
    return cases


def arrangements(attend):
    """Returns cases of dimension order, element order, byte order, and converted types."""
    arrays = problem("f32")
    turned = {name: array.swapaxes(1, 2) for name, array in arrays.items()}
    fortran = {name: np.asfortranarray(array) for name, array in arrays.items()}
    big = {name: array.astype(">f4") for name, array in arrays.items()}
    integers = {name: (array * 2).astype(np.int16) for name, array in arrays.items()}
    mixed = {**arrays, "key": arrays["key"].astype(np.float16), "value": arrays["value"].astype(TYPES["bf16"])}

    def swapped(array):
        return array.swapaxes(1, 2)
    cases = {"Fortran order": lambda: attend.check(fortran, endings=(".npy",) * 3),
             "big-endian": lambda: attend.check(big, dtype=np.dtype(np.float32)),
             "int16": lambda: attend.check(integers, "--dtype", "f32", dtype=np.dtype(np.float32)),
             "mixed types": lambda: attend.check(mixed),
             "to float64": lambda: attend.check(arrays, "--dtype", "f64", word="f64", dtype=TYPES["f64"]),
             "to bfloat16": lambda: attend.check(arrays, "--dtype", "bf16", word="bf16", dtype=TYPES["bf16"],
                                                 layout=lambda array: array.astype(TYPES["bf16"]))}
    for endings in ENDINGS:
        cases[f"blhd {endings}"] = lambda e=endings: attend.check(
            turned, "--layout", "blhd", layout=swapped, endings=(e,) * 3, output=e)
    return cases


def rules(attend):
    """Returns cases of masks and biases from files; the alignment is bottom-right."""
    arrays = problem("f32")
    q_len, kv_len = arrays["query"].shape[2], arrays["key"].shape[2]
    query = np.arange(q_len)[:, None] + kv_len - q_len
    key = np.arange(kv_len)[None, :]
    random = np.random.default_rng(7)
    mask = random.random((4, q_len, kv_len)) < 0.7
    bias = random.standard_normal((2, 1, q_len, kv_len)).astype(np.float16)
    ids = np.sort(random.integers(0, 4, (2, kv_len)), axis=1).astype(np.uint16)
    query_ids = ids[:, -q_len:].copy()
    lengths = np.array([kv_len, 11], np.uint8)
    real = lengths[:, None, None, None]
    files = {name: attend.write(name, ending, array) for name, ending, array in (
        ("mask", ".npy", mask), ("bias", ".safetensors", bias), ("ids", ".npz", ids),
        ("query_ids", ".npy", query_ids), ("lengths", ".npy", lengths))}
    same = query_ids[:, None, :, None] == ids[:, None, None, :]
    return {
        "causal": lambda: attend.check(arrays, "--causal", visible=key <= query),
        "window": lambda: attend.check(arrays, "--window", "5,2",
                                       visible=(key >= query - 5) & (key <= query + 2)),
        "mask": lambda: attend.check(arrays, "--mask", files["mask"], visible=mask),
        "bias": lambda: attend.check(arrays, "--bias", files["bias"], bias=bias.astype(np.float64)),
        "documents": lambda: attend.check(arrays, "--documents", f"{files['query_ids']},{files['ids']}",
                                          visible=same),
        "key lengths": lambda: attend.check(arrays, "--causal", "--key-lengths", files["lengths"],
                                            visible=(key < real) & (key <= query - kv_len + real)),
    }


def files(attend):
    """Returns cases that compare the output files with those of the libraries, byte by byte."""
    def case(word, output):
        arrays = problem(word)
        context, lse = attend.run(arrays, output=output)
        for name, array in (("context", context), ("lse", lse)):
            path = attend.folder / f"theirs{output}"
            if output == ".safetensors":
                safetensors.numpy.save_file({name: array}, path)
            elif output == ".npz":
                np.savez(path, **{name: array})
            else:
                np.save(path, array)
            if path.read_bytes() != (attend.folder / f"{name}{output}").read_bytes():
                raise suite.Mismatch(f"the file of {name} differs from theirs")
        return 0.0
    return {f"{word} {output}": lambda w=word, o=output: case(w, o) for word in TYPES for output in ENDINGS}


def main():
    tally = suite.Tally()
    with tempfile.TemporaryDirectory() as folder:
        attend = Attend(sys.argv[1], folder)
        for word in TYPES:
            tally.run_group(f"attend, {word}", types_and_formats(attend, word))
        tally.run_group("attend, arrangements", arrangements(attend))
        tally.run_group("attend, rules", rules(attend))
        tally.run_group("attend, bytes of files", files(attend))
    return tally.close(f"fovea attend beside NumPy {np.__version__} and safetensors {safetensors.__version__}")


if __name__ == "__main__":
    sys.exit(main())
