# SPDX-License-Identifier: Apache-2.0
"""`fovea attend`: standard streams, output files, the report, and --verify."""

import itertools
import json
import math
import os
import stat
import struct
import unittest

from attend_problem import BATCH, DIM, HEADS, KV_LEN, Q_LEN, VALUE_DIM, AttendTest, problem
from support import run
from tensor_files import ROUNDING, Array, attention, npy, read_arrays


class StreamTest(AttendTest):
    def specs(self, arrays, *names):
        return [part for name in names
                for part in (f"--{name}", self.write_array(f"{name}.npy", arrays[name]))]

    def test_standard_input_and_output(self):
        arrays = problem()
        right, right_lse = attention(**arrays)
        specs = self.specs(arrays, "query", "key", "value")
        for streamed in range(3):
            mixed = list(specs)
            mixed[2 * streamed + 1] = "-"
            content = list(arrays.values())[streamed].npy()
            result = run("attend", *mixed, "--output", "-", stdin=content)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assert_close(Array.from_npy(result.stdout), right, mixed)
        result = run("attend", *specs, "--lse", "-")
        self.assert_close(Array.from_npy(result.stdout), right_lse, "lse")

    def test_report_moves_to_standard_error(self):
        specs = self.specs(problem(), "query", "key", "value")
        result = run("attend", *specs, "--output", "-", "--verify")
        self.assertEqual(result.returncode, 0)
        Array.from_npy(result.stdout)
        self.assertIn(b"verified 40 rows", result.stderr)
        result = run("attend", *specs, "--output", "-", "--json")
        self.assertEqual(json.loads(result.stderr)["context"]["file"], "standard output")

    def test_bfloat16_on_standard_input(self):
        arrays = problem("bfloat16")
        others = self.input_file({name: arrays[name] for name in ("key", "value")})
        result = run("attend", "--query", "-:bf16", "--input", others, "--output", "-",
                     stdin=arrays["query"].npy())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_close(Array.from_npy(result.stdout), attention(**arrays)[0], "bf16",
                          3 * ROUNDING["bfloat16"])

    def test_closed_pipe(self):
        specs = self.specs(problem(), "query", "key", "value")
        for options in (["--output", "-"], ["--output", str(self.dir / "c.npy")]):
            result = run("attend", *specs, *options, stdout=self.pipe_without_reader())
            self.assertEqual((result.returncode, result.stderr), (0, b""))


class OutputTest(AttendTest):
    def test_output_may_overwrite_an_input(self):
        arrays = problem()
        path = self.write_array("q.npy", arrays["query"])
        others = self.input_file({name: arrays[name] for name in ("key", "value")})
        self.succeed("attend", "--query", path, "--input", others, "--output", path)
        self.assert_close(read_arrays(self.dir / "q.npy")[""], attention(**arrays)[0], "in place")
        path = self.input_file(arrays, "all.npz")
        self.succeed("attend", "--input", path, "--output", path)
        self.assertEqual(list(read_arrays(self.dir / "all.npz")), ["context"])
        self.assertEqual(self.files(), ["all.npz", "in.safetensors", "q.npy"])

    def test_context_and_lse_in_one_file(self):
        path = self.input_file(problem())
        for ending in (".npz", ".safetensors"):
            output = str(self.dir / f"o{ending}")
            self.succeed("attend", "--input", path, "--output", f"{output}:a.context", "--lse",
                         f"{self.dir}/../{self.dir.name}/o{ending}:a.lse")
            self.assertEqual(sorted(read_arrays(self.dir / f"o{ending}")), ["a.context", "a.lse"])
        os.symlink("o.npz", self.dir / "link.npz")
        self.succeed("attend", "--input", path, "--output", f"{self.dir}/o.npz", "--lse",
                     f"{self.dir}/link.npz")
        self.assertEqual(sorted(read_arrays(self.dir / "o.npz")), ["context", "lse"])

    def test_npy_header_matches_numpy(self):
        # The format version, padding and member order match those of numpy.save, not only the array.
        arrays = problem()
        self.succeed("attend", "--input", self.input_file(arrays), "--output", str(self.dir / "c.npy"))
        content = (self.dir / "c.npy").read_bytes()
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4, 5, 3), }"
        self.assertEqual(content[:10], b"\x93NUMPY\x01\x00" + struct.pack("<H", 118))
        self.assertEqual(content[10:128].decode(), header.ljust(117) + "\n")
        self.assertEqual(len(content), 128 + 4 * 2 * 4 * 5 * 3)

    def test_permissions_are_kept(self):
        path = self.write("c.npy", "old")
        os.chmod(path, 0o640)
        self.succeed("attend", "--input", self.input_file(problem()), "--output", path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)

    def test_fifo_is_written_once(self):
        path = str(self.dir / "pipe.npy")
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, pipe)
        self.succeed("attend", "--input", self.input_file(problem()), "--output", path)
        self.assert_close(Array.from_npy(os.read(pipe, 1 << 16)), attention(**problem())[0], "FIFO")


class ReportTest(AttendTest):
    def test_text(self):
        path = self.input_file(problem())
        text = self.succeed("attend", "--input", path, "--causal", "--window", "3,0", "--alibi", "--lse",
                            str(self.dir / "l.npy"), "--output", str(self.dir / "c.npz"), "--verify",
                            "--threads", "1")
        lines = text.splitlines()
        self.assertEqual(lines[:7], [
            f"query    float32  [2, 4, 5, 6]  {path}:query",
            f"key      float32  [2, 2, 7, 6]  {path}:key",
            f"value    float32  [2, 2, 7, 3]  {path}:value",
            f"context  float32  [2, 4, 5, 3]  written to {self.dir}/c.npz:context",
            f"lse      float32  [2, 4, 5]     written to {self.dir}/l.npy",
            "mask     causal; window of 3 keys back and 0 ahead",
            "scores   scale 0.408248, ALiBi"])
        self.assertRegex(lines[7], r"^time     [\d.]+ [num]?s, 1 thread, \w+$")
        self.assertRegex(lines[8], r"^speed    [\d.e-]+ GFLOP/s$")
        self.assertRegex(lines[9], r"^verified 40 rows by the reference; context off by \S+, allowed "
                                   r"\S+; lse off by \S+, allowed \S+$")

    def test_json(self):
        arrays = problem()
        path = self.input_file(arrays)
        report = json.loads(self.succeed("attend", "--input", path, "--causal", "--json", "--verify",
                                         "--threads", "1", "--output", str(self.dir / "c.npy")))
        self.assertEqual(report["query"], {"file": f"{path}:query", "dtype": "float32",
                                           "shape": [2, 4, 5, 6]})
        self.assertEqual(report["context"], {"file": str(self.dir / "c.npy"), "dtype": "float32",
                                             "shape": [2, 4, 5, 3]})
        self.assertIsNone(report["lse"])
        pairs = sum(min(max(i + 2 + 1, 0), KV_LEN) for i in range(Q_LEN)) * BATCH * HEADS
        self.assertEqual(report["flop"], 2 * (DIM + VALUE_DIM) * pairs)
        self.assertEqual(report["problem"], {
            "batch": 2, "q_heads": 4, "kv_heads": 2, "q_len": 5, "kv_len": 7, "head_dim": 6,
            "value_dim": 3, "mask": "causal()", "alignment": "bottom-right", "scale": 1 / math.sqrt(6),
            "softcap": 0, "bias": False, "alibi": False, "relative": False, "sinks": False})
        self.assertEqual((report["engine"], report["threads"], report["layout"]), ("forward", 1, "bhld"))
        self.assertAlmostEqual(report["gflops"], report["flop"] / report["attend_s"] * 1e-9)
        self.assertIsNone(report["ceiling_gflops"])
        self.assertEqual(report["verify"]["rows"], 40)
        self.assertLessEqual(report["verify"]["context"]["error"], report["verify"]["context"]["allowed"])
        self.assertLess(report["verify"]["context"]["allowed"], 1e-4)
        self.assertIsNone(report["verify"]["lse"])

    def test_nothing_to_compute(self):
        for arrays in (problem(q_len=0), problem(batch=0)):
            path = self.input_file(arrays)
            text = self.succeed("attend", "--input", path, "--causal", "--verify")
            self.assertEqual([line.rstrip() for line in text.splitlines()[-2:]],
                             ["time     nothing to compute", "verified nothing to verify"])
            report = json.loads(self.succeed("attend", "--input", path, "--verify", "--json"))
            self.assertEqual((report["flop"], report["gflops"]), (0, None))
            self.assertEqual(report["verify"], {"rows": 0, "context": None, "lse": None})
        # Without keys, the result still has rows, which are zero.
        text = self.succeed("attend", "--input", self.input_file(problem(kv_len=0)), "--verify")
        self.assertRegex(text, r"\ntime     [\d.]+ [num]?s, .*\nverified 40 rows by the reference; ")

    def test_flop_count_of_mask_tensors(self):
        mask = Array((HEADS, Q_LEN, KV_LEN),
                     [x > 0 for x in Array.normal((HEADS, Q_LEN, KV_LEN), 3).values], "bool")
        report = json.loads(self.succeed("attend", "--input", self.input_file(problem()), "--json",
                                         "--mask", self.write_array("m.npy", mask)))
        self.assertEqual(report["flop"], 2 * (DIM + VALUE_DIM) * BATCH * sum(mask.values))

    def test_long_run_reports_share_of_ceiling(self):
        zeros = self.write("z.npy", npy("<f4", "(16, 4096, 64)", bytes(4 * 16 * 4096 * 64)))
        report = json.loads(self.succeed("attend", "--query", zeros, "--key", zeros, "--value", zeros,
                                         "--json", "--threads", "1"))
        self.assertGreater(report["attend_s"], 0.1)
        self.assertGreater(report["ceiling_gflops"], 0)
        self.assertAlmostEqual(report["share"], report["gflops"] / report["ceiling_gflops"])

    def test_both_results_are_computed_without_output(self):
        path = self.input_file(problem())
        report = json.loads(self.succeed("attend", "--input", path, "--json", "--verify"))
        self.assertEqual((report["context"]["file"], report["lse"]["file"]), (None, None))
        self.assertIsNotNone(report["verify"]["lse"])
        self.assertIn("not written", self.succeed("attend", "--input", path, "--verify"))
        self.assertEqual(self.files(), ["in.safetensors"])

    def test_verify_supports_all_rules_and_types(self):
        # A head computed separately must equal the same head of the whole problem.
        bias = self.write_array("b.npy", Array.normal((BATCH, HEADS, 1, 9), 1))
        mask = self.write_array("m.npy", Array((HEADS, 1, 9), [i % 5 > 0 for i in range(9 * HEADS)], "bool"))
        ids = self.write_array("i.npy", Array((BATCH, 9), [0] * 4 + [1] * 5 + [2] * 7 + [1] * 2, "int64"))
        table = self.write_array("t.npy", Array.normal((8, HEADS), 1))
        options = (["--bias", bias], ["--mask", mask], ["--documents", ids], ["--relative", table],
                   ["--alibi"], ["--sinks", "1,2,-3,0"], ["--key-lengths", "9,4", "--causal"],
                   ["--alignment", "1,-2", "--causal"], ["--softcap", "2"])
        for dtype, option in itertools.product(("float32", "bfloat16", "float16", "float64"), options):
            arrays = problem(dtype, q_len=9, kv_len=9)
            report = json.loads(self.succeed("attend", "--input", self.input_file(arrays), "--json",
                                             "--verify", *option))
            self.assertEqual(report["verify"]["rows"], 64, option)
            limit = 1e-4 + 3 * 3 * ROUNDING[dtype]
            self.assertLess(report["verify"]["context"]["allowed"], limit, (dtype, option))

    def test_verify_with_nonfinite_inputs(self):
        for number in (math.nan, math.inf, -math.inf, 3e38):
            arrays = problem(q_len=40)
            for name, place in (("key", 8), ("value", 4), ("query", 17)):
                arrays[name].values[place] = number
            self.attend("--input", self.input_file(arrays), "--verify", "--causal")
        # Fully masked rows, expressed by a very low finite bias as in other libraries.
        for lowest in (-3.4028234663852886e38, -1e30, -10000.0):
            bias = self.write_array("b.npy", Array((40, 1), [lowest, 0.0] * 20))
            for dtype in ("float32", "bfloat16"):
                report = json.loads(self.succeed("attend", "--input", self.input_file(problem(dtype, 40)),
                                                 "--bias", bias, "--verify", "--json"))
                self.assertLess(report["verify"]["context"]["error"], 0.1)

    def test_escape_sequences_in_names_are_escaped(self):
        arrays = problem()
        query = self.input_file({"q\x1b[31m": arrays.pop("query")}, "q.safetensors")
        text = self.succeed("attend", "--input", self.input_file(arrays), "--query", f"{query}:q\x1b[31m",
                            "--output", str(self.dir / "c\u202e.npy"))
        self.assertIn(r"q\x1b[31m", text)
        self.assertIn(r"c\u202e.npy", text)
        printed = run("attend", "--input", self.input_file(arrays), "--query", query, "--json").stdout
        self.assertTrue(all(byte == 10 or 32 <= byte < 127 for byte in printed))


if __name__ == "__main__":
    unittest.main()
