# SPDX-License-Identifier: Apache-2.0
"""`fovea diff` and `fovea rollout`, compared with their definitions."""

import csv
import io
import json
import math
import re
import unittest

from map_problem import Png
from recordings import HEADS, IDS, LENGTH, TOKENS, Layer, RecordingTest
from tensor_files import read_arrays


def divergence(p, q):
    """Returns the Jensen-Shannon divergence of two rows."""
    return sum(x / 2 * math.log(2 * x / (x + y)) + (y / 2 * math.log(2 * y / (x + y)) if y > 0 else 0)
               if x > 0 else (y / 2 * math.log(2) if y > 0 else 0.0) for x, y in zip(p, q))


class DiffTest(RecordingTest):
    def pair(self):
        first, layers = self.record("first.safetensors")
        others = [Layer(0, 1), Layer(1, 20), Layer(2, 30)]  # layer 0 is the same
        second, _ = self.record("second.safetensors", others)
        return first, second, layers, others

    def test_matches_the_definition(self):
        first, second, layers, others = self.pair()
        found = json.loads(self.succeed("diff", first, second, "--sort", "head", "--json"))["heads"]
        self.assertEqual([(h["layer"], h["head"]) for h in found],
                         [(layer, head) for layer in range(3) for head in range(HEADS)])
        for head in found:
            a, b = (side[head["layer"]].weights(head["head"]) for side in (layers, others))
            rows = [divergence(p, q) for p, q in zip(a, b)]
            self.assertAlmostEqual(head["mean"], sum(rows) / LENGTH, delta=2e-6)
            self.assertAlmostEqual(head["largest"], max(rows), delta=2e-6)
            if head["layer"] == 0:
                self.assertEqual((head["mean"], head["largest"]), (0.0, 0.0))
            else:
                self.assertEqual(head["query"], rows.index(max(rows)))
                self.assertEqual(head["token"], TOKENS[head["query"]])
        for order in ("mean", "largest"):
            numbers = [h[order] for h in json.loads(self.succeed("diff", first, second, "--sort", order, "--json"))["heads"]]
            self.assertEqual(numbers, sorted(numbers, reverse=True))

    def test_outputs(self):
        first, second, _, _ = self.pair()
        text = self.succeed("diff", first, second, "--top", "3")
        self.assertIn("4 of 12 heads are equal", text)
        self.assertIn("and 9 more\n", text)
        self.assertNotIn("\x1b", text)
        self.assertIn("12 of 12 heads are equal", self.succeed("diff", first, first))
        self.assertEqual(len(json.loads(self.succeed("diff", first, second, "--layer", "2", "--json"))["heads"]), HEADS)
        for name in ("d.csv", "d.json", "d.svg", "d.html", "d.png"):
            self.assertIn("heads  12, written to ", self.succeed("diff", first, second, "--output", str(self.dir / name)))
        self.assertEqual(len(list(csv.DictReader(io.StringIO((self.dir / "d.csv").read_text())))), 12)
        self.assertIn(">layer</text>", (self.dir / "d.svg").read_text())
        self.assertIn(("Comment", "rows are layers, columns heads"), Png((self.dir / "d.png").read_bytes()).texts)

    def test_other_tokens(self):
        first, _ = self.record()
        words = [*TOKENS[:5], " dog", *TOKENS[6:]]
        second, _ = self.record("dog.safetensors", texts=words)
        self.assertIn('expected the query tokens of ' + first + ', got " dog" instead of " cat" at 5',
                      self.fail_with(2, "diff", first, second))
        third, _ = self.record("ids.safetensors", ids=[*IDS[:8], 77])
        self.assertIn('got " cat" (id 77) instead of " cat" (id 2) at 8', self.fail_with(2, "diff", first, third))
        short = [Layer(i, i, q_len=7, kv_len=7) for i in range(3)]
        fourth, _ = self.record("short.safetensors", short, texts=TOKENS[:7], ids=IDS[:7])
        self.assertIn("got 7, of which the first 7 are the same", self.fail_with(2, "diff", first, fourth))
        fifth, _ = self.record("less.safetensors", [Layer(0, 1)])
        self.assertIn("expected the attention layers.1 as " + first + " has, got layer 0",
                      self.fail_with(2, "diff", first, fifth))
        self.assertIn("only the second has them: layers.1, layers.2\n", self.succeed("diff", fifth, first))
        self.assertEqual(json.loads(self.succeed("diff", fifth, first, "--json"))["only_in_second"],
                         ["layers.1", "layers.2"])
        plain, _ = self.record("plain.safetensors", [Layer(0, 1, q_len=7, kv_len=7, tokens=None)], texts=None)
        untold, _ = self.record("untold.safetensors", [Layer(0, 1, tokens=None)], texts=None)
        self.assertIn("layers.0: second: expected q_len 9 as the first attention has, got 7",
                      self.fail_with(2, "diff", untold, plain))

    def test_misuse(self):
        path, _ = self.record()
        self.assertIn("expected two RECORDINGs, got 1", self.fail_with(2, "diff", path))
        self.assertIn("expected two RECORDINGs, got 3", self.fail_with(2, "diff", path, path, path))
        self.assertIn("got --layer 9", self.fail_with(2, "diff", path, path, "--layer", "9"))
        self.assertIn("--output: expected a name that ends in", self.fail_with(2, "diff", path, path, "--output", "d.txt"))


class RolloutTest(RecordingTest):
    def test_matches_the_definition(self):
        path, layers = self.record()
        for query, residual in ((LENGTH - 1, 0.5), (4, 0.25)):
            shares = [float(token == query) for token in range(LENGTH)]
            for layer in reversed(layers):
                heads = [layer.weights(head) for head in range(HEADS)]
                shares = [residual * shares[j] + (1 - residual) * sum(
                    shares[i] * heads[h][i][j] for h in range(HEADS) for i in range(LENGTH)) / HEADS
                          for j in range(LENGTH)]
            file = self.dir / "rollout.npy"
            self.succeed("rollout", path, "--query", str(query), "--residual", str(residual), "--output", str(file))
            (found,) = read_arrays(file).values()
            self.assertEqual(found.shape, (3, LENGTH))
            for token, share in enumerate(shares):
                self.assertAlmostEqual(found.at(0, token), share, delta=1e-5)

    def test_outputs(self):
        path, _ = self.record()
        text = self.succeed("rollout", path, "--top", "4")
        self.assertIn('Rollout of token 8 " cat" in ', text)
        self.assertIn("and 5 more with ", text)
        told = json.loads(self.succeed("rollout", path, "--query", "3", "--json"))
        self.assertEqual(told["tokens"], TOKENS)
        self.assertAlmostEqual(sum(told["layers"][0]["shares"]), 1.0, delta=1e-6)
        self.assertEqual(told["layers"][0]["shares"][4:], 5 * [0.0])
        for name in ("r.csv", "r.json", "r.svg", "r.html", "r.png"):
            said = self.succeed("rollout", path, "--output", str(self.dir / name))
            self.assertIn("rollout  3 layers, 9 tokens, written to ", said)
        self.assertIn("&lt;b&gt;The&lt;/b&gt;", (self.dir / "r.svg").read_text())
        self.assertNotIn("\u202e", (self.dir / "r.html").read_text())

    def test_shares_that_nothing_takes(self):
        """Padding sees no key, so that a token of it keeps only what the layers pass on unchanged."""
        mask = {"mask": {"all": [{"causal": True}, {"documents": {"query": [0] * LENGTH, "key": [-1, -1] + [0] * 7}}]}}
        padded = [Layer(i, i, options=mask, visible=lambda b, h, i, j: 2 <= j <= i) for i in range(2)]
        path, _ = self.record("padded.safetensors", padded)
        self.assertIn("\nqueries that see no key take 0.7500\n", self.succeed("rollout", path, "--query", "1"))
        self.assertNotIn("take", self.succeed("rollout", path, "--query", "5"))
        sinks = {"mask": {"causal": True}, "score": {"sinks": [1.0] * HEADS}}
        layer = Layer(0, 1, options=sinks)
        layer.lse.values = [lse + math.log(2) for lse in layer.lse.values]  # of sinks as large as all keys together
        path, _ = self.record("sinks.safetensors", [layer])
        self.assertIn("\nsinks and queries that see no key take 0.2500\n", self.succeed("rollout", path))

    def test_nan_is_told_and_ranks_last(self):
        layers = [Layer(i, i + 1, options={"mask": {"all": [{"causal": True}, {"window": [1, 0]}]}})
                  for i in range(2)]
        place = layers[0].query.shape[3] * 7  # query 7 of the first head, in the first layer
        layers[0].query.values[place] = math.nan
        path, _ = self.record("nan.safetensors", layers)
        text = self.succeed("rollout", path)
        shares = [float(share) for share in re.findall(r"(?m)^ +\d+ .* (0\.\d{4})", text)]
        self.assertTrue(shares)
        self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertIn("with nan: a score of a layer is nan or inf\n", text)
        self.assertNotIn("take", text)

    def test_the_picture_has_labels(self):
        path, _ = self.record()
        file = self.dir / "r.png"
        self.succeed("rollout", path, "--output", str(file))
        image = Png(file.read_bytes())
        colors = [[image.palette[place] for place in row] for row in image.rows]
        paper, ink, step, margin = (0xFF, 0xFF, 0xFF), (0x3A, 0x42, 0x51), 56, 24
        top = image.height - margin - 3 * step
        left = image.width - margin - LENGTH * step
        self.assertEqual((colors[top - 1][left], colors[top][left - 1]), (paper, paper))
        self.assertNotIn(colors[top][left], (paper, ink))

        def has_ink(rows, columns):
            return any(colors[row][column] == ink for row in rows for column in columns)

        # Each column and each row of cells has a label, and both axes a title.
        for token in range(LENGTH):
            self.assertTrue(has_ink(range(50, top), range(left + token * step, left + (token + 1) * step - 2)))
        for layer in range(3):
            self.assertTrue(has_ink(range(top + layer * step, top + (layer + 1) * step - 2), range(left)))
        self.assertTrue(has_ink(range(margin, 40), range(left, left + 60)))
        self.assertTrue(has_ink(range(50, top), range(left)))

    def test_misuse(self):
        path, _ = self.record()
        self.assertIn("expected a RECORDING", self.fail_with(2, "rollout"))
        self.assertIn("--query: expected a number below 9, as there are that many tokens, got 9",
                      self.fail_with(2, "rollout", path, "--query", "9"))
        self.assertIn("--residual: expected a number from 0 to 1, got 2",
                      self.fail_with(2, "rollout", path, "--residual", "2"))
        self.assertIn("expected a kind that was recorded, layers 0 to 2, got --kind encoder",
                      self.fail_with(2, "rollout", path, "--kind", "encoder"))
        both, _ = self.record("both.safetensors", [Layer(0, 1, name="e", kind="encoder"), Layer(0, 2, name="d", kind="decoder")])
        self.assertIn("expected --kind with one stack of layers, encoder or decoder, got layer 0 of encoder, decoder", self.fail_with(2, "rollout", both))
        self.succeed("rollout", both, "--kind", "decoder")
        towers, _ = self.record("towers.safetensors", [Layer(0, 1, name="words.0"), Layer(0, 2, name="image.0")])
        self.assertIn("layers: expected each layer of one stack once, got layer 0 twice: words.0, image.0",
                      self.fail_with(2, "rollout", towers))


if __name__ == "__main__":
    unittest.main()
