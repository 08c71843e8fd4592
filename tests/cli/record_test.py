# SPDX-License-Identifier: Apache-2.0
"""`fovea record`: recordings of arrays, read by the other commands."""

import json
import unittest

from attend_problem import AttendTest, problem
from map_problem import row_weights
from tensor_files import read_arrays


def square():
    return problem(q_len=7, kv_len=7)


class RecordTest(AttendTest):
    def described(self, path):
        return json.loads(self.succeed("inspect", path, "--json"))

    def test_weights_of_arrays(self):
        arrays = square()
        output = str(self.dir / "run.safetensors")
        tokens = self.write("tokens.txt", "\N{BYTE ORDER MARK}a\nb\nc\nd\ne\nf\ng\n")
        said = self.succeed("record", "--input", self.input_file(arrays), "--causal", "--window", "3,0", "--layer", "5",
                            "--tokens", tokens, "--model", "small", "--source", "letters", "--output", output)
        self.assertRegex(said, r"^recording  1 attention, .* MB, written to ")
        told = self.described(output)
        self.assertEqual((told["model"], told["source"]), ("small", "letters"))
        (attention,) = told["attentions"]
        self.assertEqual((attention["name"], attention["layer"], attention["value_dim"]), ("layers.5", 5, 3))
        self.assertEqual(attention["mask"], "causal() & window(3, 0)")
        tile = self.dir / "tile.npy"
        self.succeed("tile", output, "--batch", "1", "--head", "3", "--output", str(tile))
        (weights,) = read_arrays(tile).values()
        for i in range(7):
            expected = row_weights(arrays, 1, 3, i, lambda _b, _h, i, j: i - 3 <= j <= i, lambda _, s: s)
            for j in range(7):
                self.assertAlmostEqual(weights.at(i, j), expected.get(j, 0.0), delta=2e-6)
        self.assertIn("0 a ", self.succeed("map", output))

    def test_several_attentions(self):
        arrays = {f"model.layers.{layer}.{name}": array for layer in (2, 11) for name, array in square().items()}
        output = str(self.dir / "run.safetensors")
        said = self.succeed("record", "--input", self.input_file(arrays, "in.npz"), "--causal", "--store", "bf16",
                            "--output", output)
        self.assertIn("recording  2 attentions", said)
        found = self.described(output)["attentions"]
        self.assertEqual([(a["name"], a["layer"], a["dtype"]) for a in found],
                         [("model.layers.2", 2, "bfloat16"), ("model.layers.11", 11, "bfloat16")])
        self.succeed("attend", output, "--layer", "11", "--verify")
        self.assertIn("--name: expected one attention, got a file with 2",
                      self.fail_with(2, "record", "--input", str(self.dir / "in.npz"), "--name", "x", "--output", output))

    def test_scores_and_masks_are_kept(self):
        arrays = square()
        path = self.input_file(arrays)
        output = str(self.dir / "run.safetensors")
        options = ["--alibi", "--softcap", "3", "--sinks", "0,1,2,3", "--key-lengths", "5,7", "--scale", "0.5"]
        self.succeed("record", "--input", path, *options, "--output", output)
        context, again = self.dir / "a.npy", self.dir / "b.npy"
        self.succeed("attend", "--input", path, *options, "--output", str(context))
        self.succeed("attend", output, "--output", str(again))
        self.assertEqual(context.read_bytes(), again.read_bytes())

    def test_misuse(self):
        path = self.input_file(square())
        output = str(self.dir / "run.safetensors")
        wide = self.input_file({name: array.as_type("float64") for name, array in square().items()}, "wide.npz")
        few = self.write("few.txt", "a\nb\n")
        for arguments, message in (
                (["--input", path], "expected --output FILE"),
                (["--output", output], "expected --query and --key, or --input FILE; --query is missing"),
                (["--input", path, "--output", "x.npz"], "--output: expected a name that ends in .safetensors"),
                (["--input", wide, "--output", output], "expected float32, float16 or bfloat16, got float64; --dtype f32"),
                (["--input", path, "--tokens", few, "--output", output], "expected 7 lines, one for each key, got 2"),
                (["--input", path, "--sinks", "1", "--output", output], "--sinks: expected one number per query head")):
            self.assertIn(message, self.fail_with(2, "record", *arguments), arguments)
        self.assertNotIn("run.safetensors", self.files())


if __name__ == "__main__":
    unittest.main()
