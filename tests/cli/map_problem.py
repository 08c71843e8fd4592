# SPDX-License-Identifier: Apache-2.0
"""Runs of `fovea map`, the formula for its values, and a reader for its PNG files."""

import math
import struct
import zlib

from attend_problem import KV_LEN, Q_LEN, AttendTest, problem
from tensor_files import Array, read_arrays


def row_weights(arrays, batch, head, i, visible, score, sink=-math.inf):
    """Returns {key: weight} of a query, computed by the formula."""
    query, key = arrays["query"], arrays["key"]
    of = head // (query.shape[1] // key.shape[1])
    scores = {}
    for j in range(key.shape[2]):
        if visible(batch, head, i, j):
            product = sum(query.at(batch, head, i, c) * key.at(batch, of, j, c) for c in range(query.shape[3]))
            scores[j] = score((batch, head, i, j), product / math.sqrt(query.shape[3]))
    total = math.fsum(math.exp(s) for s in scores.values()) + math.exp(sink)
    return {j: math.exp(s) / total for j, s in scores.items()}


def everything(*_):
    return True


def as_it_is(_, s):
    return s


def causal(_b, _h, i, j, offset=KV_LEN - Q_LEN):
    return j <= i + offset


class Png:
    """A parsed PNG with a palette."""

    def __init__(self, content):
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        self.texts, data, place = [], b"", 8
        while place < len(content):
            size, kind = struct.unpack(">I4s", content[place:place + 8])
            body = content[place + 8:place + 8 + size]
            (check,) = struct.unpack(">I", content[place + 8 + size:place + 12 + size])
            assert zlib.crc32(kind + body) == check
            if kind == b"IHDR":
                self.width, self.height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", body)
                assert (depth, color, interlace) == (8, 3, 0)
            elif kind == b"PLTE":
                self.palette = [tuple(body[i:i + 3]) for i in range(0, size, 3)]
            elif kind == b"tRNS":
                self.alpha = list(body)
            elif kind == b"IDAT":
                data += body
            elif kind == b"iTXt":
                keyword, rest = body.split(b"\0", 1)
                self.texts.append((keyword.decode(), rest[2:].split(b"\0", 2)[2].decode("utf-8")))
            place += 12 + size
        pixels = zlib.decompress(data)
        lines = [pixels[r * (self.width + 1):(r + 1) * (self.width + 1)] for r in range(self.height)]
        assert all(line[0] == 0 for line in lines)  # no filter, libpng's default for palettes
        self.rows = [line[1:] for line in lines]

    def color(self, row, column):
        """Returns (red, green, blue, alpha) of a pixel."""
        place = self.rows[row][column]
        return (*self.palette[place], self.alpha[place] if place < len(self.alpha) else 255)


class MapTest(AttendTest):
    def map(self, *options, output="map.npy", **run_options):
        path = self.dir / output
        self.succeed("map", *options, "--output", str(path), **run_options)
        return path

    def cells(self, *options):
        (cells,) = read_arrays(self.map(*options)).values()
        self.assertEqual(cells.dtype, "float32")
        return cells

    def png(self, *options):
        return Png(self.map(*options, output="map.png").read_bytes())

    def qk(self, arrays=None):
        """Writes the query and key of a problem to files; returns the options that name them."""
        arrays = arrays or problem()
        return ["--query", self.write_array("q.npy", arrays["query"]),
                "--key", self.write_array("k.npy", arrays["key"])]

    def square(self, length=12):
        return {"query": Array.normal((length, 8), 5), "key": Array.normal((length, 8), 6)}

    def check(self, arrays, options, batch=0, head=0, visible=everything, score=as_it_is, sinks=None,
              rows=(0, Q_LEN), cols=(0, KV_LEN)):
        where = ["--batch", str(batch), "--head", str(head), "--reduce", "sum"]
        if rows != (0, Q_LEN):
            where += ["--rows", f"{rows[0]}:{rows[1]}"]
        if cols != (0, KV_LEN):
            where += ["--cols", f"{cols[0]}:{cols[1]}"]
        cells = self.cells("--input", self.input_file(arrays), *options, *where)
        self.assertEqual(cells.shape, (rows[1] - rows[0], cols[1] - cols[0]), options)
        for i in range(*rows):
            weights = row_weights(arrays, batch, head, i, visible, score,
                                  -math.inf if sinks is None else sinks[head])
            for j in range(*cols):
                got = cells.at(i - rows[0], j - cols[0])
                self.assertAlmostEqual(got, weights.get(j, 0.0), delta=2e-6, msg=(options, where, i, j))
