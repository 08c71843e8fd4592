# SPDX-License-Identifier: Apache-2.0
"""Errors of `fovea attend`: each message names the option or file, the expected value and the actual one.
The exit code is 2, and an existing output file is unchanged."""

import unittest

from support import CliTest, run
from tensor_files import Array, npy, npz, npz_of, safetensors, safetensors_of

# A problem with batch 2, 4 query heads, 2 key heads, 5 queries and 7 keys, and files that do not fit it.
FILES = {
    "q.npy": Array.normal((2, 4, 5, 6), 1).npy(),
    "k.npy": Array.normal((2, 2, 7, 6), 2).npy(),
    "v.npy": Array.normal((2, 2, 7, 3), 3).npy(),
    "all.npz": npz_of({"query": Array.normal((2, 4, 5, 6), 1), "key": Array.normal((2, 2, 7, 6), 2),
                       "value": Array.normal((2, 2, 7, 3), 3)}),
    "qkv.npz": npz_of({name: Array.normal((3, 2), 1) for name in "qkv"}),
    "some.safetensors": safetensors_of({"query": Array.normal((2, 4, 5, 6), 1)}),
    "none.safetensors": safetensors({}, b""),
    "double.npz": npz_of({"query": Array.normal((2, 4, 5, 6), 1, "float64"),
                          "key": Array.normal((2, 2, 7, 6), 2, "float64")}),
    "half.npz": npz_of({"query": Array.normal((3, 2), 1, "bfloat16")}),
    "f8.safetensors": safetensors({"query": {"dtype": "F8_E5M2", "shape": [2, 2], "data_offsets": [0, 4]}},
                                  bytes(4)),
    "rank1.npy": Array.normal((6,), 1).npy(),
    "rank2.npy": Array.normal((7, 6), 1).npy(),
    "rank5.npy": Array.normal((1, 1, 1, 3, 2), 1).npy(),
    "batch3.npy": Array.normal((3, 2, 7, 6), 1).npy(),
    "dim5.npy": Array.normal((2, 2, 7, 5), 1).npy(),
    "heads3.npy": Array.normal((2, 3, 7, 6), 1).npy(),
    "heads0.npy": npy("<f4", "(2, 0, 7, 6)", b""),
    "length6.npy": Array.normal((2, 2, 6, 3), 1).npy(),
    "heads1.npy": Array.normal((2, 1, 7, 3), 1).npy(),
    "int.npy": Array((2, 4, 5, 6), range(240), "int64").npy(),
    "bool.npy": Array((2, 4, 5, 6), [True] * 240, "bool").npy(),
    "wide.npy": Array((2, 2), [1, -65505, 2, 3]).npy(),
    "wider.npy": Array((2, 2), [1, -1e39, 2, 3], "float64").npy(),
    "near.npy": Array((2, 2), [1, -3.4e38, 2, 3]).npy(),
    "complex.npy": npy("<c8", "(2, 2)", bytes(32)),
    "cut.npy": Array.normal((2, 2, 7, 6), 2).npy()[:-4],
    "long.npy": Array.normal((2, 2, 7, 6), 2).npy() + b"more",
    "huge.npy": npy("<f4", f"({1 << 40}, {1 << 40})", b""),
    "lie.safetensors": safetensors({"key": {"dtype": "F32", "shape": [1 << 30], "data_offsets": [0, 8]}},
                                   bytes(8)),
    "text.npy": b"hello, this is no array",
    "empty.npy": b"",
    "damaged.npz": npz({"key.npy": Array.normal((2, 2, 7, 6), 2).npy()})[:-30],
    "ids5.npy": Array((5,), range(5), "int64").npy(),
    "ids7.npy": Array((7,), range(7), "int64").npy(),
    "ids3x5.npy": Array((3, 5), range(15), "int64").npy(),
    "floats5.npy": Array((5,), range(5)).npy(),
    "floats0.npy": npy("<f4", "(0,)", b""),
    "lengths3.npy": Array((3,), [1, 2, 3], "int64").npy(),
    "lengths2x1.npy": Array((2, 1), [1, 2], "int64").npy(),
    "mask.npy": Array((5, 7), [True] * 35, "bool").npy(),
    "mask4.npy": Array((4, 7), [True] * 28, "bool").npy(),
    "mask5d.npy": Array((1, 1, 1, 5, 7), [True] * 35, "bool").npy(),
    "numbers.npy": Array((5, 7), [1] * 35, "int64").npy(),
    "bias8.npy": Array.normal((5, 8), 1).npy(),
    "table3.npy": Array.normal((32, 3), 1).npy(),
    "table.npy": Array.normal((32, 4), 1).npy(),
    "table2.npy": Array.normal((2, 4), 1).npy(),
    "old.npy": b"old",
    "old.npz": b"old",
}
QKV = "--query q.npy --key k.npy --value v.npy"
KV = "--key k.npy --value v.npy"

# Arguments, and expected parts of the message. The tests put --output old.npy in front of the arguments.
MISUSE = [
    # Inputs.
    ("--query q.npy --key k.npy", "expected --query, --key and --value, or --input FILE; --value is missing"),
    ("--value v.npy", "--query is missing"),
    ("", "expected a RECORDING, or --query, --key and --value, or --input FILE"),
    (f"{QKV} --input all.npz", "--input: expected no file where --query, --key and --value are given"),
    (f"{QKV} extra.npy", '--query: expected no tensors, masks or scores beside the recording "extra.npy"'),
    (f"{QKV} --quary q.npy", 'unknown option "--quary" (did you mean "--query"?)'),
    (f"{QKV} --output", "--output: expected a value"),
    (f"{QKV} --query=", "--query: expected a value"),
    (f"{QKV} --mask=", "--mask: expected a value"),
    ("--query - --key -:bf16 --value v.npy", "--key: expected a file, got -, which --query reads"),
    (f"{KV} --query - --documents -,ids7.npy", "--documents: expected a file, got -, which --query reads"),
    (f"{QKV} --documents -,-", "--documents: expected a file, got -, which --documents reads"),
    (f"{QKV} --sinks - --alibi -", "--sinks: expected a file, got -, which --alibi reads"),
    # Option values.
    (f"{QKV} --layout blhx", '--layout: expected one of bhld, blhd; got "blhx" (did you mean'),
    (f"{QKV} --dtype float32", '--dtype: expected one of f32, bf16, f16, f64; got "float32"'),
    (f"{QKV} --threads 0", '--threads: expected a whole number from 1 to 1024, got "0"'),
    (f"{QKV} --threads many", '--threads: expected a whole number from 1 to 1024, got "many"'),
    (f"{QKV} --prefix -1", "--prefix: expected a whole number from 0 to"),
    (f"{QKV} --prefix 1.5", '--prefix: expected a whole number from 0 to 1099511627776, got "1.5"'),
    (f"{QKV} --scale wide", '--scale: expected a number, got "wide"'),
    (f"{QKV} --scale 1,2", '--scale: expected a number, got "1,2"'),
    (f"{QKV} --softcap x", '--softcap: expected a number, got "x"'),
    (f"{QKV} --relative-one-way", "--relative-one-way goes with --relative TENSOR"),
    (f"{QKV} --relative-distance 9", "--relative-distance goes with --relative TENSOR"),
    (f"{QKV} --relative table.npy --relative-distance 0", "--relative-distance: expected a whole number"),
    (f"{QKV} --causal=perhaps", "--causal: expected no value"),
    (f"{QKV} --causal=-3", '--causal: expected no value, got "-3"'),
    (f"{QKV} --alibi=", '--alibi: expected a value or nothing, got ""'),
    (f"{QKV} --timeout abc", '--timeout: expected 0.1 to 1000000 seconds, got "abc"'),
    (f"{QKV} --timeout 0", '--timeout: expected 0.1 to 1000000 seconds, got "0"'),
]
BAD_INPUT = [
    # Files and names.
    ("--query --causal=1.npy --key k.npy --value v.npy", "--query: --causal=1.npy: "),
    ("--input all.npz --query missing.npy", "--query: missing.npy: ", "No such file or directory"),
    ("--input missing.npz", "--input: missing.npz: ", "No such file or directory"),
    ("--input q.npy", "--input: expected an .npz or .safetensors file with query, key and value, got q.npy"),
    ("--input -", "--input: expected an .npz or .safetensors file", "got standard input"),
    ("--input all.npz:query", '--input: expected FILE or FILE:bf16, got the name "query"'),
    ("--input qkv.npz", '--input: qkv.npz: no tensor is called "query"; there are: q, k, v; under another '
                        "name it goes with --query FILE:NAME"),
    ("--input some.safetensors", '--input: some.safetensors: no tensor is called "key"; there is: query'),
    ("--input none.safetensors", "--input: none.safetensors: expected a tensor, got a file without any"),
    ("--input all.npz:bf16", "--input: all.npz: query: expected elements of two bytes without a type"),
    ("--input half.npz", "--input: half.npz: query: cannot be read", "say so by :bf16"),
    ("--input f8.safetensors", "--input: f8.safetensors: query: cannot be read", "F8_E5M2"),
    (f"{KV} --query all.npz", "--query: all.npz: expected the name of one of its 3 tensors"),
    (f"{KV} --query all.npz:quary", '--query: all.npz: no tensor is called "quary" (did you mean "query"?)'),
    (f"{KV} --query q.npy:name", "--query: q.npy: expected no name, or bf16"),
    (f"{KV} --query .", "--query: .: ", "directory"),
    ("--query q.npy --value v.npy --key cut.npy", "--key: cut.npy: expected 672 bytes after the header"),
    ("--query q.npy --value v.npy --key long.npy", "--key: long.npy: "),
    ("--query q.npy --value v.npy --key huge.npy", "--key: huge.npy: "),
    ("--query q.npy --value v.npy --key text.npy", "--key: text.npy: "),
    ("--query q.npy --value v.npy --key empty.npy", "--key: empty.npy: "),
    ("--query q.npy --value v.npy --key damaged.npz", "--key: damaged.npz: "),
    ("--query q.npy --value v.npy --key lie.safetensors", "--key: lie.safetensors: "),
    ("--query - --key k.npy --value v.npy", "--query: standard input: expected an .npy file"),
    # Types.
    (f"{KV} --query int.npy", "--query: int.npy: expected float32, float16, bfloat16 or float64, got int64; "
                              "--dtype converts"),
    (f"{KV} --query bool.npy", "--query: bool.npy: ", "got bool; --dtype converts"),
    (f"{KV} --query complex.npy", "--query: complex.npy: cannot be read: elements are"),
    (f"{KV} --query double.npz:query", "--key: k.npy: expected float64 for query, key and value or for none "
                                       "of them, got float32 beside the query's float64; --dtype converts"),
    ("--query q.npy --value v.npy --key double.npz:key", "--key: double.npz:key: expected float64 for"),
    ("--query wide.npy --key wide.npy --value wide.npy --dtype f16",
     "--query: wide.npy: expected numbers up to 65504 in size, as --dtype makes them float16, got 65505"),
    ("--query wider.npy --key wider.npy --value wider.npy --dtype bf16",
     "--query: wider.npy: expected numbers up to 3.38953e+38 in size, as --dtype makes them bfloat16, got 1e+39"),
    ("--query near.npy --key near.npy --value near.npy --dtype bf16",
     "--query: near.npy: expected numbers up to 3.38953e+38 in size, as --dtype makes them bfloat16, got 3.4e+38"),
    # Shapes.
    (f"{KV} --query rank1.npy", "--query: rank1.npy: expected [length, dim], [heads, length, dim] or [batch, "
                                "heads, length, dim], got shape [6]"),
    (f"{KV} --query rank1.npy --layout blhd", "[length, heads, dim] or [batch, length, heads, dim]"),
    (f"{KV} --query rank5.npy", "--query: rank5.npy: ", "got shape [1, 1, 1, 3, 2]"),
    (f"{KV} --query rank2.npy", "--key: k.npy: expected 2 dimensions as the query has, got shape [2, 2, 7, 6]"),
    ("--query q.npy --key batch3.npy --value v.npy", "--key: batch3.npy: expected batch 2 as the query has, "
                                                     "got 3 in shape [3, 2, 7, 6]"),
    ("--query q.npy --key k.npy --value batch3.npy", "--value: batch3.npy: expected batch 2"),
    ("--query q.npy --key dim5.npy --value v.npy", "--key: dim5.npy: expected dim 6 as the query has, got 5"),
    ("--query q.npy --key k.npy --value length6.npy", "--value: length6.npy: expected length 7 as the key has, "
                                                      "got 6 in shape [2, 2, 6, 3]"),
    ("--query q.npy --key k.npy --value heads1.npy", "--value: heads1.npy: expected 2 heads as the key has"),
    ("--query q.npy --key heads3.npy --value heads3.npy", "--key: heads3.npy: expected a divisor of the "
                                                          "query's 4 heads, got 3 in shape [2, 3, 7, 6]"),
    ("--query q.npy --key heads0.npy --value heads0.npy", "a divisor of the query's 4 heads, got 0"),
    (f"{QKV} --layout blhd", "--key: k.npy: expected a divisor of the query's 5 heads, got 7"),
    # Masks.
    (f"{QKV} --window 3", '--window: expected LEFT,RIGHT, whole numbers of -1 (no bound) or more, got "3"'),
    (f"{QKV} --window -2,0", 'got "-2,0"'),
    (f"{QKV} --window 1,2,3", 'got "1,2,3"'),
    (f"{QKV} --window 1,", 'got "1,"'),
    (f"{QKV} --window 99999999999999999999,0", "--window: expected LEFT,RIGHT"),
    (f"{QKV} --documents ids5.npy", "--documents: expected key ids of shape [7] or [2, 7], got [5]"),
    (f"{QKV} --documents ids5.npy,ids5.npy", "--documents: expected key ids of shape [7] or [2, 7], got [5]"),
    (f"{QKV} --documents ids3x5.npy,ids7.npy", "--documents: expected query ids of shape [5] or [2, 5]"),
    (f"{QKV} --documents floats5.npy", "--documents: floats5.npy: expected integers, got float32"),
    (f"{QKV} --documents ids5.npy,gone.npy", "--documents: gone.npy: ", "No such file"),
    (f"{QKV} --key-lengths 8", "--key-lengths: expected lengths from 0 to kv_len = 7, got 8"),
    (f"{QKV} --key-lengths 3,-1", "--key-lengths: expected lengths from 0 to kv_len = 7, got -1"),
    (f"{QKV} --key-lengths 1,2,3", "--key-lengths: expected 1 length or one per batch item (2), got 3"),
    (f"{QKV} --key-lengths lengths3.npy", "--key-lengths: expected 1 length or one per batch item (2), got 3"),
    (f"{QKV} --key-lengths lengths2x1.npy", "--key-lengths: lengths2x1.npy: expected one dimension at most"),
    (f"{QKV} --key-lengths floats5.npy", "--key-lengths: floats5.npy: expected integers, got float32"),
    (f"{QKV} --key-lengths 3;4", "--key-lengths: expected whole numbers with commas between them, or the file"),
    (f"{QKV} --mask mask4.npy", "--mask: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = "
                                "[2, 4, 5, 7], got [4, 7]"),
    (f"{QKV} --mask mask5d.npy", "--mask: expected a shape that broadcasts"),
    (f"{QKV} --mask numbers.npy", "--mask: numbers.npy: expected bool, true where a query sees a key, got int64"),
    (f"{QKV} --mask bias8.npy", "got float32; what is added to scores is --bias"),
    (f"{QKV} --alignment bottom", '--alignment: expected bottom-right, top-left, offsets', 'got "bottom"'),
    (f"{QKV} --alignment 1,2,3", "--alignment: expected 1 offset or one per batch item (2), got 3"),
    (f"{QKV} --alignment lengths3.npy", "--alignment: expected 1 offset or one per batch item (2), got 3"),
    (f"{QKV} --alignment 9999999999999", "--alignment: expected offsets from"),
    # Scores.
    (f"{QKV} --scale inf", "--scale: expected a finite number, got inf"),
    (f"{QKV} --alibi 1,1e39,1,1", "--alibi: expected numbers that float32 holds, got 1e+39"),
    (f"{QKV} --scale 1e39", "--scale: expected a number that float32 holds"),
    (f"{QKV} --softcap 0", "--softcap: expected a number above 0, got 0"),
    (f"{QKV} --softcap nan", "--softcap: expected a number above 0, got nan"),
    (f"{QKV} --bias bias8.npy", "--bias: expected a shape that broadcasts", "got [5, 8]"),
    (f"{QKV} --bias mask.npy", "--bias: mask.npy: expected float32", "got bool; use --mask for a bool mask"),
    (f"{QKV} --alibi 1,2", "--alibi: expected one number per query head (4), got 2"),
    (f"{QKV} --alibi 1,2,x,4", "--alibi: expected numbers with commas between them, or the file of a tensor"),
    (f"{QKV} --alibi 1,2,3,-inf", "--alibi: expected finite slopes, got -inf"),
    (f"{QKV} --alibi floats0.npy", "--alibi: floats0.npy: expected numbers, got none"),
    (f"{QKV} --sinks 1", "--sinks: expected one number per query head (4), got 1"),
    (f"{QKV} --sinks 1,2,3,nan", "--sinks: expected numbers, got nan"),
    (f"{QKV} --sinks mask.npy", "--sinks: mask.npy: expected one dimension at most, got shape [5, 7]"),
    (f"{QKV} --relative table3.npy", "--relative: expected a table [buckets, q_heads] = [4 or more, 4], got"),
    (f"{QKV} --relative table2.npy", "--relative: expected a table [buckets, q_heads] = [4 or more, 4], got"),
    (f"{QKV} --relative ids7.npy", "--relative: ids7.npy: expected float32", "got int64"),
    (f"{QKV} --relative table.npy --relative-distance 8", "--relative: expected max_distance above 8"),
    # Outputs.
    (f"{QKV} --output c.txt", '--output: expected a name that ends in .npy, .npz or .safetensors', '"c.txt"'),
    (f"{QKV} --output c.npy:name", "--output: expected no name within an .npy"),
    (f"{QKV} --lse old.npy", "--lse: expected another file than --output, got old.npy for both"),
    (f"{QKV} --output - --lse -", "--lse: expected another file than --output, got standard output for both"),
    (f"{QKV} --output old.npz:a --lse old.npz:a", "--lse: expected another name than --output, got old.npz:a"),
]


class RefusalTest(CliTest):
    def setUp(self):
        super().setUp()
        for name, content in FILES.items():
            self.write(name, content)

    def refused(self, arguments, *parts):
        message = self.fail_with(2, "attend", *arguments.split(), cwd=self.dir)
        for part in parts:
            self.assertIn(part, message, arguments)
        return message

    def test_valid_files_are_accepted(self):
        for arguments in (QKV, "--input all.npz", f"{QKV} --mask mask.npy", f"{QKV} --relative table.npy"):
            self.succeed("attend", *arguments.split(), "--verify", cwd=self.dir)

    def test_misuse(self):
        for arguments, *parts in MISUSE:
            with self.subTest(arguments):
                message = self.refused(f"--output old.npy {arguments}", *parts)
                self.assertTrue(message.endswith("; see fovea attend --help"), message)
        self.refused(QKV, "nothing to do: expected --output, --lse, --verify or --json")

    def test_bad_input(self):
        for arguments, *parts in BAD_INPUT:
            with self.subTest(arguments):
                self.refused(f"--output old.npy {arguments}", *parts)

    def test_number_of_cases(self):
        self.assertGreaterEqual(len(MISUSE) + len(BAD_INPUT), 100)

    def tearDown(self):
        # Nothing was written, and no temporary file is left.
        self.assertEqual(self.files(), sorted(FILES))
        for name, content in FILES.items():
            self.assertEqual((self.dir / name).read_bytes(), content)
        super().tearDown()


class HostileTest(CliTest):
    def test_truncated_files(self):
        whole = safetensors_of({name: Array.normal((3, 2), 1) for name in ("query", "key", "value")})
        path = self.write("a.safetensors", whole)
        self.succeed("attend", "--input", path, "--verify")
        for size in range(0, len(whole), 7):
            self.write("a.safetensors", whole[:size])
            self.fail_with(2, "attend", "--input", path, "--verify")

    def test_corrupted_header_bytes(self):
        whole = Array.normal((3, 2), 1).npy()
        rest = ["--key", self.write("k.npy", whole), "--value", self.write("v.npy", whole)]
        path = str(self.dir / "q.npy")
        for place in range(0, 80):
            changed = bytearray(whole)
            changed[place] ^= 1 << (place % 8)
            self.write("q.npy", bytes(changed))
            result = run("attend", "--query", path, *rest, "--verify")
            self.assertIn(result.returncode, (0, 2), (place, result.stderr))
            if result.returncode == 2:
                self.assertIn("q.npy", self.one_line(result.stderr))

    def test_shapes_whose_sizes_overflow(self):
        far = 1 << 40
        for shape in ((far, far, 5, 0), (5, far, far, 0), (0, far, far, far), (far, 0, far, far)):
            path = self.write("far.npy", npy("<f4", str(shape), b""))
            for outputs in (["--verify"], ["--output", str(self.dir / "c.npy")],
                            ["--lse", str(self.dir / "l.npy"), "--causal", "--json"]):
                result = run("attend", "--query", path, "--key", path, "--value", path, *outputs)
                self.assertIn(result.returncode, (0, 1, 2), (shape, outputs))
                if result.returncode != 0:
                    self.one_line(result.stderr)

    def test_escape_sequences_are_not_printed(self):
        escape = "\x1b]0;owned\x07"
        for option in ("--query", "--input", "--output", "--mask", "--sinks", "--window", "--scale"):
            message = self.fail_with(2, "attend", "--query", "q", "--key", "k", "--value", "v", "--lse",
                                     "l.npy", option, escape)
            self.assertNotIn("\x1b", message)


if __name__ == "__main__":
    unittest.main()
