# SPDX-License-Identifier: Apache-2.0
"""Tests of the tables that bench/report.py writes, without measurements.

    python3 bench/test_report.py
"""

import json
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import report  # noqa: E402
from report import cells, results  # noqa: E402

PROBLEM = {"batch": 1, "q_heads": 2, "kv_heads": 2, "q_len": 4096, "kv_len": 4096, "head_dim": 64,
           "value_dim": 64, "mask": "all", "softcap": 0.0, "alibi": False, "bias": False, "relative": False,
           "functor": False, "dtype": "float32", "block_size": 0}
NOTHING = {"runs": {}, "results": {}}
RUN = {"date": "2026-11-21T10:00:00Z", "cpu": "Some CPU", "cores": 2, "kernel": "Linux 6", "compiler": "GCC 12",
       "target": "AVX3", "commit": "abc1234", "dirty": False, "versions": {"torch": "1.0"}}


def row(gflops=140.0, share=0.9, least=0.88, speedup=None, speedup_least=None, threads=1, **problem):
    return {"problem": {**PROBLEM, **problem}, "threads": threads, "flop": 8.6e9, "median_s": 0.0612345678,
            "best_s": 0.06, "at_most_s": None, "gflops": gflops, "share": share, "share_at_least": least, "speedup": speedup,
            "speedup_at_least": speedup_least, "error": 3.9e-8, "allowed_error": 3e-7,
            "rounds": [{"seconds": [0.061, 0.0612345678, 0.07], "ceilings_gflops": [155.0, 156.0]}]}


def decode_row(share=0.95, least=0.9, median=0.004, at_most=None, **problem):
    return {"problem": {**PROBLEM, "q_len": 1, **problem}, "threads": 1, "bytes": 1.3e8, "median_s": median,
            "best_s": median, "at_most_s": at_most, "gb_per_s": 30.0, "share": share, "share_at_least": least,
            "speedup": None, "speedup_at_least": None, "error": 3.9e-8, "allowed_error": 3e-7,
            "rounds": [{"seconds": [median], "ceilings_gb_per_s": [31.0, 32.0]}]}


def printed(target="AVX3", rows=None, **parts):
    """Returns text in the form of `fovea-bench --json`."""
    return json.dumps({"version": "0.1.0", "compiler": "GCC 12.2.0", "build_type": "Release", "cpu": "Some CPU",
                       "cpus": 2, "target": target, "forward": rows or [row()], **parts})


def record(*arguments, **parts):
    return dict([report.forward_record(printed(*arguments, **parts), "abc1234", "2026-11-21")])


def peers(fovea_us, others, name="full_4096_64"):
    cell = next(cell for cell in cells.every_cell() if cell.name == name)
    measured = {contender: {"how": "native", "note": "", "samples_us": [median], "median_us": median}
                if isinstance(median, (int, float)) else median
                for contender, median in {"fovea": fovea_us, **others}.items()}
    return results.merge(NOTHING, "a", RUN, cell, 1, measured)


class Machines(unittest.TestCase):
    def test_names_without_a_number_tell_the_generation(self):
        lines = "vendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: {}\nflags\t\t: fpu {}\n\nvendor_id\t: other\n"
        for name, *facts in (
            ("AMD EPYC (Zen 4)", "AuthenticAMD", 25, 17, "AMD EPYC", "avx512f"),
            ("AMD EPYC (Zen 3)", "AuthenticAMD", 25, 1, "AMD EPYC", "avx2"),
            ("AMD EPYC (family 25, model 80)", "AuthenticAMD", 25, 80, "AMD EPYC", "avx2"),
            ("AMD EPYC (Zen 5)", "AuthenticAMD", 26, 2, "AMD EPYC", "avx512f"),
            ("Intel(R) Xeon(R) Processor (family 6, model 207)", "GenuineIntel", 6, 207, "Intel(R) Xeon(R) Processor", "avx512f"),
            ("AMD EPYC 9654", "AuthenticAMD", 25, 17, "AMD EPYC 9654", "avx512f"),
        ):
            self.assertEqual(report.cpu_name(lines.format(*facts)), name)
        self.assertEqual(report.cpu_name("processor : 0\n"), "unknown CPU")


class Records(unittest.TestCase):
    def test_samples_are_kept_as_medians(self):
        kept = record()["AVX3"]["forward"][0]
        self.assertEqual(kept["rounds"], [{"calls": 3, "median_s": 0.061235, "ceilings_gflops": [155.0, 156.0]}])
        self.assertEqual(kept["median_s"], 0.061235)
        self.assertEqual(kept["problem"], PROBLEM)

    def test_one_target_does_not_disturb_another(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(report, "KEPT", pathlib.Path(folder)):
            report.keep_forward(record("AVX3"))
            report.keep_forward(record("AVX2", [row(gflops=70.0)]))
            report.keep_forward(record("AVX3", [row(gflops=141.0)]))
            kept = report.load("attention.json")
        self.assertEqual({name: one["forward"][0]["gflops"] for name, one in kept.items()},
                         {"AVX3": 141.0, "AVX2": 70.0})

    def test_one_machine_does_not_disturb_another(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(report, "KEPT", pathlib.Path(folder)):
            for machine, gflops in (("A", 140.0), ("B", 70.0), ("A", 141.0), ("B", 71.0)):
                one = record("AVX3", [row(gflops=gflops)])
                one["AVX3"]["machine"] = machine
                report.keep_forward(one)
            kept = report.load("attention.json")
        self.assertEqual({name: one["forward"][0]["gflops"] for name, one in kept.items()},
                         {"AVX3": 141.0, "AVX3, B": 71.0})
        self.assertEqual([name for name, _ in report.best_first({"AVX2, B": 1, "AVX3, B": 2, "AVX2": 3, "AVX3": 4})],
                         ["AVX3", "AVX2", "AVX3, B", "AVX2, B"])

    def test_something_else_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.json"
            for text in ("", "{}", '{"target": "AVX3", "forward": []}', '{"forward": [{}]}'):
                path.write_text(text)
                with mock.patch.object(report, "commit", lambda: ("abc", False)), \
                        self.assertRaisesRegex(SystemExit, "x.json: expected what"):
                    report.take([path])


class ForwardPage(unittest.TestCase):
    def test_a_row(self):
        self.assertIn("| N 4096, D 64, 2 heads | 1 | 61.2 ms | 140.0 | 90.0 % | 88.0 % | 3.9e-08 | 3.0e-07 |",
                      report.forward_page(record()))

    def test_problems_are_told_apart(self):
        for changed, text in (({"kv_heads": 1}, "N 4096, D 64, 2/1 heads"), ({"value_dim": 32}, "N 4096, D 64/32, 2 heads"),
                              ({"kv_len": 9, "mask": "causal()"}, "N 4096 x 9, D 64, 2 heads, causal()"),
                              ({"q_heads": 1, "kv_heads": 1, "softcap": 30.0}, "N 4096, D 64, softcap 30"),
                              ({"alibi": True, "bias": True, "batch": 3}, "N 4096, D 64, 2 heads, batch 3, ALiBi, bias"),
                              ({"functor": True, "dtype": "bfloat16", "block_size": 16},
                               "N 4096, D 64, 2 heads, functor, bfloat16, blocks of 16")):
            self.assertEqual(report.describe({**PROBLEM, **changed}), text)

    def test_missed_floors_are_marked_and_counted(self):
        page = report.forward_page(record(rows=[row(share=0.879), row(), row(least=None)]))
        self.assertIn("| 87.9 % | 88.0 % **missed** |", page)
        self.assertIn("| 90.0 % | – |", page)
        self.assertIn("Of 2 rows with a floor, 1 missed it.", page)

    def test_rows_on_two_threads_are_judged_by_their_speedup(self):
        page = report.forward_page(record(rows=[row(threads=2, speedup=1.9, speedup_least=1.92, least=None)]))
        self.assertIn("| 2 | 61.2 ms | 140.0 | 1.90 x | 1.92 x **missed** |", page)

    def test_the_best_target_comes_first_and_into_the_readme(self):
        kept = {**record("AVX2", [row(gflops=141.0)]), **record("AVX3")}
        page = report.forward_page(kept)
        self.assertLess(page.index("### AVX3"), page.index("### AVX2"))
        self.assertIn("| 140.0 |", report.speed_page(kept, None))

    def test_says_what_was_measured(self):
        page = report.forward_page(record(
            ceilings=[{"threads": 2, "fma_gflops": 320.4, "bf16_gflops": 640.1, "read_gb_per_s": 45.34}],
            memory={"problem": PROBLEM, "bytes": 4.84e6, "at_most": 96e6},
            tiny={"median_s": 4.2e-7, "best_s": 4e-7, "at_most_s": 1e-6, "seconds": [], "calls_per_sample": 1}))
        self.assertIn("Some CPU, 2 processors; GCC 12.2.0; commit abc1234; 2026-11-21. Medians of 1 round.", page)
        self.assertIn("Ceilings of 2 threads: 320 GFLOP/s of float32 FMA, 640 of bfloat16 products, 45.3 GB/s of memory reads.", page)
        self.assertIn("A call with 4 queries and 4 keys of 3 dimensions: 420 ns (at most 1.00 µs).", page)
        self.assertIn("Memory in addition to inputs and outputs, for N 4096, D 64, 2 heads: 4.8 MB (at most 96 MB).", page)

    def test_decoding_has_a_table_of_its_own(self):
        page = report.forward_page(record(decode=[decode_row(), decode_row(share=0.7, least=0.75, block_size=16),
                                                  decode_row(least=None, median=12e-6, at_most=10e-6)]))
        self.assertIn("| N 1 x 4096, D 64, 2 heads | 1 | 4.00 ms | 30.0 | 95.0 % | 90.0 % | 3.9e-08 | 3.0e-07 |", page)
        self.assertIn("| 70.0 % | 75.0 % **missed** |", page)
        self.assertIn("| 12.0 µs | 30.0 | 95.0 % | ≤ 10.0 µs **missed** |", page)
        self.assertIn("Of 4 rows with a floor, 2 missed it.", page)

    def test_nothing_measured(self):
        self.assertEqual(report.forward_page(None), "Not measured yet: `make bench` does.")


class SpeedPage(unittest.TestCase):
    def test_nothing_measured(self):
        self.assertEqual(report.speed_page(None, None),
                         "Speed: not measured yet; `make bench` and `make bench-peers` do.")

    def test_own_figures_alone(self):
        page = report.speed_page(record(), None)
        self.assertIn("| N 4096, D 64, 2 heads | 140.0 | 90.0 % |", page)
        self.assertIn("Comparison with other libraries: not measured yet", page)

    def test_the_grid_is_told_on_the_line_of_the_peers(self):
        grid = [{"cpu": "Some CPU", "target": "AVX2", "dtype": "float32", "threads": 1, "date": "2026-11-25",
                 "lost": [{"sdpa": 0.9}], "kinds": {"full": {"cells": 7, "sdpa": {"worst": 0.9}}}}]
        page = report.speed_page(None, peers(1000, {"jax": 1500}), grid)
        self.assertRegex(page, r"in this comparison.* Of random everyday shapes .* slower than PyTorch in 1 of 7 in float32")

    def test_peers_alone(self):
        page = report.speed_page(None, peers(1000, {"jax": 1500}))
        self.assertIn("| N 4096, D 64, 2 heads | – | – | 1.50 |", page)
        self.assertIn("Fovea alone: not measured yet", page)
        self.assertIn("Comparison measured on: Some CPU, 2 cores; GCC 12; commit abc1234; 2026-11-21; torch 1.0.", page)

    def test_both_with_the_fastest_call_of_each_library(self):
        others = {"torch_sdpa": 4000, "torch_flex": 900, "ort_mha": 2000, "ort_gqa": {"cannot": "no"},
                  "jax": {"failed": "memory"}}
        page = report.speed_page(record(), peers(1000, others))
        self.assertIn("| N 4096, D 64, 2 heads | 140.0 | 90.0 % | **0.90** | 2.00 | **failed** |", page)
        self.assertIn("Of the problems in this comparison, on one and two threads, Fovea is slower than the fastest peer in 1 of 1 on AVX3.",
                      page)
        self.assertIn("(AVX3; Some CPU", page)

    def test_own_figures_are_of_the_machine_of_the_comparison(self):
        first, second = record()["AVX3"], record(rows=[row(gflops=222.0)])["AVX3"]
        first["machine"], second["machine"] = "Another CPU", peers(1000, {"jax": 900})["runs"]["a"]["cpu"]
        page = report.speed_page({"AVX3": first, f"AVX3, {second['machine']}": second}, peers(1000, {"jax": 900}))
        self.assertIn("| N 4096, D 64, 2 heads | 222.0 |", page)
        self.assertIn(f"(AVX3; {second['machine']}", page)
        self.assertNotIn("Another CPU", page)
        page = report.speed_page({"AVX2": first, f"AVX3, {second['machine']}": second},
                                 results.merge(peers(1000, {"jax": 900}), "b", {**RUN, "target": "AVX2", "cpu": "A third CPU"},
                                               cells.every_cell()[1], 1, {}))
        self.assertIn("| N 4096, D 64, 2 heads | 222.0 |", page)

    def test_a_lost_problem_has_a_row(self):
        lost = peers(1000, {"torch_sdpa": 900}, "causal_512_64")
        page = report.speed_page(record(), lost)
        self.assertNotIn("causal_512_64", report.SPEED_ROWS)
        self.assertIn("| N 512, D 64, 8 heads, causal() |  |  | **0.90** | – | – |", page)

    def test_the_sentence_in_the_readme_has_the_first_row_of_the_table(self):
        table = [line for line in report.README.read_text(encoding="utf-8").splitlines() if line.startswith("| N ")]
        share, torch = re.match(r"\| N 4096, D 64, 2 heads \| [\d.]+ \| ([\d.]+) % \| ([\d.]+) \|", table[0]).groups()
        self.assertIn(f"{torch} times PyTorch's fused kernel at 4,096 tokens, at {float(share):.0f} % of the CPU's limit",
                      report.README.read_text(encoding="utf-8"))

    def test_every_row_is_a_problem_of_both(self):
        every_cell = {cell.name: cell for cell in cells.every_cell()}
        for name in report.SPEED_ROWS:
            self.assertEqual(report.problem_of(every_cell[name])["q_len"], every_cell[name].length)


class Pages(unittest.TestCase):
    def test_only_the_part_between_the_markers_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("a\n<!-- b -->\nold\n<!-- e -->\nz\n")
            report.replace_part(("<!-- b -->", "<!-- e -->"), r"new \1", page)
            self.assertEqual(page.read_text(), "a\n<!-- b -->\nnew \\1\n<!-- e -->\nz\n")
            with self.assertRaisesRegex(SystemExit, "expected one pair"):
                report.replace_part(("<!-- x -->", "<!-- e -->"), "new", page)

    def test_the_pages_have_the_markers(self):
        for markers, page in ((report.EXPLAIN_MARKERS, report.PAGE), (report.FORWARD_MARKERS, report.PAGE),
                              (report.SPEED_MARKERS, report.README)):
            text = page.read_text(encoding="utf-8")
            self.assertEqual([text.count(marker) for marker in markers], [1, 1], markers)


if __name__ == "__main__":
    unittest.main()
