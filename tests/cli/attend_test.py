# SPDX-License-Identifier: Apache-2.0
"""`fovea attend`: results for every rule, type, rank, layout and format, compared with the formula in plain
Python. attend_files_test.py tests outputs and reports, attend_errors_test.py tests errors."""

import json
import math
import unittest

from attend_problem import BATCH, DIM, HEADS, KV_LEN, Q_LEN, VALUE_DIM, AttendTest, problem
from tensor_files import ROUNDING, Array, attention, npy, npz_of, read_arrays, safetensors_of


class ResultTest(AttendTest):
    def test_types(self):
        for dtype in ("float32", "float16", "bfloat16", "float64"):
            arrays = problem(dtype)
            context, lse = self.attend("--input", self.input_file(arrays))
            right, right_lse = attention(**arrays)
            self.assertEqual((context.dtype, lse.dtype),
                             (dtype, "float64" if dtype == "float64" else "float32"))
            # With bfloat16, the weights may be rounded as well.
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

    def test_options_override_the_input_file(self):
        arrays = problem()
        other = Array.normal((BATCH, HEADS, Q_LEN, DIM), 9)
        path = self.input_file(arrays, "in.npz")
        context, _ = self.attend("--input", path, "--query", self.write_array("q.npy", other))
        self.assert_close(context, attention(other, arrays["key"], arrays["value"])[0], "query")

    def test_bfloat16_stored_by_numpy(self):
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
        # Rank 3 with a mask. Masks have the heads first in every layout.
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

    def test_dtype_converts_integers_and_float64(self):
        whole = Array((1, 1, 3, 2), [1, -2, 3, 0, 2, 1], "int32")
        arrays = {"query": whole, "key": whole.as_type("float64"),
                  "value": Array((1, 1, 3, 2), [0, 1, 1, 0, 1, 1], "bool")}
        context, lse = self.attend("--input", self.input_file(arrays), "--dtype", "f32")
        right, right_lse = attention(**arrays)
        self.assertEqual(context.dtype, "float32")
        self.assert_close(context, right, "integers")
        self.assert_close(lse, right_lse, "integers")

    def test_many_queries(self):
        # Too many queries for the decode engine, so the forward engine is used.
        arrays = problem(q_len=67, kv_len=67, batch=1, heads=2)
        path = self.input_file(arrays)
        engine = json.loads(self.succeed("attend", "--input", path, "--json"))["engine"]
        self.assertEqual(engine, "forward")
        self.check(arrays, "--causal", visible=lambda b, h, i, j: j <= i)

    def test_result_is_independent_of_thread_count(self):
        arrays = problem(q_len=130, kv_len=90)
        path = self.input_file(arrays)
        results = {tuple(self.attend("--input", path, "--threads", str(n))[0].values) for n in (1, 2, 5)}
        self.assertEqual(len(results), 1)

    def test_empty_problems(self):
        for shapes in (dict(q_len=0), dict(kv_len=0), dict(batch=0), dict(q_len=0, kv_len=0)):
            arrays = problem(**shapes)
            for options in ([], ["--causal", "--alibi"], ["--dtype", "f64"]):
                context, lse = self.attend("--input", self.input_file(arrays), "--verify", *options)
                expected, expected_lse = attention(**arrays)
                self.assertEqual((context.shape, context.values), (expected.shape, expected.values))
                self.assertEqual((lse.shape, lse.values), (expected_lse.shape, expected_lse.values))

    def test_billions_of_empty_rows(self):
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
        # Rows before the first key are fully masked.
        self.assertEqual(lse.at(1, 0, 0), -math.inf)
        self.assertEqual([context.at(1, 0, 0, c) for c in range(VALUE_DIM)], [0.0] * VALUE_DIM)

    def test_window(self):
        for left, right in ((1, 0), (0, 0), (-1, 1), (2, -1), (-1, -1), (100, 100)):
            def visible(b, h, i, j, left=left, right=right):
                at = i + self.OFFSET
                return (left < 0 or j >= at - left) and (right < 0 or j <= at + right)
            self.check(problem(), "--window", f"{left},{right}", visible=visible)

    def test_prefix_extends_only_the_causal_mask(self):
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
            # The last query is aligned with the last key within the length.
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

    def test_all_rules_combined(self):
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


if __name__ == "__main__":
    unittest.main()
