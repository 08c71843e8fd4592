# SPDX-License-Identifier: Apache-2.0
"""`fovea tile`: weights and scores of a rectangle compared with the formula, printed and in files."""

import math
import re
import unittest

from attend_problem import DIM, KV_LEN, Q_LEN, AttendTest, problem
from support import run
from tensor_files import Array, attention, read_arrays

# Arguments, and expected parts of the message.
MISUSE = [
    ("--query q.npy", "expected --query and --key, or --input FILE; --key is missing"),
    ("{QK} --head 4", "--head: expected a number below 4, as there are that many heads of queries, got 4"),
    ("{QK} --head mean", "--head: expected a whole number from 0 to", 'got "mean"'),
    ("{QK} --rows 4:2", "--rows: expected FIRST:END", 'got "4:2"'),
    ("{QK} --cols 0:8", "--cols: expected FIRST:END", 'END <= 7, got "0:8"'),
    ("{QK} --output tile.png", '--output: expected a name that ends in .npy, which is what is written, got "tile.png"'),
    ("{QK} --output=", "--output: expected a value"),
    ("{QK} --sinks 1", "--sinks: expected one number per query head (4), got 1"),
]


class TileTest(AttendTest):
    def tile(self, *options):
        path = self.dir / "tile.npy"
        said = self.succeed("tile", *options, "--output", str(path))
        self.assertIn("written to", said)
        (tile,) = read_arrays(path).values()
        return tile

    def test_weights_and_scores_match_the_formula(self):
        arrays = problem()
        _, lse = attention(arrays["query"], arrays["key"], arrays["value"],
                           visible=lambda b, h, i, j: j <= i + KV_LEN - Q_LEN)
        options = ["--input", self.input_file(arrays), "--causal", "--batch", "1", "--head", "3",
                   "--rows", "1:4", "--cols", "2:6"]
        weights, scores = self.tile(*options), self.tile(*options, "--scores")
        self.assertEqual((weights.shape, weights.dtype, scores.shape), ((3, 4), "float32", (3, 4)))
        for i in range(1, 4):
            for j in range(2, 6):
                at = (i - 1, j - 2)
                if j > i + KV_LEN - Q_LEN:
                    self.assertEqual((weights.at(*at), scores.at(*at)), (0, -math.inf))
                    continue
                score = sum(arrays["query"].at(1, 3, i, c) * arrays["key"].at(1, 1, j, c)
                            for c in range(DIM)) / math.sqrt(DIM)
                self.assertAlmostEqual(scores.at(*at), score, delta=1e-5)
                self.assertAlmostEqual(weights.at(*at), math.exp(score - lse.at(1, 3, i)), delta=1e-5)

    def test_part_equals_the_cells_of_the_whole(self):
        # Position biases and per-query tensors are indexed from the first query of the head, not of the tile.
        table = self.write_array("table.npy", Array.normal((8, 4), 4))
        bias = self.write_array("bias.npy", Array.normal((Q_LEN, 1), 5))
        for rule in (["--relative", table, "--relative-distance", "9"], ["--bias", bias, "--scores"],
                     ["--alibi", "--window", "3,1"], ["--dtype", "f64", "--causal"]):
            options = ["--input", self.input_file(problem()), "--head", "2", *rule]
            whole = self.tile(*options)
            part = self.tile(*options, "--rows", "2:", "--cols", ":4")
            self.assertEqual(part.shape, (3, 4))
            for i in range(3):
                for j in range(4):
                    right = whole.at(i + 2, j)
                    same = right == part.at(i, j) or abs(part.at(i, j) - right) < 1e-6
                    self.assertTrue(same, (rule, i, j))

    def test_printed_in_numpy_format(self):
        self.write_array("q.npy", Array((2, 1), [0, 0]))
        text = self.succeed("tile", "--query", "q.npy", "--key", "q.npy", "--causal", cwd=self.dir)
        self.assertEqual(text, "[[1.  0. ]\n [0.5 0.5]]\n")

    def test_standard_output(self):
        path = self.input_file(problem())
        whole = self.tile("--input", path)
        content = run("tile", "--input", path, "--output", "-").stdout
        self.assertEqual(Array.from_npy(content).values, whole.values)

    def test_misuse(self):
        arrays = problem()
        for name in ("query", "key"):
            self.write_array(f"{name[0]}.npy", arrays[name])
        for arguments, *parts in MISUSE:
            with self.subTest(arguments):
                words = arguments.replace("{QK}", "--query q.npy --key k.npy").split()
                message = self.fail_with(2, "tile", *words, cwd=self.dir)
                for part in parts:
                    self.assertIn(part, message)
        self.assertEqual(self.files(), ["k.npy", "q.npy"])

    def test_help_options_exist(self):
        page = self.succeed("tile", "--help")
        for option in sorted(set(re.findall(r"--[a-z][a-z-]+", page))):
            self.assertNotIn(b"unknown option", run("tile", option, "1").stderr, option)
            self.assertEqual(len(re.findall(rf"(?m)^    (?:-\w, )?{option}(?: |$)", page)), 1, option)


if __name__ == "__main__":
    unittest.main()
