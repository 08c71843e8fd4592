# SPDX-License-Identifier: Apache-2.0
"""`fovea heads`: statistics compared with the formula, names of constructed heads, tables and files."""

import csv
import io
import json
import math
import re
import unittest

from attend_problem import DIM, KV_LEN, Q_LEN, AttendTest, problem
from support import environment, run
from tensor_files import Array

# Arguments, and expected parts of the message.
MISUSE = [
    ("--query q.npy", "expected --query and --key, or --input FILE; --key is missing"),
    ("{QK} --blocks 0", '--blocks: expected a whole number from 1 to 1048576, got "0"'),
    ("{QK} --sort size", "--sort: expected one of share, entropy,", 'got "size"'),
    ("{QK} --sort previous", "--sort: expected one of share,", 'got "previous" (did you mean "prev"?)'),
    ("{QK} --sort dist", 'got "dist" (did you mean "distance"?)'),
    ("{QK} --output heads.txt",
     '--output: expected a name that ends in .json, .csv, .png, .svg or .html, which is what is written, '
     'got "heads.txt"'),
    ("{QK} --output=", "--output: expected a value"),
    ("{QK} --sinks 1", "--sinks: expected one number per query head (4), got 1"),
    ("--query none.npy --key none.npy", "nothing to show: expected at least one of each, got batch 1, heads 2, queries 0, keys 0"),
]
NUMBERS = ["entropy", "even_entropy", "maximum", "mean_distance", "first_key", "previous_key", "own_key", "next_key",
           "block_diagonal"]
LENGTH = 48


def made_heads():
    """Returns the names of the kinds of heads, and a query and a key tensor with one head of each kind.

    Row i is 20 in column place(i) and 0 elsewhere, so a query attends to the keys in the same column.
    """
    def rows(place):
        return [20.0 if c == place(i) else 0.0 for i in range(LENGTH) for c in range(LENGTH)]

    nothing = [0.0] * (LENGTH * LENGTH)
    own = rows(lambda i: i)
    kinds = {"previous token": (rows(lambda i: max(i - 1, 0)), own), "own token": (own, own),
             "next token": (rows(lambda i: min(i + 1, LENGTH - 1)), own), "sink": (rows(lambda i: 0), own),
             "uniform": (nothing, nothing), "local blocks": (rows(lambda i: i // 6), rows(lambda i: i // 6)),
             "one key": (rows(lambda i: i * 29 % LENGTH), own), None: (rows(lambda i: i % 8), rows(lambda i: i % 8))}
    shape = (len(kinds), LENGTH, LENGTH)
    query, key = ([x for kind in kinds.values() for x in kind[side]] for side in (0, 1))
    return list(kinds), {"query": Array(shape, query), "key": Array(shape, key)}


class HeadsTest(AttendTest):
    def heads(self, *options):
        return json.loads(self.succeed("heads", *options, "--json"))

    def test_statistics_match_the_formula(self):
        arrays = problem()
        found = self.heads("--input", self.input_file(arrays), "--causal", "--blocks", "3", "--sort", "head")
        self.assertEqual([(head["batch"], head["head"]) for head in found["heads"]],
                         [(b, h) for b in range(2) for h in range(4)])
        offset = KV_LEN - Q_LEN
        block = {j: max(b for b in range(3) if b * KV_LEN // 3 <= j) for j in range(KV_LEN)}
        for head in found["heads"]:
            sums = dict.fromkeys(NUMBERS, 0.0)
            for i in range(Q_LEN):
                at = i + offset
                powers = [math.exp(sum(arrays["query"].at(head["batch"], head["head"], i, c)
                                       * arrays["key"].at(head["batch"], head["head"] // 2, j, c)
                                       for c in range(DIM)) / math.sqrt(DIM)) for j in range(at + 1)]
                row = [power / sum(powers) for power in powers] + [0.0] * (KV_LEN - at)
                sums["entropy"] -= sum(w * math.log(w) for w in row if w > 0)
                sums["even_entropy"] += math.log(at + 1)
                sums["maximum"] += max(row)
                sums["mean_distance"] += sum(w * (at - j) for j, w in enumerate(row))
                sums["first_key"] += row[0]
                sums["previous_key"] += row[at - 1]
                sums["own_key"] += row[at]
                sums["block_diagonal"] += sum(row[j] for j in block if block[j] == block[at])
            for name in NUMBERS:
                self.assertAlmostEqual(head[name], sums[name] / Q_LEN, delta=1e-5, msg=name)

    def test_names(self):
        names, arrays = made_heads()
        path = self.input_file(arrays)
        found = self.heads("--input", path, "--blocks", "8", "--scale", "1", "--sort", "head")
        self.assertEqual([head["name"] for head in found["heads"]], names)
        text = self.succeed("heads", "--input", path, "--blocks", "8", "--scale", "1")
        lines = {name: line for line in text.splitlines() for name in names if name and line.endswith(name)}
        self.assertEqual(len(lines), 7)
        self.assertRegex(lines["sink"], r"1\.00 █+ ")
        self.assertRegex(text, r"(?m)^ +7 .* -$")

    def test_rows_of_one_key(self):
        """Heads with a single key are named "own token", not "sink"; a large --sinks value leaves them unnamed."""
        arrays = {"query": Array((4, 1, 3), [0.1 * n for n in range(12)]),
                  "key": Array((4, 1, 3), [0.2 * n for n in range(12)])}
        path = self.input_file(arrays)
        self.assertEqual([head["name"] for head in self.heads("--input", path)["heads"]], 4 * ["own token"])
        found = self.heads("--input", path, "--sinks", "0,20,0,50", "--sort", "head")["heads"]
        self.assertEqual([head["name"] for head in found], ["own token", None, "own token", None])
        text = self.succeed("heads", "--input", path, env=environment(COLUMNS="160"))
        self.assertNotIn("nan", text)

    def test_sort_orders(self):
        path = self.input_file(made_heads()[1])
        columns = {"entropy": "entropy", "distance": "mean_distance", "largest": "maximum", "first": "first_key",
                   "prev": "previous_key", "own": "own_key", "next": "next_key", "block": "block_diagonal"}
        for order, column in columns.items():
            numbers = [head[column] for head in self.heads("--input", path, "--scale", "1", "--sort", order)["heads"]]
            self.assertEqual(numbers, sorted(numbers, reverse=True), order)
            self.assertNotEqual(numbers[0], numbers[-1])
        shares = [max(head[name] for name in ("first_key", "previous_key", "own_key", "next_key"))
                  for head in self.heads("--input", path, "--scale", "1")["heads"]]
        self.assertEqual(shares, sorted(shares, reverse=True))

    def test_files(self):
        path = self.input_file(problem())
        found = self.heads("--input", path, "--causal")["heads"]
        for name in ("heads.json", "heads.csv"):
            said = self.succeed("heads", "--input", path, "--causal", "--output", str(self.dir / name))
            self.assertIn("heads  8, written to ", said)
        self.assertEqual(json.loads((self.dir / "heads.json").read_text())["heads"], found)
        rows = list(csv.DictReader(io.StringIO((self.dir / "heads.csv").read_text())))
        self.assertEqual(list(rows[0]), ["batch", "head", *NUMBERS, "name"])
        for row, head in zip(rows, found, strict=True):
            self.assertEqual([row["batch"], row["head"], row["name"]],
                             [str(head["batch"]), str(head["head"]), head["name"] or ""])
            for name in NUMBERS:
                self.assertAlmostEqual(float(row[name]), head[name], delta=1e-8)

    def test_tables_fit_the_width(self):
        arrays = problem()
        arrays["query"].values[0] = math.nan
        path = self.input_file(arrays)
        for width in range(60, 161, 4):
            text = self.succeed("heads", "--input", path, "--blocks", "2", env=environment(COLUMNS=str(width)))
            table = text.split("\n\n")[1].splitlines()
            self.assertEqual(len(table), 9)
            self.assertLessEqual(max(map(len, table)), width)
            self.assertEqual("█" in text, width >= 96, width)
            self.assertRegex(table[-1], r" - .* -$")  # NaN sorts last in any order
        self.assertIsNone(self.heads("--input", path)["heads"][-1]["entropy"])

    def test_types_and_layouts(self):
        arrays = problem()
        right = self.heads("--input", self.input_file(arrays), "--sort", "head")["heads"]
        for options in (["--dtype", "f64"], ["--threads", "1"]):
            found = self.heads("--input", self.input_file(arrays), "--sort", "head", *options)["heads"]
            for a, b in zip(found, right, strict=True):
                for name in NUMBERS:
                    self.assertAlmostEqual(a[name], b[name], delta=1e-5)

    def test_misuse(self):
        arrays = problem()
        for name in ("query", "key"):
            self.write_array(f"{name[0]}.npy", arrays[name])
        self.write_array("none.npy", Array((2, 0, 3), []))
        for arguments, *parts in MISUSE:
            with self.subTest(arguments):
                words = arguments.replace("{QK}", "--query q.npy --key k.npy").split()
                message = self.fail_with(2, "heads", *words, cwd=self.dir)
                for part in parts:
                    self.assertIn(part, message)
        self.assertEqual(self.files(), ["k.npy", "none.npy", "q.npy"])

    def test_help_options_exist(self):
        page = self.succeed("heads", "--help")
        for option in sorted(set(re.findall(r"--[a-z][a-z-]+", page))):
            self.assertNotIn(b"unknown option", run("heads", option, "1").stderr, option)
            self.assertEqual(len(re.findall(rf"(?m)^    (?:-\w, )?{option}(?: |$)", page)), 1, option)


if __name__ == "__main__":
    unittest.main()
