# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/training that need neither PyTorch nor measurements: flop counts, checks and tables.

    python3 bench/training/test_record.py
"""

import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import record  # noqa: E402
import task as tasks  # noqa: E402

RUN = {"date": "2026-11-22T10:00:00Z", "cpu": "Some CPU", "cores": 2, "compiler": "GCC 12", "target": "AVX3",
       "commit": "abc1234", "dirty": False, "versions": {"torch": "1.0", "fovea": "0.1"}}  # fmt: skip


def rounds(*pairs):
    return {"rounds": [{"fovea": [ours] * 3, "torch": [theirs] * 3, "ceiling": [90.0, 100.0]}
                       for ours, theirs in pairs]}  # fmt: skip


def answers(ours, theirs, norms=(1.0, 1.0)):
    return {name: {"losses": losses, "norms": [norm], "seconds": []}
            for name, losses, norm in zip(record.CONTENDERS, (ours, theirs), norms, strict=True)}  # fmt: skip


def curve(offset):
    return [5.0 - 0.01 * step + offset for step in range(80)]


class Work(unittest.TestCase):
    def test_products_of_a_small_model(self):
        task = tasks.Task(width=4, heads=2, layers=1, inner=8, vocabulary=10, batch=1, length=1)
        # Three attention layers with four square projections, two feed-forward blocks 4 x 8 x 4, and 4 x 10.
        parameters = 12 * 16 + 2 * 64 + 40
        # Three attention layers, two heads, one pair each: two products forward, five backward.
        self.assertEqual(task.flop(), 6 * parameters + 3 * 2 * 14 * 2)

    def test_causal_pairs(self):
        long, short = tasks.Task(batch=1, length=4), tasks.Task(batch=1, length=2)
        per_row = 6 * sum(long.parameters_of_products())
        pairs = lambda task: (task.flop() - task.length * per_row) // (3 * 4 * 14 * 64)  # noqa: E731
        self.assertEqual([pairs(long), pairs(short)], [2 * 16 + 10, 2 * 4 + 3])


class Check(unittest.TestCase):
    def test_agreement(self):
        self.assertTrue(record.judge_check(answers([7.0, 6.0], [7.00000001, 6.0001]))["agrees"])

    def test_disagreement(self):
        for pair in (answers([7.0, 6.0], [7.0001, 6.0]), answers([7.0, 6.0], [7.0, 6.1]),
                     answers([7.0], [7.0], (1.0, 1.001)), answers([None], [7.0]), answers([7.0], [7.0, 6.0]),
                     answers([], [])):  # fmt: skip
            with self.subTest(**pair):
                self.assertFalse(record.judge_check(pair)["agrees"])

    def test_nan_is_no_agreement(self):
        self.assertFalse(record.judge_check(answers([math.nan], [7.0]))["agrees"])


class Curves(unittest.TestCase):
    def curves(self, apart):
        spread = {"1": 0.0, "2": 0.01, "3": -0.01}
        return {name: {seed: curve(offset + shift) for seed, shift in spread.items()}
                for name, offset in (("fovea", 0.0), ("torch", apart))}  # fmt: skip

    def test_within_noise(self):
        judged = record.judge_curves(self.curves(0.03))
        self.assertTrue(judged["equal"])
        self.assertAlmostEqual(judged["difference"], 0.03)
        self.assertAlmostEqual(judged["error"], math.sqrt(2 / 3) * 0.01)

    def test_apart(self):
        self.assertFalse(record.judge_curves(self.curves(0.04))["equal"])


class Tables(unittest.TestCase):
    def kept(self, **more):
        return {"run": RUN, "gflop": 90.0, "check": record.judge_check(answers([7.0, 6.0], [7.0, 6.0])),
                "speed": {"1": rounds((1.0, 1.4), (1.25, 1.5), (1.25, 2.0))}, **more}  # fmt: skip

    def test_ratio_is_of_rounds(self):
        self.assertAlmostEqual(record.ratio(self.kept()["speed"]["1"]), 1.4)

    def test_speed(self):
        self.assertIn("| 1 | 1250 ms | 72.0 | 72.0 % | 1500 ms | 60.0 | 60.0 % | 1.40 x |", record.page(self.kept()))

    def test_curves(self):
        page = record.page(self.kept(curves=Curves().curves(0.0)))
        self.assertIn("equal within noise", page)
        self.assertIn("| 1 to 20 | 4.905 | 4.915 | 4.895 | 4.905 | 4.915 | 4.895 |", page)


if __name__ == "__main__":
    unittest.main()
