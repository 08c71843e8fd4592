# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/peers that need no other library: arithmetic of the problems, merging and tables.

    python3 -m unittest discover -s bench/peers
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import cells  # noqa: E402
import results  # noqa: E402


def counted(cell):
    """Computes visible_pairs by testing every pair."""
    rules = {
        "full": lambda i, j: True,
        "causal": lambda i, j: j <= i,
        "window": lambda i, j: i - cell.window <= j <= i,
        "padding": lambda i, j: j < cell.keys,
        "documents": lambda i, j: i * cell.documents // cell.length == j * cell.documents // cell.length,
    }
    places = range(cell.length)
    return sum(rules[cell.mask](i, j) for i in range(cell.q_len) for j in places)


def measured(median, how="native", note=""):
    return {"how": how, "note": note, "samples_us": [median] * 3, "median_us": median, "cpu_share": 1.0}


RUN = {
    "date": "2026-11-21T10:00:00Z", "cpu": "Some CPU", "cores": 2, "kernel": "Linux 6", "compiler": "GCC 12",
    "target": "AVX3", "commit": "abc1234", "dirty": False, "versions": {"torch": "1.0", "fovea": "0.1"},
}
NOTHING = {"runs": {}, "results": {}}
# 2 * 1000 * 1000 * (50 + 50) flop: 1000 microseconds are 200 GFLOP/s.
CELL = cells.cell("some", 1000, 50, 1)


class Cells(unittest.TestCase):
    def test_visible_pairs(self):
        for rest in ({}, {"mask": "causal"}, {"mask": "window", "window": 3}, {"mask": "window", "window": 99},
                     {"mask": "padding", "keys": 7}, {"mask": "documents", "documents": 4}, {"queries": 5}):
            with self.subTest(**rest):
                cell = cells.cell("x", 12, 2, 1, **rest)
                self.assertEqual(cell.visible_pairs(), counted(cell))

    def test_useful_flop(self):
        self.assertEqual(cells.cell("x", 10, 3, 2, value_dim=5).useful_flop(), 2 * 100 * 2 * 8)

        self.assertEqual(cells.cell("x", 10, 3, 2, value_dim=5, backward=True).useful_flop(), 2 * 100 * 2 * 19)

    def test_bytes_of_keys_and_values(self):
        cell = cells.cell("x", 10, 3, 8, value_dim=5, kv_heads=2, queries=1)
        self.assertEqual(cell.key_value_bytes(), 10 * 2 * 8 * 4)
        self.assertEqual(cells.cell("x", 10, 4, 2, dtype="bfloat16").key_value_bytes(), 10 * 2 * 8 * 2)

    def test_names_are_told_apart(self):
        names = [cell.name for cell in cells.every_cell()]
        self.assertEqual(len(names), len(set(names)))
        titles = [cell.title() for cell in cells.every_cell()]
        self.assertEqual(len(titles), len(set(titles)))

    def test_documents_fill_the_sequence(self):
        for cell in cells.every_cell():
            self.assertEqual(cell.length % (cell.documents or 1), 0, cell.name)


class Merging(unittest.TestCase):
    def test_a_cell_is_replaced_as_a_whole(self):
        first = results.merge(NOTHING, "a", RUN, CELL, 1, {"fovea": measured(1), "jax": measured(2)})
        second = results.merge(first, "b", RUN, CELL, 1, {"fovea": measured(3)})
        self.assertEqual(list(second["results"]["AVX3/some/1"]["measured"]), ["fovea"])
        self.assertEqual(list(second["runs"]), ["b"])

    def test_other_cells_and_their_runs_stay(self):
        first = results.merge(NOTHING, "a", RUN, CELL, 1, {"fovea": measured(1)})
        second = results.merge(first, "b", RUN, CELL, 2, {"fovea": measured(3)})
        self.assertEqual(set(second["results"]), {"AVX3/some/1", "AVX3/some/2"})
        self.assertEqual(set(second["runs"]), {"a", "b"})
        self.assertEqual(set(first["results"]), {"AVX3/some/1"})

    def test_targets_have_tables_of_their_own(self):
        entries = {"fovea": measured(1000), "jax": measured(2000)}
        kept = results.merge(NOTHING, "a", RUN, CELL, 1, entries)
        kept = results.merge(kept, "b", {**RUN, "target": "AMX", "cpu": "Other CPU"}, CELL, 1, {**entries, "fovea": measured(500)})
        self.assertEqual(set(kept["results"]), {"AVX3/some/1", "AMX/some/1"})
        lines = results.page(kept).splitlines()
        first, second = lines.index("### On AVX3"), lines.index("### On AMX")
        self.assertTrue(lines[first + 2].startswith("Some CPU"))
        self.assertTrue(lines[second + 2].startswith("Other CPU"))
        self.assertIn("| full, N=1000 D=50 H=1 | 1 | 400.0 | 100.0 (4.00) | 4.00 |", lines[second:])
        self.assertIn("| full, N=1000 D=50 H=1 | 1 | 200.0 | 100.0 (2.00) | 2.00 |", lines[first:second])

    def test_saved_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results" / "peers.json"
            self.assertEqual(results.load(path), NOTHING)
            kept = results.merge(NOTHING, "a", RUN, CELL, 1, {"fovea": measured(1)})
            results.save(path, kept)
            self.assertEqual(results.load(path), kept)
            self.assertEqual([entry.name for entry in path.parent.iterdir()], ["peers.json"])


class Page(unittest.TestCase):
    def lines(self, entries, cell=CELL):
        return results.page(results.merge(NOTHING, "a", RUN, cell, 1, entries)).splitlines()

    def row(self, entries):
        return next(line for line in self.lines(entries) if line.startswith("| full, N=1000"))

    def test_rates_and_ratios(self):
        row = self.row({"fovea": measured(1000), "torch_sdpa": measured(1500), "jax": measured(4000)})
        self.assertEqual(row, "| full, N=1000 D=50 H=1 | 1 | 200.0 | 133.3 (1.50) | 50.0 (4.00) | 1.50 |")

    def test_lost_rows_are_marked_and_counted(self):
        entries = {"fovea": measured(1000), "torch_sdpa": measured(800)}
        self.assertTrue(self.row(entries).endswith("| 250.0 (0.80) | **0.80 lost** |"))
        self.assertIn("Fovea is slower than the best peer in 1 of 1 rows.", self.lines(entries))

    def test_slower_never_reads_as_one(self):
        self.assertIn("**0.99 lost**", self.row({"fovea": measured(1000.1), "jax": measured(1000)}))

    def test_mask_tensors_and_plain_paths_are_marked(self):
        entries = {"fovea": measured(1000), "torch_sdpa": measured(1000, "mask tensor", "not fused")}
        self.assertIn("| 200.0 ᵐ ᵘ (1.00) |", self.row(entries))

    def test_what_has_no_figure_says_why(self):
        entries = {
            "fovea": measured(1000),
            "torch_flex": {"wrong": "off by 1"},
            "ort_mha": {"cannot": "no softcap"},
            "jax": {"failed": "MemoryError: none"},
        }
        self.assertIn("| 200.0 | **wrong** | – | **failed** |  |", self.row(entries))
        lines = self.lines(entries)
        self.assertIn("- ORT MHA, not supported: no softcap.", lines)
        self.assertIn("- FlexAttention, wrong: off by 1 (full, N=1000 D=50 H=1).", lines)

    def test_fovea_failing_is_not_hidden(self):
        row = self.row({"fovea": {"failed": "InvalidArgument: no"}, "jax": measured(1000)})
        self.assertIn("| **failed** | 200.0 |", row)

    def test_says_what_was_measured(self):
        self.assertIn(
            "Some CPU, 2 cores; GCC 12; commit abc1234; 2026-11-21; fovea 0.1, torch 1.0.",
            self.lines({"fovea": measured(1)}),
        )

    def test_the_tiny_problem_is_in_microseconds(self):
        tiny = cells.cell("tiny", 4, 3, 1, tiny=True)
        lines = self.lines({"fovea": measured(0.5), "numpy": measured(7)}, tiny)
        self.assertIn("| 4 x 4 x 3, one head | 1 | 0.50 | 7.00 |", lines)

    def test_decoding_has_a_table_in_bytes(self):
        cell = cells.cell("decode", 1000, 50, 4, kv_heads=1, queries=1, dtype="bfloat16")
        lines = self.lines({"fovea": measured(10), "torch_sdpa": measured(40)}, cell)
        self.assertIn("| 1 query, 1000 keys D=50 H=4/1, bfloat16 | 1 | 20.0 | 5.0 (4.00) | 4.00 |", lines)
        self.assertTrue(any(line.startswith("| GB/s of keys and values |") for line in lines))

    def test_gradients_have_a_table_of_their_own(self):
        cell = cells.cell("some_gradients", 1000, 50, 1, backward=True)
        kept = results.merge(NOTHING, "a", RUN, CELL, 1, {"fovea": measured(1000), "torch_sdpa": measured(2000)})
        kept = results.merge(kept, "a", RUN, cell, 1, {"fovea": measured(1000), "torch_sdpa": measured(2000)})
        lines = results.page(kept).splitlines()
        self.assertIn("| gradients, full, N=1000 D=50 H=1 | 1 | 500.0 | 250.0 (2.00) | 2.00 |", lines)
        self.assertEqual(sum(line.startswith("| GFLOP/s of useful work |") for line in lines), 2)

    def test_nothing_measured(self):
        self.assertIn("Not measured yet", results.page(NOTHING))


if __name__ == "__main__":
    unittest.main()
