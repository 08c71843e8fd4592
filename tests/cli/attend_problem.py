# SPDX-License-Identifier: Apache-2.0
"""A small problem for tests of `fovea attend`, and checks of its results against the formula."""

from support import CliTest
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
        """Runs `fovea attend`, which must succeed; returns (context, lse)."""
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
        """Runs with an --input file and compares the results with the formula; returns (context, lse)."""
        context, lse = self.attend("--input", self.input_file(arrays), *options)
        right, right_lse = attention(arrays["query"], arrays["key"], arrays["value"], **oracle)
        self.assert_close(context, layout(right), ("context", options))
        self.assert_close(lse, right_lse, ("lse", options))
        return context, lse

    def slow_problem(self, rows=512):
        """Returns the arguments of a slow run of the reference."""
        numbers = Array.normal((16,), 1).values * rows
        path = self.write_array("slow.npy", Array((4, rows, 4), numbers, "float64"))
        wide = self.write("wide.npy", npy("<f8", "(4, 65536, 4)", bytes(8 * 4 * 65536 * 4)))
        # One thread, so that the run takes seconds on any machine.
        return ["attend", "--query", path, "--key", wide, "--value", wide, "--threads", "1"]
