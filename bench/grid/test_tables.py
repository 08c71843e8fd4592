# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/grid without measurements: shapes, summary and tables.

    python3 bench/grid/test_tables.py
"""

import itertools
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import shapes  # noqa: E402
import tables  # noqa: E402


def first(seed, count):
    return list(itertools.islice(shapes.shapes(seed), count))


class Shapes(unittest.TestCase):
    def test_a_seed_gives_the_same_shapes(self):
        self.assertEqual(first(3, 60), first(3, 60))
        self.assertNotEqual(first(3, 60), first(4, 60))

    def test_kinds_are_what_they_say(self):
        for shape in first(1, 600):
            self.assertEqual(shape.q_heads % shape.kv_heads, 0, shape)
            self.assertLessEqual(shape.q_len, shape.kv_len, shape)
            if shape.kind in ("full", "causal"):
                self.assertTrue(248 <= shape.q_len == shape.kv_len <= 2048, shape)
                self.assertEqual(shape.causal, shape.kind == "causal", shape)
            elif shape.kind == "one query":
                self.assertTrue(shape.q_len == 1 and 64 <= shape.kv_len <= 16384 and not shape.causal, shape)
            elif shape.kind == "few queries":
                self.assertTrue(2 <= shape.q_len <= 64 and not shape.causal, shape)
            elif shape.kind == "chunk":
                self.assertTrue(64 <= shape.q_len <= 512 <= shape.kv_len and shape.causal, shape)
            elif shape.kind == "mask tensors":
                self.assertTrue(16 <= shape.kv_len <= 2048 and shape.q_len in (1, shape.kv_len), shape)
                self.assertTrue(shape.mask in shapes.MASKS and shape.form in ("boolean", "bias"), shape)
            else:
                self.assertTrue(16 <= shape.q_len == shape.kv_len <= 200 and 1 <= shape.batch <= 32, shape)
            self.assertEqual(shape.mask != "", shape.kind == "mask tensors", shape)
        self.assertEqual({shape.kind for shape in first(1, 7)}, set(shapes.DRAW))
        self.assertEqual(set(shapes.MEANING), set(shapes.DRAW))

    def test_named_shapes_are_what_they_say(self):
        named = list(shapes.named())
        self.assertEqual(len(set(named)), len(named))
        self.assertEqual({shape.kind for shape in named}, set(shapes.NAMED_MEANING))
        for shape in named:
            if shape.kind == shapes.SHORT:
                self.assertTrue(16 <= shape.q_len == shape.kv_len <= 64, shape)
            else:
                least, most = (1, 1) if shape.kind == shapes.ONE else (8, 32)
                self.assertTrue(least <= shape.q_len <= most and not shape.causal, shape)


CELLS = [
    {"seed": 1, "kind": "full", "title": "A", "sdpa": 1.5, "attention": 1.6},
    {"seed": 1, "kind": "full", "title": "B", "sdpa": 0.9, "attention": 1.0},
    {"seed": 1, "kind": "one query", "title": "C", "sdpa": 1.1, "attention": 0.95},
]
NAMED_CELLS = [
    {"seed": 0, "kind": shapes.ONE, "title": "D", "sdpa": 2.0, "attention": 2.1, "decode": 2.02},
    {"seed": 0, "kind": shapes.ONE, "title": "E", "sdpa": 1.0, "attention": 1.1, "decode": 1.05},
]


def record():
    return {"cpu": "Some CPU", "target": "AVX2", "dtype": "float32", "threads": 1, "seeds": [1, 2], "seconds": 60.0,
            "date": "2026-11-25", "commit": "abc1234", "versions": {"torch": "2"}, "kinds": tables.summary(CELLS),
            "lost": CELLS[1:]}


def named_record():
    return {**record(), "named": True, "seeds": [], "kinds": tables.summary(NAMED_CELLS), "lost": []}


class Tables(unittest.TestCase):
    def test_summary(self):
        self.assertEqual(tables.summary(CELLS), {
            "full": {"cells": 2, "sdpa": {"lost": 1, "median": 1.2, "worst": 0.9},
                     "attention": {"lost": 0, "median": 1.3, "worst": 1.0}},
            "one query": {"cells": 1, "sdpa": {"lost": 0, "median": 1.1, "worst": 1.1},
                          "attention": {"lost": 1, "median": 0.95, "worst": 0.95}},
        })
        self.assertEqual(tables.summary([]), {})

    def test_page(self):
        page = tables.page([record()])
        self.assertIn("**float32, AVX2, one thread**: 1 of 3 cells lost. Some CPU; torch 2; seeds 1, 2, 60 s each", page)
        self.assertIn("| full: 256 to 2,048 queries and keys | 2 | 1 | 1.20 | 0.90 | 0 | 1.30 | 1.00 |", page)
        self.assertIn("\n\nLost: 0.90 B.\n\nLost by `fovea.attention`: 0.95 C.", page)
        older = {**record(), "lost": [CELLS[1]]}  # without the cells that only `attention` loses
        self.assertNotIn("Lost by", tables.page([older]))
        self.assertIn("Not measured", tables.page([]))

    def test_named_shapes(self):
        entry = tables.summary(NAMED_CELLS)[shapes.ONE]
        self.assertEqual((entry["cells"], entry["times_decode"]), (2, 1.05))
        page = tables.page([named_record()])
        self.assertIn("**Named shapes, float32, AVX2, one thread**: 0 of 2 cells lost. Some CPU; torch 2; commit", page)
        self.assertIn(f"| {shapes.ONE}: 8 and 32/8 heads,", page)
        self.assertIn("at most 1.050 times as long as through `fovea.decode`", page)
        self.assertEqual(tables.sentence([named_record()]), "")
        self.assertEqual(tables.sentence([record(), named_record()]), tables.sentence([record()]))

    def test_sentence(self):
        records = [record(), {**record(), "dtype": "float16", "lost": []}]
        text = "1 of 3 in float32 (worst 0.90), none of 3 in float16 on Some CPU, AVX2, one thread, 2026-11-25"
        self.assertIn(text, tables.sentence(records))
        records[1]["date"] = "2026-11-24"
        self.assertIn("on Some CPU, AVX2, one thread, 2026-11-24 and 2026-11-25", tables.sentence(records))
        self.assertEqual(tables.sentence([]), "")


if __name__ == "__main__":
    unittest.main()
