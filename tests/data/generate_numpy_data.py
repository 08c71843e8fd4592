#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes numpy_random.txt and numpy_arrays.txt: what NumPy draws and prints.

    python3 tests/data/generate_numpy_data.py [FOLDER]

The output depends on NumPy alone, so a second run writes the same bytes. random_test.cc and
array_format_test.cc read the files line by line; their formats are described in the headers below.
"""

import pathlib
import sys

import numpy as np

RANDOM_HEADER = """\
# The stream of numpy.random.RandomState, NumPy {version}.
# Regenerate with: python3 tests/data/generate_numpy_data.py
# One call a line, in order, each on the stream that the line before left behind:
#   seed S | words N values.. | randint LOW HIGH SHAPE values.. | rand SHAPE values.. | randn SHAPE values..
# SHAPE is "-" for a call without a shape, "0d" for an empty one, else extents joined by "x".
# Doubles are Python's repr.
"""

ARRAYS_HEADER = """\
# What numpy.array2string prints, NumPy {version}.
# Regenerate with: python3 tests/data/generate_numpy_data.py
# A case: "case NAME", "dtype T", "shape N..", "options NAME=VALUE..", "values V.." (repeated in
# turn until the shape is full), then the expected lines, each behind "|", and "end".
"""

SEEDS = [0, 42, 2**32 - 1]
RANGES = [1, 2, 3, 9, 100, 2**31, 2**31 + 1, 2**32, 2**32 + 1, 2**40]


# ---------------------------------------------------------------------------- random numbers

class Recorder:
    """Makes calls on a RandomState and writes down what they gave."""

    def __init__(self):
        self.lines = []
        self.stream = np.random.RandomState(0)
        self.seed(0)

    def _write(self, call, values, text):
        self.lines.append(" ".join([call, *(text(v) for v in np.ravel(values))]))

    @staticmethod
    def _shape(shape):
        return "-" if shape is None else "x".join(str(n) for n in shape) or "0d"

    def seed(self, seed):
        self.stream.seed(seed)
        self.lines.append(f"seed {seed}")

    def words(self, count):
        self._write(f"words {count}", self.stream._bit_generator.random_raw(count), lambda v: str(int(v)))

    def randint(self, low, high, shape=None):
        values = self.stream.randint(low, high, size=shape, dtype=np.int64)
        self._write(f"randint {low} {high} {self._shape(shape)}", values, lambda v: str(int(v)))

    def rand(self, shape=None):
        values = self.stream.rand() if shape is None else self.stream.rand(*shape)
        self._write(f"rand {self._shape(shape)}", values, lambda v: repr(float(v)))

    def randn(self, shape=None):
        values = self.stream.randn() if shape is None else self.stream.randn(*shape)
        self._write(f"randn {self._shape(shape)}", values, lambda v: repr(float(v)))


def random_lines():
    r = Recorder()
    for seed in SEEDS:
        r.seed(seed)
        r.words(1300)  # past two refills of the 624 words
        # Every range by itself, from a fresh seed: array calls, then single ones.
        for size in RANGES:
            r.seed(seed)
            for low in [0, 1, -1, -5, -size, 10**12, -(2**62)]:
                r.randint(low, low + size, [37])
                r.randint(low, low + size)
        for low, high in [(-(2**63), 2**63 - 1), (-(2**63), 0), (0, 2**63 - 1), (-(2**62), 2**62 + 1),
                          (-(2**63), -(2**63) + 1), (2**63 - 2, 2**63 - 1)]:
            r.randint(low, high, [25])
        # Shapes: none, empty, several dimensions.
        for shape in [None, [], [1], [0], [3, 0, 2], [2, 3], [2, 3, 4], [1, 2, 1, 3, 1, 2]]:
            if shape != []:  # rand() and randn() take a missing shape for an empty one
                r.rand(shape)
                r.randn(shape)
            r.randint(-3, 4, shape)
        # Long runs.
        r.seed(seed)
        r.rand([1111])
        r.randn([1001])
        r.randint(0, 9, [30, 30])
        # Odd counts of normal values leave one behind; other calls must not disturb it, and seeding
        # must drop it.
        r.seed(seed)
        for turn in range(60):
            r.randn([2 * (turn % 5) + 1])
            r.randint(0, RANGES[turn % len(RANGES)], [turn % 7])
            if turn % 3 == 0:
                r.randn()
            r.rand([turn % 4])
            if turn % 4 == 1:
                r.randint(-100, 100)
                r.rand()
            if turn % 11 == 5:
                r.randn([1])
                r.seed((seed + turn) % 2**32)
    # The mixture again, in an order drawn from a stream of its own.
    dice = np.random.RandomState(20240607)
    for _ in range(900):
        kind = dice.randint(12)
        count = int(dice.randint(1, 18))
        if kind == 0:
            r.seed(int(dice.randint(2**32)))
        elif kind == 1:
            r.words(count)
        elif kind < 6:
            size = RANGES[dice.randint(len(RANGES))] + int(dice.randint(3))
            low = int(dice.randint(-1000, 1000))
            r.randint(low, low + size, None if count == 1 else [count])
        elif kind < 9:
            r.rand(None if count == 1 else [count])
        else:
            r.randn(None if count == 1 else [count])
    return r.lines


# ---------------------------------------------------------------------------- printed arrays

class Cases:
    """Collects arrays, the options they are printed with and the text NumPy gives."""

    def __init__(self):
        self.lines = []
        self.count = 0

    def add(self, name, dtype, shape, values, *, precision=8, threshold=1000, edge_items=3,
            line_width=75, suppress=False, mode="maxprec"):
        values = np.asarray(values, dtype=dtype).ravel()
        array = np.resize(values, shape).astype(dtype)
        text = np.array2string(array, max_line_width=line_width, precision=precision,
                               suppress_small=suppress, threshold=threshold, edgeitems=edge_items,
                               floatmode=mode)
        self.count += 1
        self.lines += [
            f"case {self.count}-{name}",
            f"dtype {dtype}",
            " ".join(["shape", *(str(n) for n in shape)]),
            f"options precision={precision} threshold={threshold} edge_items={edge_items}"
            f" line_width={line_width} suppress={int(suppress)} mode={mode}",
            " ".join(["values", *(self._value(v) for v in values)]),
            *("|" + line for line in text.split("\n")),
            "end",
        ]

    @staticmethod
    def _value(v):
        return str(int(v)) if v.dtype in (np.int64, np.bool_) else str(v)


def float_cases(cases, dtype):
    rng = np.random.RandomState(7)
    nan, inf = float("nan"), float("inf")
    modes = ["maxprec", "fixed", "unique", "maxprec_equal"]
    rounding = [0.5, 1.5, 2.5, -0.5, 0.125, 0.375, 9.5, 99.96, 0.00096, 0.0]
    lists = {
        "zeros": [0.0], "minus-zero": [-0.0, 0.0], "ones": [1.0], "thirds": [1 / 3, 2 / 3, -1.0],
        "tenths": [0.1, 0.2, 0.3], "halves": [0.5, 1.25, -3.0], "rounding": rounding,
        "large": [1e8, 1.0], "below-large": [99999999.0, 1e5], "below-large32": [999999.0, 1e3],
        "large32": [1e6, 1e3], "small": [1e-4, 1e-3], "below-small": [9.9e-5, 1e-3],
        "spread": [1.0, 1000.0], "beyond-spread": [1.0, 1000.5], "spread-zero": [0.0, 2000.0, 0.0],
        "extremes": [1e30, 1e-30, -5.5], "carry": [9.999999999e5, 9.9999999e-7, 1.0],
        "powers": [2.0**-96, 2.0**87, 1.2345678e5], "exponent-three": [1e-30, 1.5e30, -2.25],
        "nan": [nan], "nan-one": [nan, 1.0], "inf": [inf], "minus-inf": [-inf, nan],
        "not-finite": [nan, inf, -inf, 1.5, -2.25], "not-finite-large": [inf, -1e20, 3.0],
        "not-finite-tiny": [-inf, 0.5], "inf-integer": [inf, 100.0, 7.0],
        "weights": [0.13854, 0.2379, 0.2333, 0.124, 0.1082, 0.1581],
    }
    if dtype == "float64":
        lists["tiniest"] = [5e-324, 1.7976931348623157e308]
        lists["needs-17"] = [0.1 + 0.2, 1.0000000000000002]
    else:
        lists["tiniest"] = [1e-45, 3.4028235e38]
        lists["float32-digits"] = [0.1, 16777216.0, 1.2345679e-5]
    for name, values in lists.items():
        for mode in modes:
            cases.add(f"{name}-{mode}", dtype, [len(values)], values, mode=mode,
                      precision=8 if mode != "fixed" else 4)
        cases.add(f"{name}-suppress", dtype, [len(values)], values, suppress=True)
        cases.add(f"{name}-short", dtype, [len(values)], values, precision=3)
    for value in [0.0, -0.0, 1.0, -2.5, 1e20, 1e-7, 123456.789, nan, inf, -inf]:
        cases.add("scalar", dtype, [], [value])
    for precision in [0, 1, 2, 5, 17, 25]:
        for mode in modes:
            cases.add(f"precision-{mode}", dtype, [2, 5], rounding, precision=precision, mode=mode)
            cases.add(f"precision-wide-{mode}", dtype, [8], [1.5e9, -2.5e-9, 1 / 3, 7, 0.25, 1e3, 2.5, 3.5],
                      precision=precision, mode=mode)
    shapes = [[0], [2, 0, 3], [1, 1, 1], [3, 4], [2, 2, 3], [2, 3, 2, 2], [1, 2, 1, 2, 3],
              [2, 1, 2, 1, 2, 2], [7, 13], [40]]
    for shape in shapes:
        for scale in [1.0, 1e-3, 1e6]:
            values = (rng.randn(max(1, min(48, int(np.prod(shape))))) * scale).tolist()
            cases.add("normal", dtype, shape, values)
            cases.add("normal-fixed", dtype, shape, values, precision=4, mode="fixed", suppress=True)
    for width in [0, 1, 10, 11, 12, 20, 33, 200]:
        cases.add("width", dtype, [2, 2, 6], rng.randn(24).round(3), line_width=width)
    for edge in [0, 1, 2, 3, 5]:
        for threshold in [0, 11, 200]:
            for shape in [[12], [5, 7], [3, 4, 9], [2, 11, 3, 4]]:
                cases.add("summary", dtype, shape, [1.5, 2000.25, -3.0, 4.125, 0.5],
                          edge_items=edge, threshold=threshold)
    cases.add("summary-default", dtype, [1001], np.arange(7) + 0.25)
    cases.add("summary-default-exact", dtype, [1000], np.arange(7) + 0.25)
    cases.add("summary-default-matrix", dtype, [64, 64], rng.randn(24))
    cases.add("summary-hidden-large", dtype, [9], [1, 2, 3, 4, 1e12, 6, 7, 8, 9], threshold=8)


def other_cases(cases):
    rng = np.random.RandomState(8)
    shapes = [[], [1], [0], [3, 0], [3], [3, 3], [2, 2, 3], [2, 1, 2, 2, 1, 2], [50], [5, 29]]
    values = {
        "digit": rng.randint(0, 10, 48), "signed": rng.randint(-100, 100, 48),
        "ends": [-(2**63), 2**63 - 1, 0], "exact": [2**53 + 1, -(2**53) - 3, 7],
        "minus-one": [-1],
    }
    for shape in shapes:
        for name, numbers in values.items():
            cases.add(name, "int64", shape, numbers)
        cases.add("bool", "bool", shape, [True, False, False])
        cases.add("bool-false", "bool", shape, [False])
        cases.add("bool-true", "bool", shape, [True])
    for dtype in ["int64", "bool"]:
        for edge in [0, 1, 4]:
            for shape in [[10], [9, 9], [3, 9, 2]]:
                cases.add("summary", dtype, shape, [0, 1, 1], edge_items=edge, threshold=9)
        for width in [0, 9, 24]:
            cases.add("width", dtype, [2, 11], [0, 1, 1], line_width=width)
    cases.add("summary-default", "int64", [2000], np.arange(100))
    cases.add("summary-default-matrix", "int64", [40, 40], np.arange(100))


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    cases = Cases()
    for dtype in ["float32", "float64"]:
        float_cases(cases, dtype)
    other_cases(cases)
    for name, header, lines in [("numpy_random.txt", RANDOM_HEADER, random_lines()),
                                ("numpy_arrays.txt", ARRAYS_HEADER, cases.lines)]:
        text = header.format(version=np.__version__) + "\n".join(lines) + "\n"
        (folder / name).write_text(text, encoding="ascii", newline="\n")
        print(f"{folder / name}: {len(lines)} lines, {len(text)} bytes")
    print(f"{cases.count} arrays")


if __name__ == "__main__":
    main()
