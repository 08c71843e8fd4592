# SPDX-License-Identifier: Apache-2.0
"""`fovea attend`: results of every rule, type, rank, layout and format, against the formula in plain
Python; what is said of them, and how a run ends early. attend_errors_test.py has what is refused."""

import fcntl
import itertools
import json
import math
import os
import pty
import random
import resource
import signal
import stat
import struct
import subprocess
import termios
import time
import unittest

from support import FOVEA, TIMEOUT_S, CliTest, default_signals, environment, limits_memory, run
from tensor_files import ROUNDING, Array, attention, npy, npz_of, read_arrays, safetensors_of

BATCH, HEADS, KV_HEADS, Q_LEN, KV_LEN, DIM, VALUE_DIM = 2, 4, 2, 5, 7, 6, 3


def problem(dtype="float32", q_len=Q_LEN, kv_len=KV_LEN, batch=BATCH, heads=HEADS, kv_heads=KV_HEADS):
    return {"query": Array.normal((batch, heads, q_len, DIM), 1, dtype),
            "key": Array.normal((batch, kv_heads, kv_len, DIM), 2, dtype),
            "value": Array.normal((batch, kv_heads, kv_len, VALUE_DIM), 3, dtype)}


class AttendTest(CliTest):
    def write_array(self, name, array):
        return self.write(name, array.npy())

    def attend(self, *options, outputs=("out.npz", "out.npz"), **run_options):
        """(context, lse) of a successful run."""
        context, lse = (str(self.dir / name) for name in outputs)
        self.succeed("attend", *options, "--output", context, "--lse", lse, **run_options)
        if context == lse:
            arrays = read_arrays(self.dir / outputs[0])
            self.assertEqual(sorted(arrays), ["context", "lse"])
            return arrays["context"], arrays["lse"]
        (context,) = read_arrays(self.dir / outputs[0]).values()
        (lse,) = read_arrays(self.dir / outputs[1]).values()
        return context, lse

    def input_file(self, arrays, name="in.safetensors"):
        content = safetensors_of(arrays) if name.endswith(".safetensors") else npz_of(arrays)
        return self.write(name, content)

    def assert_close(self, got, expected, what, rounding=ROUNDING["float32"]):
        self.assertEqual(got.shape, expected.shape, what)
        for index, (x, y) in enumerate(zip(got.values, expected.values)):
            allowed = (rounding + 2**-20) * max(1.0, abs(y))
            self.assertTrue(x == y or abs(x - y) <= allowed, (what, index, x, y))

    def check(self, arrays, *options, layout=lambda array: array, **oracle):
        """A run on an --input file against the formula; returns context and lse."""
        context, lse = self.attend("--input", self.input_file(arrays), *options)
        right, right_lse = attention(arrays["query"], arrays["key"], arrays["value"], **oracle)
        self.assert_close(context, layout(right), ("context", options))
        self.assert_close(lse, right_lse, ("lse", options))
        return context, lse


class ResultTest(AttendTest):
    def test_types(self):
        for dtype in ("float32", "float16", "bfloat16", "float64"):
            arrays = problem(dtype)
            context, lse = self.attend("--input", self.input_file(arrays))
            right, right_lse = attention(**arrays)
            self.assertEqual((context.dtype, lse.dtype),
                             (dtype, "float64" if dtype == "float64" else "float32"))
            # The weights of bfloat16 may be rounded as well.
            self.assert_close(context, right, dtype, 3 * ROUNDING[dtype])
            self.assert_close(lse, right_lse, dtype)
            if dtype == "float64":
                for x, y in zip(context.values, right.values):
                    self.assertAlmostEqual(x, y, delta=1e-14)

    def test_mixed_types(self):
        arrays = problem()
        arrays["key"] = arrays["key"].as_type("bfloat16")
        arrays["value"] = arrays["value"].as_type("float16")
        context, _ = self.check(arrays)
        self.assertEqual(context.dtype, "float32")

    def test_formats_and_names(self):
        arrays = problem()
        right, _ = attention(**arrays)
        packed = self.write("a.npz", npz_of({"layer.q": arrays["query"], "b": arrays["value"]}))
        safe = self.write("a.safetensors", safetensors_of({"x:y": arrays["key"]}))
        alone = self.write_array("v.npy", arrays["value"])
        query = f"{packed}:layer.q"
        for key, value in ((f"{safe}:x:y", alone), (safe, f"{packed}:b")):
            for output in ("c.npy", "c.npz", "c.safetensors", "c.npz:other name", "c.safetensors:x:y"):
                self.succeed("attend", "--query", query, "--key", key, "--value", value, "--output",
                             str(self.dir / output))
                path, _, name = output.partition(":")
                found = read_arrays(self.dir / path)
                expected = "" if path == "c.npy" else name or "context"
                self.assertEqual(list(found), [expected])
                self.assert_close(found[expected], right, output)

    def test_input_file_and_options_beside_it(self):
        arrays = problem()
        other = Array.normal((BATCH, HEADS, Q_LEN, DIM), 9)
        path = self.input_file(arrays, "in.npz")
        context, _ = self.attend("--input", path, "--query", self.write_array("q.npy", other))
        self.assert_close(context, attention(other, arrays["key"], arrays["value"])[0], "query")

    def test_bfloat16_of_numpy(self):
        arrays = problem("bfloat16")
        right, _ = attention(**arrays)
        path = self.input_file(arrays, "in.npz")
        named = [part for name in arrays for part in (f"--{name}", f"{path}:{name}:bf16")]
        for inputs in (["--input", f"{path}:bf16"], named):
            context, _ = self.attend(*inputs)
            self.assertEqual(context.dtype, "bfloat16")
            self.assert_close(context, right, inputs, 3 * ROUNDING["bfloat16"])

    def test_ranks(self):
        whole = problem(batch=1, heads=1, kv_heads=1)
        right, right_lse = attention(**whole)
        for drop, shape in ((0, (1, 1, Q_LEN, VALUE_DIM)), (1, (1, Q_LEN, VALUE_DIM)),
                            (2, (Q_LEN, VALUE_DIM))):
            arrays = {name: array.reshaped(*array.shape[drop:]) for name, array in whole.items()}
            context, lse = self.attend("--input", self.input_file(arrays))
            self.assert_close(context, right.reshaped(*shape), drop)
            self.assert_close(lse, right_lse.reshaped(*shape[:-1]), drop)

    def test_layouts(self):
        arrays = problem()
        right, right_lse = attention(**arrays)
        turned = {name: array.exchanged(1, 2) for name, array in arrays.items()}
        for outputs in (("c.npy", "l.npy"), ("c.npz", "c.npz"), ("c.safetensors", "l.npz")):
            context, lse = self.attend("--input", self.input_file(turned), "--layout", "blhd",
                                       outputs=outputs)
            self.assert_close(context, right.exchanged(1, 2), outputs)
            self.assert_close(lse, right_lse, outputs)
        # Rank 3, and a mask, which has the heads first in any layout.
        one = problem(batch=1)
        flat = {name: array.exchanged(1, 2).reshaped(array.shape[2], array.shape[1], array.shape[3])
                for name, array in one.items()}
        mask = Array((HEADS, 1, KV_LEN), [(h + j) % 3 > 0 for h in range(HEADS) for j in range(KV_LEN)],
                     "bool")
        context, lse = self.attend("--input", self.input_file(flat), "--layout", "blhd", "--mask",
                                   self.write_array("m.npy", mask))
        right, right_lse = attention(**one, visible=lambda b, h, i, j: mask.at(h, 0, j))
        self.assert_close(context, right.exchanged(1, 2).reshaped(Q_LEN, HEADS, VALUE_DIM), "rank 3")
        self.assert_close(lse, right_lse.reshaped(HEADS, Q_LEN), "rank 3")
        same = {name: array.reshaped(*array.shape[2:])
                for name, array in problem(batch=1, heads=1, kv_heads=1).items()}
        self.assertEqual(self.attend("--input", self.input_file(same), "--layout", "blhd")[0].values,
                         self.attend("--input", self.input_file(same))[0].values)

    def test_fortran_order(self):
        arrays = problem()
        right, _ = attention(**arrays)
        specs = []
        for name, array in arrays.items():
            specs += [f"--{name}", self.write(f"{name}.npy", array.fortran_npy())]
        self.assert_close(self.attend(*specs)[0], right, "Fortran")
        self.assert_close(self.attend(*specs, "--dtype", "f64")[0], right, "Fortran, f64")

    def test_dtype_converts(self):
        arrays = problem()
        path = self.input_file(arrays)
        for word, dtype in (("f32", "float32"), ("f16", "float16"), ("bf16", "bfloat16"),
                            ("f64", "float64")):
            context, lse = self.attend("--input", path, "--dtype", word)
            rounded = {name: array.as_type(dtype) for name, array in arrays.items()}
            right, right_lse = attention(**rounded)
            self.assertEqual((context.dtype, lse.dtype),
                             (dtype, "float64" if word == "f64" else "float32"))
            self.assert_close(context, right, word, 3 * ROUNDING[dtype])
            self.assert_close(lse, right_lse, word)

    def test_integers_and_a_float64_are_converted_on_request(self):
        whole = Array((1, 1, 3, 2), [1, -2, 3, 0, 2, 1], "int32")
        arrays = {"query": whole, "key": whole.as_type("float64"),
                  "value": Array((1, 1, 3, 2), [0, 1, 1, 0, 1, 1], "bool")}
        context, lse = self.attend("--input", self.input_file(arrays), "--dtype", "f32")
        right, right_lse = attention(**arrays)
        self.assertEqual(context.dtype, "float32")
        self.assert_close(context, right, "integers")
        self.assert_close(lse, right_lse, "integers")

    def test_many_queries(self):
        # More than decoding is for, so that the other engine computes them.
        arrays = problem(q_len=67, kv_len=67, batch=1, heads=2)
        path = self.input_file(arrays)
        engine = json.loads(self.succeed("attend", "--input", path, "--json"))["engine"]
        self.assertEqual(engine, "forward")
        self.check(arrays, "--causal", visible=lambda b, h, i, j: j <= i)

    def test_any_number_of_threads_gives_the_same_bits(self):
        arrays = problem(q_len=130, kv_len=90)
        path = self.input_file(arrays)
        results = {tuple(self.attend("--input", path, "--threads", str(n))[0].values) for n in (1, 2, 5)}
        self.assertEqual(len(results), 1)

    def test_nothing_to_attend_to(self):
        for shapes in (dict(q_len=0), dict(kv_len=0), dict(batch=0), dict(q_len=0, kv_len=0)):
            arrays = problem(**shapes)
            for options in ([], ["--causal", "--alibi"], ["--dtype", "f64"]):
                context, lse = self.attend("--input", self.input_file(arrays), "--verify", *options)
                expected, expected_lse = attention(**arrays)
                self.assertEqual((context.shape, context.values), (expected.shape, expected.values))
                self.assertEqual((lse.shape, lse.values), (expected_lse.shape, expected_lse.values))

    def test_a_shape_of_nothing_but_billions_of_rows(self):
        query = self.write("q.npy", npy("<f4", f"({1 << 40}, 0)", b""))
        key = self.write("k.npy", npy("<f4", "(3, 0)", b""))
        self.succeed("attend", "--query", query, "--key", key, "--value", key, "--output",
                     str(self.dir / "c.npy"))
        self.assertIn(str(1 << 40).encode(), (self.dir / "c.npy").read_bytes())


class RuleTest(AttendTest):
    OFFSET = KV_LEN - Q_LEN

    def test_causal_and_alignment(self):
        arrays = problem()
        offsets = self.write_array("offsets.npy", Array((BATCH,), [3, -2], "int32"))
        for options, offset in (([], [self.OFFSET] * 2), (["--alignment", "bottom-right"], [2, 2]),
                                (["--alignment", "top-left"], [0, 0]), (["--alignment", "-3"], [-3, -3]),
                                (["--alignment", "1,4"], [1, 4]), (["--alignment", offsets], [3, -2])):
            context, lse = self.check(arrays, "--causal", *options,
                                      visible=lambda b, h, i, j, o=offset: j <= i + o[b])
        # Rows before the first key see nothing.
        self.assertEqual(lse.at(1, 0, 0), -math.inf)
        self.assertEqual([context.at(1, 0, 0, c) for c in range(VALUE_DIM)], [0.0] * VALUE_DIM)

    def test_window(self):
        for left, right in ((1, 0), (0, 0), (-1, 1), (2, -1), (-1, -1), (100, 100)):
            def visible(b, h, i, j, left=left, right=right):
                at = i + self.OFFSET
                return (left < 0 or j >= at - left) and (right < 0 or j <= at + right)
            self.check(problem(), "--window", f"{left},{right}", visible=visible)

    def test_prefix_joins_causal_and_nothing_else(self):
        def causal(i, j):
            return j <= i + self.OFFSET
        self.check(problem(), "--prefix", "3", visible=lambda b, h, i, j: j < 3)
        self.check(problem(), "--causal", "--prefix", "5", visible=lambda b, h, i, j: causal(i, j) or j < 5)
        self.check(problem(), "--prefix", "5", "--window", "2,0", "--causal",
                   visible=lambda b, h, i, j: (causal(i, j) or j < 5)
                   and i + self.OFFSET - 2 <= j <= i + self.OFFSET)
        self.check(problem(), "--causal", "--prefix", "0", visible=lambda b, h, i, j: causal(i, j))

    def test_documents(self):
        square = problem(q_len=KV_LEN)
        one = Array((KV_LEN,), [0, 0, 1, 1, 1, 5, 5], "int32")
        each = Array((BATCH, KV_LEN), [0, 0, 1, 1, 1, 5, 5, 3, 1, 3, 1, 3, 1, 3], "uint8")
        self.check(square, "--documents", self.write_array("one.npy", one),
                   visible=lambda b, h, i, j: one.at(i) == one.at(j))
        self.check(square, "--documents", self.write_array("each.npy", each), "--causal",
                   visible=lambda b, h, i, j: each.at(b, i) == each.at(b, j) and j <= i)
        queries = Array((Q_LEN,), [0, 1, 1, 5, 7], "int64")
        pair = f"{self.write_array('queries, all.npy', queries)},{self.dir}/one.npy"
        self.check(problem(), "--documents", pair,
                   visible=lambda b, h, i, j: queries.at(i) == one.at(j))

    def test_key_lengths(self):
        lengths = self.write_array("lengths.npy", Array((BATCH,), [4, 0], "int64"))
        for option, real in (("4", [4, 4]), ("7,3", [7, 3]), (lengths, [4, 0])):
            self.check(problem(), "--key-lengths", option, visible=lambda b, h, i, j, n=real: j < n[b])
            # The last query stands at the last real key.
            self.check(problem(), "--causal", "--key-lengths", option,
                       visible=lambda b, h, i, j, n=real: j < n[b] and j <= i + n[b] - Q_LEN)

    def test_mask(self):
        for shape in ((Q_LEN, KV_LEN), (HEADS, 1, KV_LEN), (BATCH, 1, Q_LEN, 1), (KV_LEN,), (1, 1),
                      (BATCH, HEADS, Q_LEN, KV_LEN)):
            mask = Array(shape, [x > -0.5 for x in Array.normal(shape, 7).values], "bool")
            self.check(problem(), "--mask", self.write_array("m.npy", mask),
                       visible=lambda *place, m=mask: m.broadcast(*place))

    def test_bias(self):
        for shape, dtype in (((Q_LEN, KV_LEN), "float32"), ((HEADS, 1, KV_LEN), "float16"),
                             ((BATCH, HEADS, Q_LEN, KV_LEN), "float64"), ((1,), "bfloat16")):
            bias = Array.normal(shape, 8, dtype)
            bias.values[0] = bias.values[0] if shape == (1,) else -math.inf
            path = (self.input_file({"bias": bias}, "bias.safetensors") if dtype == "bfloat16"
                    else self.write_array("bias.npy", bias))
            self.check(problem(), "--bias", path, score=lambda place, s, t=bias: s + t.broadcast(*place))

    def test_alibi(self):
        paper = [2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)]
        own = [0.5, -0.25, 0.0, 2.0]
        slopes = self.write_array("slopes.npy", Array((HEADS,), own, "float32"))
        for options, used, offset in ((["--alibi"], paper, 2), (["--alibi", "0.5,-0.25,0,2"], own, 2),
                                      (["--alibi", slopes, "--alignment", "top-left"], own, 0),
                                      (["--alibi", "--causal"], paper, 2)):
            causal = "--causal" in options
            self.check(problem(), *options, visible=lambda b, h, i, j, c=causal: not c or j <= i + 2,
                       score=lambda p, s, u=used, o=offset: s - u[p[1]] * abs(p[2] + o - p[3]))

    def test_relative_table(self):
        def bucket(distance, buckets, two_ways, most):
            first = 0
            if two_ways:
                buckets //= 2
                first = buckets if distance > 0 else 0
                distance = abs(distance)
            else:
                distance = max(-distance, 0)
            exact = buckets // 2
            if distance < exact:
                return first + distance
            step = int(math.log(distance / exact) / math.log(most / exact) * (buckets - exact))
            return first + min(exact + step, buckets - 1)

        table = Array.normal((8, HEADS), 5)
        path = self.write_array("table.npy", table)
        for options, two_ways, most in (([], True, 128), (["--relative-one-way"], False, 128),
                                        (["--relative-distance", "5"], True, 5)):
            self.check(problem(), "--relative", path, *options,
                       score=lambda p, s, w=two_ways, m=most:
                       s + table.at(bucket(p[3] - p[2] - self.OFFSET, 8, w, m), p[1]))

    def test_sinks_scale_and_softcap(self):
        sinks = [0.5, -1.0, 3.0, -math.inf]
        path = self.write_array("sinks.npy", Array((HEADS,), sinks))
        self.check(problem(), "--sinks", "0.5,-1,3,-inf", sinks=sinks)
        _, lse = self.check(problem(), "--sinks", path, "--key-lengths", "0", sinks=sinks,
                            visible=lambda *place: False)
        self.assertEqual([lse.at(1, h, 2) for h in range(HEADS)], sinks)
        self.check(problem(), "--scale", "1.5", scale=1.5)
        self.check(problem(), "--scale", "-2e-1", scale=-0.2)
        self.check(problem(), "--softcap", "0.75", score=lambda place, s: 0.75 * math.tanh(s / 0.75))

    def test_all_at_once(self):
        mask = Array((Q_LEN, KV_LEN), [x > -1 for x in Array.normal((Q_LEN, KV_LEN), 7).values], "bool")
        bias = Array.normal((HEADS, Q_LEN, KV_LEN), 8)
        options = ["--causal", "--prefix", "2", "--window", "4,1", "--key-lengths", "7,6", "--mask",
                   self.write_array("m.npy", mask), "--bias", self.write_array("b.npy", bias), "--alibi",
                   "--softcap", "3", "--scale", "0.7", "--sinks", "0,1,-1,2", "--alignment", "2"]
        slopes = [2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)]

        def visible(b, h, i, j):
            return ((j <= i + 2 or j < 2) and i + 2 - 4 <= j <= i + 2 + 1 and j < (7, 6)[b]
                    and mask.at(i, j))

        def score(place, s):
            return (3 * math.tanh(s / 3) + bias.at(*place[1:])
                    - slopes[place[1]] * abs(place[2] + 2 - place[3]))
        self.check(problem(), *options, "--verify", visible=visible, score=score, scale=0.7,
                   sinks=[0, 1, -1, 2])


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

    def test_the_report_goes_out_of_the_way(self):
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

    def test_reader_that_leaves(self):
        specs = self.specs(problem(), "query", "key", "value")
        for options in (["--output", "-"], ["--output", str(self.dir / "c.npy")]):
            result = run("attend", *specs, *options, stdout=self.pipe_without_reader())
            self.assertEqual((result.returncode, result.stderr), (0, b""))


class OutputTest(AttendTest):
    def test_an_output_may_be_an_input(self):
        arrays = problem()
        path = self.write_array("q.npy", arrays["query"])
        others = self.input_file({name: arrays[name] for name in ("key", "value")})
        self.succeed("attend", "--query", path, "--input", others, "--output", path)
        self.assert_close(read_arrays(self.dir / "q.npy")[""], attention(**arrays)[0], "in place")
        path = self.input_file(arrays, "all.npz")
        self.succeed("attend", "--input", path, "--output", path)
        self.assertEqual(list(read_arrays(self.dir / "all.npz")), ["context"])
        self.assertEqual(self.files(), ["all.npz", "in.safetensors", "q.npy"])

    def test_both_in_one_file_under_names(self):
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

    def test_the_files_are_those_of_numpy(self):
        # Beyond the array: version, padding and order of what numpy.save writes.
        arrays = problem()
        self.succeed("attend", "--input", self.input_file(arrays), "--output", str(self.dir / "c.npy"))
        content = (self.dir / "c.npy").read_bytes()
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4, 5, 3), }"
        self.assertEqual(content[:10], b"\x93NUMPY\x01\x00" + struct.pack("<H", 118))
        self.assertEqual(content[10:128].decode(), header.ljust(117) + "\n")
        self.assertEqual(len(content), 128 + 4 * 2 * 4 * 5 * 3)

    def test_permissions_stay(self):
        path = self.write("c.npy", "old")
        os.chmod(path, 0o640)
        self.succeed("attend", "--input", self.input_file(problem()), "--output", path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)

    def test_a_fifo_is_written_to_once(self):
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
        self.assertRegex(lines[7], r"^time     [\d.]+ [num]?s, 1 thread, \w+, as in decoding$")
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
        self.assertEqual((report["engine"], report["threads"], report["layout"]), ("decode", 1, "bhld"))
        self.assertAlmostEqual(report["gflops"], report["flop"] / report["attend_s"] * 1e-9)
        self.assertIsNone(report["ceiling_gflops"])
        self.assertEqual(report["verify"]["rows"], 40)
        self.assertLessEqual(report["verify"]["context"]["error"], report["verify"]["context"]["allowed"])
        self.assertLess(report["verify"]["context"]["allowed"], 1e-4)
        self.assertIsNone(report["verify"]["lse"])

    def test_flop_of_masks_that_are_tensors(self):
        mask = Array((HEADS, Q_LEN, KV_LEN),
                     [x > 0 for x in Array.normal((HEADS, Q_LEN, KV_LEN), 3).values], "bool")
        report = json.loads(self.succeed("attend", "--input", self.input_file(problem()), "--json",
                                         "--mask", self.write_array("m.npy", mask)))
        self.assertEqual(report["flop"], 2 * (DIM + VALUE_DIM) * BATCH * sum(mask.values))

    def test_a_long_call_is_compared_with_the_ceiling(self):
        zeros = self.write("z.npy", npy("<f4", "(6, 4096, 64)", bytes(4 * 6 * 4096 * 64)))
        report = json.loads(self.succeed("attend", "--query", zeros, "--key", zeros, "--value", zeros,
                                         "--json", "--threads", "1"))
        self.assertGreater(report["attend_s"], 0.1)
        self.assertGreater(report["ceiling_gflops"], 0)
        self.assertAlmostEqual(report["share"], report["gflops"] / report["ceiling_gflops"])

    def test_without_an_output_both_are_computed(self):
        path = self.input_file(problem())
        report = json.loads(self.succeed("attend", "--input", path, "--json", "--verify"))
        self.assertEqual((report["context"]["file"], report["lse"]["file"]), (None, None))
        self.assertIsNotNone(report["verify"]["lse"])
        self.assertIn("not written", self.succeed("attend", "--input", path, "--verify"))
        self.assertEqual(self.files(), ["in.safetensors"])

    def test_verify_takes_all_rules_types_and_layouts(self):
        # Each head by itself is to be what it is among the others.
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

    def test_verify_of_what_is_not_finite(self):
        for number in (math.nan, math.inf, -math.inf, 3e38):
            arrays = problem(q_len=40)
            for name, place in (("key", 8), ("value", 4), ("query", 17)):
                arrays[name].values[place] = number
            self.attend("--input", self.input_file(arrays), "--verify", "--causal")
        # Rows of which nothing is to be seen, as others say it: by very low numbers.
        for lowest in (-3.4028234663852886e38, -1e30, -10000.0):
            bias = self.write_array("b.npy", Array((40, 1), [lowest, 0.0] * 20))
            for dtype in ("float32", "bfloat16"):
                report = json.loads(self.succeed("attend", "--input", self.input_file(problem(dtype, 40)),
                                                 "--bias", bias, "--verify", "--json"))
                self.assertLess(report["verify"]["context"]["error"], 0.1)

    def test_names_do_nothing_to_a_terminal(self):
        arrays = problem()
        query = self.input_file({"q\x1b[31m": arrays.pop("query")}, "q.safetensors")
        text = self.succeed("attend", "--input", self.input_file(arrays), "--query", f"{query}:q\x1b[31m",
                            "--output", str(self.dir / "c\u202e.npy"))
        self.assertIn(r"q\x1b[31m", text)
        self.assertIn(r"c\u202e.npy", text)
        printed = run("attend", "--input", self.input_file(arrays), "--query", query, "--json").stdout
        self.assertTrue(all(byte == 10 or 32 <= byte < 127 for byte in printed))


class EarlyEndTest(AttendTest):
    """A run of the reference, which takes long, ended before it is done."""

    def slow_problem(self, rows=512):
        numbers = Array.normal((16,), 1).values * rows
        path = self.write_array("slow.npy", Array((4, rows, 4), numbers, "float64"))
        wide = self.write("wide.npy", npy("<f8", "(4, 65536, 4)", bytes(8 * 4 * 65536 * 4)))
        # One thread, so that it takes seconds on any machine.
        return ["attend", "--query", path, "--key", wide, "--value", wide, "--threads", "1"]

    def test_interrupted(self):
        arguments = self.slow_problem()
        path = self.write("c.npy", "old")
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129),
                             (signal.SIGKILL, -signal.SIGKILL)):
            with subprocess.Popen([FOVEA, *arguments, "--output", path], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                  env=environment(), preexec_fn=default_signals) as process:
                time.sleep(0.3)
                process.send_signal(number)
                out, err = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual((process.returncode, out, err), (code, b"", b""), number)
            self.assertEqual((self.dir / "c.npy").read_text(), "old")
            self.assertEqual(self.files(), ["c.npy", "slow.npy", "wide.npy"])

    def test_interrupted_at_any_moment(self):
        # Whenever it comes: the old file or the whole new one, and never a temporary one.
        chance = random.Random(1)
        count = 1 << 17
        large = self.write("large.npy", npy("<f4", f"({count // 64}, 1, 64)", bytes(4 * count)))
        arguments = ["attend", "--query", large, "--key", large, "--value", large, "--output"]
        self.succeed(*arguments, str(self.dir / "whole.npy"))
        whole = (self.dir / "whole.npy").read_bytes()
        path = self.dir / "c.npy"
        codes = set()
        for _ in range(60):
            path.write_bytes(b"old")
            with subprocess.Popen([FOVEA, *arguments, str(path)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  preexec_fn=default_signals) as process:
                time.sleep(chance.uniform(0, 0.02))
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=TIMEOUT_S)
            codes.add(process.returncode)
            self.assertEqual(err, b"")
            self.assertIn(path.read_bytes(), (b"old", whole))
            self.assertEqual(self.files(), ["c.npy", "large.npy", "whole.npy"])
        # A signal that comes before main has begun ends the process in the system's way.
        self.assertLessEqual(codes, {0, 130, -signal.SIGINT})

    def test_an_input_that_becomes_shorter(self):
        arguments = self.slow_problem()
        path = self.write("c.npy", "old")
        with subprocess.Popen([FOVEA, *arguments, "--output", path], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            time.sleep(0.3)
            os.truncate(self.dir / "wide.npy", 4096)
            out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, out), (2, b""))
        self.assertIn("a file became shorter", self.one_line(err))
        self.assertEqual((self.dir / "c.npy").read_text(), "old")

    def test_a_result_that_verify_refuses(self):
        # The query changes under the running computation, which nothing but --verify can see.
        arguments = self.slow_problem(rows=128)  # which is to come to its end
        path = self.write("c.npy", "old")
        with subprocess.Popen([FOVEA, *arguments, "--output", path, "--verify"], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            time.sleep(0.15)
            with open(self.dir / "wide.npy", "r+b") as file:
                file.seek(128)
                file.write(struct.pack("<d", 7.0) * 4 * 65536 * 4)
            out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, out), (1, b""))
        self.assertRegex(self.one_line(err), "wrong result, so nothing was written: the context is off "
                                             r"by \S+, where the reference allows \S+$")
        self.assertEqual((self.dir / "c.npy").read_text(), "old")

    def test_progress_on_a_terminal_only(self):
        arguments = [*self.slow_problem(), "--output", str(self.dir / "c.npy")]
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        with subprocess.Popen([FOVEA, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=follower, env=environment(), preexec_fn=default_signals) as process:
            os.close(follower)
            seen = b""
            begin = time.monotonic()
            while b"left" not in seen and time.monotonic() - begin < 20:
                seen += os.read(leader, 4096)
            process.terminate()
            process.wait(timeout=TIMEOUT_S)
            os.close(leader)
        self.assertRegex(seen, rb"\d+ %, \d+\.\d GFLOP/s, [\d a-z]+ left")
        quick = self.input_file(problem())
        self.succeed("attend", "--input", quick, "--output", str(self.dir / "c.npy"))


class MemoryTest(AttendTest):
    @limits_memory
    def test_inputs_are_mapped_and_nothing_is_copied(self):
        # 96 MB to be read, 32 MB to be written.
        count = 1 << 23
        path = self.dir / "large.safetensors"
        head = {name: {"dtype": "F32", "shape": [64, count // 64 // 64, 64],
                       "data_offsets": [4 * count * i, 4 * count * (i + 1)]}
                for i, name in enumerate(("query", "key", "value"))}
        text = json.dumps(head).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + bytes(12 * count))
        for options in ([], ["--layout", "blhd", "--window", "10,0"], ["--window", "10,0", "--causal"]):
            with subprocess.Popen([FOVEA, "attend", "--input", str(path), "--output",
                                   str(self.dir / "c.npy"), *options], stdout=subprocess.DEVNULL) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertLess(usage.ru_maxrss * 1024, 16 * count + 100_000_000)


class OutputErrorTest(AttendTest):
    def failing(self, output, **options):
        return self.fail_with(1, "attend", "--input", self.input_file(problem()), "--output", output,
                              **options)

    def test_full_disk(self):
        os.symlink("/dev/full", self.dir / "full.npy")
        message = self.failing(str(self.dir / "full.npy"))
        self.assertIn("full.npy: cannot be written: No space left on device", message)
        with open("/dev/full", "wb") as full:
            self.assertIn("standard output: cannot be written", self.failing("-", stdout=full))

    def test_failed_write_leaves_nothing_behind(self):
        def small_files_only():
            # OpenMP has a small file of its own.
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        source = self.input_file(problem(q_len=600))
        for ending in (".npy", ".npz", ".safetensors"):
            old = self.write(f"old{ending}", "old")
            for path in (old, str(self.dir / f"new{ending}")):
                message = self.fail_with(1, "attend", "--input", source, "--output", path,
                                         preexec_fn=small_files_only)
                self.assertIn(f"{path}: cannot be written: File too large", message)
            self.assertEqual((self.dir / f"old{ending}").read_text(), "old")
        self.assertEqual(self.files(), ["in.safetensors", "old.npy", "old.npz", "old.safetensors"])

    def test_write_protected(self):
        options = self.as_ordinary_user()
        path = self.write("c.npy", "old")
        if options:
            os.chown(path, 65534, 65534)
        os.chmod(path, 0o444)
        self.assertIn(f"{path}: cannot be written: Permission denied", self.failing(path, **options))
        source = self.input_file(problem())
        os.chmod(self.dir, stat.S_IRUSR | stat.S_IXUSR)
        message = self.fail_with(1, "attend", "--input", source, "--output", str(self.dir / "new.npy"),
                                 **options)
        self.assertIn("Permission denied", message)
        os.chmod(self.dir, 0o755)
        self.assertEqual((self.dir / "c.npy").read_text(), "old")
        self.assertEqual(self.files(), ["c.npy", "in.safetensors"])

    def test_no_such_directory_is_said_before_the_work(self):
        path = str(self.dir / "missing" / "c.npy")
        begin = time.monotonic()
        arguments = EarlyEndTest.slow_problem(self)
        message = self.fail_with(1, *arguments, "--output", path)
        self.assertIn(f"{path}: cannot be written: No such file or directory", message)
        self.assertLess(time.monotonic() - begin, 2)
        (self.dir / "c.npy").mkdir()
        self.assertIn("Is a directory", self.failing(str(self.dir / "c.npy")))


if __name__ == "__main__":
    unittest.main()
