# SPDX-License-Identifier: Apache-2.0
"""`fovea-bench`: its reports, options and errors. Speed is not tested."""

import json
import os
import pty
import re
import signal
import statistics
import subprocess
import time
import unittest

from support import BENCH, FOVEA, TIMEOUT_S, CliTest, default_signals, environment, run

ROW_MEMBERS = ["problem", "threads", "flop", "median_s", "best_s", "at_most_s", "gflops", "share",
               "share_at_least", "against", "speedup", "speedup_at_least", "error", "allowed_error",
               "rounds"]


def pairs(q_len, kv_len, visible):
    """Returns the number of visible query-key pairs, with the last query aligned to the last key."""
    offset = kv_len - q_len
    return sum(visible(i + offset, j) for i in range(q_len) for j in range(kv_len))


class BenchTest(CliTest):
    program = BENCH

    def bench(self, *options, **run_options):
        return json.loads(self.succeed(*options, "--quick", "--json", **run_options))

    def row(self, *options, **run_options):
        report = self.bench(*options, **run_options)
        self.assertNotIn("ceilings", report)
        self.assertNotIn("tiny", report)
        self.assertEqual(len(report["forward"]), 1)
        return report["forward"][0]

    def test_one_problem(self):
        row = self.row("--q-len", "33", "--kv-len", "50", "--q-heads", "4", "--kv-heads", "2",
                       "--batch", "2", "--head-dim", "12", "--value-dim", "20")
        self.assertEqual(list(row), ROW_MEMBERS)
        self.assertEqual(row["problem"], {
            "batch": 2, "q_heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 50, "head_dim": 12,
            "value_dim": 20, "mask": "all", "softcap": 0.0, "alibi": False, "bias": False,
            "relative": False, "functor": False, "dtype": "float32", "block_size": 0})
        self.assertEqual(row["flop"], 2 * (12 + 20) * 2 * 4 * 33 * 50)
        self.assertLessEqual(row["error"], row["allowed_error"])
        # Only the rows of the standard table have performance targets.
        for name in ("at_most_s", "share_at_least", "against", "speedup", "speedup_at_least"):
            self.assertIsNone(row[name], name)

    def test_figures_follow_from_the_samples(self):
        row = self.row("--q-len", "64", "--repeat", "3")
        self.assertEqual(len(row["rounds"]), 3)
        seconds = sorted(s for part in row["rounds"] for s in part["seconds"])
        self.assertGreater(seconds[0], 0.0)
        self.assertEqual(row["best_s"], seconds[0])
        self.assertAlmostEqual(row["median_s"], statistics.median(seconds))
        self.assertAlmostEqual(row["gflops"], row["flop"] / row["median_s"] * 1e-9)
        shares = []
        for part in row["rounds"]:
            speed = row["flop"] / statistics.median(part["seconds"]) * 1e-9
            shares.append(speed / max(part["ceilings_gflops"]))
        self.assertAlmostEqual(row["share"], statistics.median(shares))

    def test_flop_counts_only_visible_pairs(self):
        masks = {
            ("causal",): lambda i, j: j <= i,
            ("window:5,2",): lambda i, j: i - 5 <= j <= i + 2,
            ("window:-1,0",): lambda i, j: j <= i,
            ("prefix:7",): lambda i, j: j < 7,
            ("causal", "window:9,9"): lambda i, j: i - 9 <= j <= i,
            ("causal", "prefix:7"): lambda i, j: j <= i or j < 7,
        }
        for rules, visible in masks.items():
            options = [part for rule in rules for part in ("--mask", rule)]
            for q_len, kv_len in ((20, 20), (13, 30), (30, 13)):
                row = self.row("--q-len", str(q_len), "--kv-len", str(kv_len), "--head-dim", "8",
                               *options)
                self.assertEqual(row["flop"], 2 * 16 * pairs(q_len, kv_len, visible),
                                 (rules, q_len, kv_len))

    def test_scores(self):
        row = self.row("--q-len", "40", "--q-heads", "2", "--score", "softcap:2.5", "--score",
                       "alibi", "--score", "bias", "--score", "relative", "--score", "functor")
        self.assertEqual([row["problem"][name] for name in ("softcap", "alibi", "bias", "relative",
                                                            "functor")],
                         [2.5, True, True, True, True])

    def test_storage_types(self):
        for option, dtype in (("f32", "float32"), ("bf16", "bfloat16"), ("f16", "float16")):
            row = self.row("--q-len", "70", "--head-dim", "24", "--dtype", option)
            self.assertEqual(row["problem"]["dtype"], dtype)
            self.assertLessEqual(row["error"], row["allowed_error"])

    def test_decode(self):
        for blocks in ([], ["--block-size", "16"], ["--block-size", "7"]):
            report = self.bench("decode", "--q-heads", "4", "--kv-heads", "2", "--kv-len", "100",
                                "--head-dim", "8", "--dtype", "bf16", *blocks)
            self.assertNotIn("forward", report)
            (row,) = report["decode"]
            self.assertEqual(list(row), [{"flop": "bytes", "gflops": "gb_per_s"}.get(name, name)
                                         for name in ROW_MEMBERS])
            self.assertEqual((row["problem"]["q_len"], row["problem"]["block_size"]),
                             (1, int(blocks[1]) if blocks else 0))
            self.assertEqual(row["bytes"], 2 * 2 * 100 * 2 * 8)
            self.assertAlmostEqual(row["gb_per_s"], row["bytes"] / row["median_s"] * 1e-9)
            self.assertEqual(len(row["rounds"][0]["ceilings_gb_per_s"]), 2)

    def test_lenses(self):
        for lens, watched in ((["--lens", "map:5,7"], {"map_rows": 5, "map_columns": 7}),
                              (["--lens", "top:3", "--lens", "statistics"], {"top": 3, "statistics": True}),
                              (["--lens", "received"], {"received": True, "statistics": False}),
                              (["--lens", "relevance"], {"relevance": True, "statistics": False}),
                              ([], {"map_rows": 60, "map_columns": 60, "top": 8, "statistics": True})):
            for dtype in ("f32", "bf16"):
                report = self.bench("lenses", "--q-len", "60", "--q-heads", "2", "--dtype", dtype, "--mask",
                                    "causal", *lens)
                (row,) = report["lenses"]
                self.assertEqual(list(row), [*ROW_MEMBERS, "cost", "cost_at_most"])
                self.assertEqual(row["against"], "no lenses")
                self.assertAlmostEqual(row["cost"], 1 / row["speedup"])
                for name, value in watched.items():
                    self.assertEqual(row["problem"]["lenses"][name], value)

    def test_recomputed_weights(self):
        looks = self.bench("looks")["looks"]
        self.assertEqual([list(look) for look in looks],
                         3 * [["length", "head_dim", "queries", "keys", "cells", "median_s", "best_s", "at_most_s",
                               "error", "seconds"]])
        self.assertEqual([(look["queries"], look["cells"]) for look in looks], [(512, 0), (256, 16), (1, 0)])
        for look in looks:
            self.assertEqual(look["best_s"], min(look["seconds"]))
            self.assertTrue(0 < look["error"] < 1e-4)
        self.assertNotIn("looks", self.bench("lenses", "--q-len", "20"))

    def test_several_parts(self):
        report = self.bench("decode", "forward", "--q-len", "3", "--kv-len", "50")
        self.assertEqual([len(report[part]) for part in ("forward", "decode")], [1, 1])
        self.assertNotIn("tiny", report)

    def test_memory(self):
        report = self.bench("memory")
        if "memory" not in report:
            self.skipTest("this system does not tell")
        memory = report["memory"]
        self.assertEqual(memory["problem"]["mask"], "window(1023, 0)")
        self.assertEqual(memory["at_most"], 96e6)
        # Includes the program itself, but no 16384 x 16384 matrix.
        self.assertTrue(1e5 < memory["bytes"] < 16384 * 16384, memory)

    def test_every_target(self):
        for target in json.loads(self.succeed("info", "--json", program=FOVEA))["targets"]:
            report = self.bench("--q-len", "65", env=environment(FOVEA_TARGET=target))
            self.assertEqual(report["target"], target)
            self.assertEqual(len(report["forward"]), 1)

    def test_threads(self):
        self.assertEqual(self.row("--q-len", "32", "--threads", "2")["threads"], 2)
        report = self.bench("ceilings", "--threads", "2")
        self.assertEqual([c["threads"] for c in report["ceilings"]], [2])

    def test_ceilings(self):
        report = self.bench("ceilings")
        self.assertNotIn("forward", report)
        self.assertEqual(report["ceilings"][0]["threads"], 1)
        for ceiling in report["ceilings"]:
            self.assertEqual(list(ceiling),
                             ["threads", "fma_gflops", "bf16_gflops", "read_gb_per_s"])
            has_bf16 = report["target"] in ("AMX", "AVX3_BF16")
            self.assertTrue(all(number > 0 or (name == "bf16_gflops" and not has_bf16)
                                for name, number in ceiling.items()), ceiling)

    def test_tiny(self):
        tiny = self.bench("tiny")["tiny"]
        self.assertEqual(tiny["best_s"], min(tiny["seconds"]))
        self.assertTrue(0.0 < tiny["best_s"] <= tiny["median_s"])

    def test_text_is_an_aligned_table(self):
        info = json.loads(self.succeed("info", "--json", program=FOVEA))
        text = self.succeed("--q-len", "64", "--kv-len", "70", "--q-heads", "4",
                            "--kv-heads", "2", "--head-dim", "16", "--value-dim", "8", "--mask",
                            "causal", "--score", "alibi", "--quick")
        heading, cpu, empty, titles, row = text.splitlines()
        for fact in (info["version"], info["compiler"], info["build_type"],
                     info["computes_with"]["target"]):
            self.assertIn(fact, heading)
        self.assertRegex(cpu, r".+, \d+ CPUs?$")
        self.assertEqual(empty, "")
        self.assertTrue(row.startswith("N 64 x 70, D 16/8, 4/2 heads, causal(), ALiBi  "), row)
        for title in ("threads", "median", "best", "GFLOP/s", "of ceiling", "at least", "error"):
            end = titles.index(title) + len(title)
            self.assertRegex(row[:end], r"\S$", title)
            self.assertRegex(row[end:], r"^($|  )", title)

    def test_wrong_usage(self):
        for arguments, message in (
                (["speed"], 'expected one of ceilings, forward, backward, decode, lenses, looks, tiny, memory; got "speed"'),
                (["forwrd"], 'did you mean "forward"?'),
                (["tiny", "--q-len", "5"], "--q-len goes with forward, backward, decode and lenses, not with tiny"),
                (["ceilings", "--mask", "causal"],
                 "--mask goes with forward, backward, decode and lenses, not with ceilings"),
                (["tiny", "--threads", "2"], "--threads does not go with tiny"),
                (["--block-size", "16"], "--block-size goes with decode alone"),
                (["lenses", "decode", "--block-size", "16"], "--block-size goes with decode alone"),
                (["forward", "--lens", "top:3"], "--lens goes with lenses alone"),
                (["lenses", "--lens", "top:0"],
                 '--lens: expected statistics, top:K, map:ROWS,COLUMNS, received or relevance, got "top:0"'),
                (["lenses", "--lens", "relevance", "--lens", "top:3"], "--lens: expected relevance, which"),

                (["lenses", "--lens", "statistic"], 'did you mean "statistics"?'),
                (["lenses", "--q-len", "9", "--lens", "map:10,3"],
                 "map.cells: expected rows from 1 to q_len = 9, got 10"),
                (["lenses", "--q-len", "9", "--lens", "top:10"],
                 "top.keys: expected k of at most kv_len = 9, got 10"),
                (["--dtype", "f64"], 'expected one of f32, bf16, f16; got "f64"'),
                (["--q-len", "0"], "expected a whole number from 1 to 16777216"),
                (["--threads", "0"], "expected a whole number from 1 to 1024"),
                (["--repeat", "many"], "expected a whole number from 1 to 1000"),
                (["--q-heads", "4", "--kv-heads", "3"],
                 "--kv-heads: expected a divisor of the 4 query heads, got 3"),
                (["--mask", "casual"], 'got "casual" (did you mean "causal"?)'),
                (["--mask", "window:1"], "expected causal, window:LEFT,RIGHT or prefix:N"),
                (["--mask", "window:1,2,3"], "expected causal, window:LEFT,RIGHT or prefix:N"),
                (["--mask", "window:1.5,2"], "expected causal, window:LEFT,RIGHT or prefix:N"),
                (["--mask", "window:1,"], "expected causal, window:LEFT,RIGHT or prefix:N"),
                (["--mask", "window:-2,0"], "-2"),
                (["--mask", "prefix:1e300"], "expected causal, window:LEFT,RIGHT or prefix:N"),
                (["--score", "softcap"], "softcap:CAP, CAP above 0"),
                (["--score", "softcap:0"], "softcap:CAP, CAP above 0"),
                (["--score", "alibi:1"], "expected alibi, bias, functor, relative or softcap:CAP")):
            self.assertIn(message, self.fail_with(2, *arguments), arguments)

    def test_bench_is_not_a_fovea_command(self):
        for arguments in ([], ["--help"], ["forward", "--quick"]):
            result = run("bench", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertEqual(result.stderr, b'fovea: unknown command "bench"; it is the program fovea-bench\n')

    def test_version(self):
        self.assertEqual(self.succeed("--version"), self.succeed("--version", program=FOVEA).replace("fovea", "fovea-bench"))

    def test_unknown_target_is_rejected(self):
        message = self.fail_with(2, "tiny", env=environment(FOVEA_TARGET="MMX"))
        self.assertIn("FOVEA_TARGET: expected one of", message)

    def test_closed_pipe(self):
        result = run("tiny", "--quick", program=BENCH, stdout=self.pipe_without_reader())
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_interrupt_stops_immediately(self):
        with subprocess.Popen([BENCH, "forward"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment(),
                              preexec_fn=default_signals) as process:
            process.stdout.readline()  # the heading; measurements start after it
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=5), 130)
            self.assertEqual(process.stderr.read(), b"")

    def test_progress_only_on_terminals(self):
        for term, shown in (("xterm", True), ("dumb", False)):
            master, terminal = pty.openpty()
            with subprocess.Popen([BENCH, "--q-len", "32", "--quick"], stderr=terminal,
                                  stdout=subprocess.PIPE, env=environment(TERM=term)) as process:
                out = process.communicate(timeout=TIMEOUT_S)[0]
            os.close(terminal)
            seen = b""
            try:
                while part := os.read(master, 4096):
                    seen += part
            except OSError:  # the other end is closed
                pass
            os.close(master)
            self.assertNotIn(b"\x1b", out)
            self.assertEqual(process.returncode, 0)
            if shown:
                self.assertIn(b"checking 1 of 1: N 32, D 64", seen)
                self.assertIn(b"round 1 of 1, row 1 of 1", seen)
                self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)
            else:
                self.assertEqual(seen, b"")

    def test_help_examples_run(self):
        page = re.sub(r"(?s)\nSYNOPSIS\n.*?\n\n", "", self.succeed("--help").partition("\nEXAMPLE\n")[2])
        examples = re.findall(r"^    (?:FOVEA_TARGET=\S+ )?fovea-bench(.*)$", page, re.MULTILINE)
        self.assertGreaterEqual(len(examples), 5)
        for example in examples:
            options = example.partition(" >")[0].split()
            # The last of repeated options wins, so a small size keeps the example fast.
            small = [] if "ceilings" in options else ["--q-len", "16"]
            self.assertGreater(len(self.succeed(*options, *small, "--quick")), 100, example)


if __name__ == "__main__":
    unittest.main()
