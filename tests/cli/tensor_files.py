# SPDX-License-Identifier: Apache-2.0
"""Code for tests: a reader and writer of tensor files without NumPy, and attention in plain Python."""

import ast
import io
import itertools
import json
import math
import random
import struct
import zipfile

# The type codes of struct, .npy and .safetensors.
_TYPES = {"float32": ("f", "<f4", "F32"), "float64": ("d", "<f8", "F64"), "float16": ("e", "<f2", "F16"),
          "bfloat16": ("H", "<V2", "BF16"), "int64": ("q", "<i8", "I64"), "int32": ("i", "<i4", "I32"),
          "uint8": ("B", "|u1", "U8"), "bool": ("?", "|b1", "BOOL")}
# The maximum relative error of rounding to a type.
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def npy(descr="<f4", shape="(2, 2)", data=struct.pack("<4f", 1, 2.5, float("nan"), float("inf")),
        fortran=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header = header.ljust(117) + b"\n"  # the elements start at a multiple of 64 bytes, as in NumPy
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npz(members, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            # 64-bit sizes in the local header, as numpy.savez writes them.
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(content)
    return file.getvalue()


def safetensors(tensors, data, metadata=None):
    header = json.dumps({"__metadata__": metadata, **tensors} if metadata else tensors).encode()
    header += b" " * (-len(header) % 8)  # the elements are aligned, as in files of other writers
    return struct.pack("<Q", len(header)) + header + data


def _to_bfloat16(number):
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _from_bfloat16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class Array:
    """An array: shape, type, and elements in row-major order, rounded to the type."""

    def __init__(self, shape, values, dtype="float32"):
        self.shape = tuple(shape)
        self.dtype = dtype
        self.values = list(values)
        assert len(self.values) == math.prod(self.shape), (self.shape, len(self.values))
        self.values = self._decode(self._encode(self.values))

    @staticmethod
    def normal(shape, seed, dtype="float32"):
        numbers = random.Random(seed)
        return Array(shape, (numbers.gauss(0, 1) for _ in range(math.prod(shape))), dtype)

    def _encode(self, values):
        if self.dtype == "bfloat16":
            values = [_to_bfloat16(value) for value in values]
        return struct.pack(f"<{len(values)}{_TYPES[self.dtype][0]}", *values)

    def _decode(self, data):
        values = struct.unpack(f"<{math.prod(self.shape)}{_TYPES[self.dtype][0]}", data)
        return [_from_bfloat16(value) for value in values] if self.dtype == "bfloat16" else list(values)

    def at(self, *index):
        place = 0
        for extent, i in zip(self.shape, index):
            place = place * extent + i
        return self.values[place]

    def broadcast(self, *index):
        """Returns the element at `index` of the array after broadcasting as in NumPy."""
        index = index[len(index) - len(self.shape):]
        return self.at(*(0 if extent == 1 else i for extent, i in zip(self.shape, index)))

    def exchanged(self, a, b):
        """Returns a copy with two dimensions swapped."""
        order = list(range(len(self.shape)))
        order[a], order[b] = order[b], order[a]
        shape = [self.shape[dim] for dim in order]
        values = []
        for index in itertools.product(*map(range, shape)):
            there = [0] * len(order)
            for place, dim in enumerate(order):
                there[dim] = index[place]
            values.append(self.at(*there))
        return Array(shape, values, self.dtype)

    def as_type(self, dtype):
        return Array(self.shape, self.values, dtype)

    def reshaped(self, *shape):
        return Array(shape, self.values, self.dtype)

    def npy(self):
        return npy(_TYPES[self.dtype][1], repr(self.shape), self._encode(self.values))

    def fortran_npy(self):
        turned = self
        rank = len(self.shape)
        for i in range(rank // 2):
            turned = turned.exchanged(i, rank - 1 - i)
        return npy(_TYPES[self.dtype][1], repr(self.shape), turned._encode(turned.values), fortran=True)

    @staticmethod
    def from_npy(content, bfloat16=False):
        assert content[:8] == b"\x93NUMPY\x01\x00"
        end = 10 + struct.unpack("<H", content[8:10])[0]
        header = ast.literal_eval(content[10:end].decode())
        assert not header["fortran_order"]
        return Array._decoded(header["shape"], header["descr"], content[end:], 1)

    @staticmethod
    def _decoded(shape, word, data, column):
        dtype = next(name for name, words in _TYPES.items() if words[column] == word)
        array = Array.__new__(Array)
        array.shape, array.dtype = tuple(shape), dtype
        array.values = array._decode(data)
        return array


def npz_of(arrays):
    return npz({f"{name}.npy": array.npy() for name, array in arrays.items()})


def safetensors_of(arrays, metadata=None):
    tensors, data = {}, b""
    for name, array in arrays.items():
        piece = array._encode(array.values)
        tensors[name] = {"dtype": _TYPES[array.dtype][2], "shape": list(array.shape),
                         "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    return safetensors(tensors, data, metadata)


def read_arrays(path):
    """Returns {name: Array} of a file; the name is "" for an .npy file."""
    content = path.read_bytes()
    if path.suffix == ".npy":
        return {"": Array.from_npy(content)}
    if path.suffix == ".npz":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name[:-4]: Array.from_npy(archive.read(name)) for name in archive.namelist()}
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    return {name: Array._decoded(what["shape"], what["dtype"],
                                 content[8 + size:][slice(*what["data_offsets"])], 2)
            for name, what in header.items() if name != "__metadata__"}


def attention(query, key, value, visible=lambda *place: True, score=lambda place, s: s, scale=None,
              sinks=None):
    """Returns (context, lse) in float64, computed by the formula.

    Arrays are [batch, heads, length, dim]. `visible(batch, head, i, j)` is whether query i may attend to
    key j. `score(place, s)` returns the score for a scaled product, where place is (batch, head, i, j).
    """
    batch, heads, q_len, dim = query.shape
    kv_heads, kv_len, value_dim = key.shape[1], key.shape[2], value.shape[3]
    scale = 1 / math.sqrt(max(dim, 1)) if scale is None else scale
    context, lses = [], []
    for b, h, i in itertools.product(range(batch), range(heads), range(q_len)):
        of = h // (heads // kv_heads)
        scores = {}
        for j in range(kv_len):
            if visible(b, h, i, j):
                product = sum(query.at(b, h, i, c) * key.at(b, of, j, c) for c in range(dim))
                scores[j] = score((b, h, i, j), product * scale)
        scores = {j: s for j, s in scores.items() if s != -math.inf}
        sink = -math.inf if sinks is None else sinks[h]
        largest = max([sink, *scores.values()])
        if largest == -math.inf:
            context += [0.0] * value_dim
            lses.append(-math.inf)
            continue
        weights = {j: math.exp(s - largest) for j, s in scores.items()}
        total = math.fsum(weights.values()) + math.exp(sink - largest)
        context += [math.fsum(w * value.at(b, of, j, c) for j, w in weights.items()) / total
                    for c in range(value_dim)]
        lses.append(largest + math.log(total))
    return (Array((batch, heads, q_len, value_dim), context, "float64"),
            Array((batch, heads, q_len), lses, "float64"))
