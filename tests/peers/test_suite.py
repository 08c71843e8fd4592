# SPDX-License-Identifier: Apache-2.0
"""Tests of the comparison itself: a wrong result must not pass. tests/peers/run runs them first."""

import contextlib
import io
import unittest

import numpy as np

import suite

RIGHT = np.random.default_rng(1).standard_normal((2, 3, 5)).astype(np.float32)


def changed(value, at=(-1, -1, -1)):
    result = RIGHT.copy()
    result[at] = value
    return result


class Compare(unittest.TestCase):
    def compare(self, got, expected=RIGHT):
        return suite.compare("context", got, expected, rtol=1e-3, atol=1e-7)

    def test_correct_results(self):
        self.assertEqual(self.compare(RIGHT), 0)
        self.assertAlmostEqual(self.compare(RIGHT * np.float32(1.0005)), np.abs(RIGHT).max() * 0.0005, places=6)
        self.assertEqual(self.compare(changed(-np.inf), changed(-np.inf)), 0)
        self.assertEqual(self.compare(RIGHT[:0], RIGHT[:0]), 0)

    def test_wrong_results(self):
        for name, got, expected in (
            ("one bad last element", changed(RIGHT[-1, -1, -1] * np.float32(1.01)), RIGHT),
            ("one NaN", changed(np.nan), RIGHT),
            ("NaN for NaN", changed(np.nan), changed(np.nan)),
            ("one infinity", changed(np.inf), RIGHT),
            ("the other infinity", changed(np.inf), changed(-np.inf)),
            ("a number for infinity", RIGHT, changed(-np.inf)),
            ("signs", -RIGHT, RIGHT),
            ("zeros", np.zeros_like(RIGHT), RIGHT),
            ("shape", RIGHT[:1], RIGHT),
            ("type", RIGHT.astype(np.float64), RIGHT),
        ):
            with self.subTest(name), self.assertRaises(suite.Mismatch):
                self.compare(got, expected)

    def test_message_has_index_and_values(self):
        with self.assertRaisesRegex(suite.Mismatch, r"^context: 1 of 30 .*\(7.0, expected .* at \[1, 2, 4\]\)$"):
            self.compare(changed(7))


class Tally(unittest.TestCase):
    def printed(self, action):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            status = action(suite.Tally())
        return status, text.getvalue().splitlines()

    @staticmethod
    def wrong():
        raise suite.Mismatch("wrong")

    def test_each_outcome(self):
        def action(tally):
            tally.run("a", lambda: "fine")
            tally.run("b", self.wrong)
            return tally.close("These")

        status, lines = self.printed(action)
        self.assertEqual(status, 1)
        self.assertEqual([line.split()[0] for line in lines[:2]], ["ok", "FAILED"])
        self.assertEqual(lines[2], "These: 1 passed, 1 failed")

    def test_a_group(self):
        status, lines = self.printed(
            lambda tally: (tally.run_group("g", {"x": lambda: 1.0, "y": lambda: 2.0, "z": self.wrong}),
                           tally.close("These"))[1])
        self.assertEqual(status, 1)
        self.assertEqual(lines, ["FAILED   g, z: wrong", "ok       g: 2 cases, largest error 2.0e+00",
                                 "These: 2 passed, 1 failed"])


if __name__ == "__main__":
    unittest.main()
