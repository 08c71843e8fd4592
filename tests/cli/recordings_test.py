# SPDX-License-Identifier: Apache-2.0
"""Commands that read recordings: `inspect`, `map`, `tile`, `attend` and `heads`."""

import csv
import io
import json
import math
import statistics
import unittest

from map_problem import Png
from recordings import DIM, HEADS, IDS, LENGTH, TOKENS, VALUE_DIM, Layer, RecordingTest
from support import environment
from tensor_files import Array, attention, read_arrays

# Arguments after the recording, and parts of the message. {R} is the recording.
MISUSE = [
    ("map {R}", "{R}: expected --layer N for one of the layers 0 to 2"),
    ("map {R} --layer 7", "{R}: expected a layer that was recorded, layers 0 to 2, got --layer 7"),
    ("map {R} --layer 0 --kind cross", "expected a layer that was recorded, layers 0 to 2, got --layer 0 --kind cross"),
    ("map {R} --attention layers.9",
     "expected an attention that was recorded, layers.0, layers.1, layers.2, got --attention layers.9"),
    ("map {R} --layer 0 --head 4", "--head: expected a number below 4, as there are that many heads of queries, got 4"),
    ("map {R} --layer 0 --batch 1", "--batch: expected a number below 1"),
    ("map {R} --layer 0 --causal", "--causal: expected no tensors, masks or scores beside the recording"),
    ("map {R} --layer 0 --query q.npy", "--query: expected no tensors, masks or scores beside the recording"),
    ("heads {R} --dtype f32", "--dtype: expected no tensors, masks or scores beside the recording"),
    ("map --layer 0", "--layer goes with a RECORDING"),
    ("map {R} --layer x", '--layer: expected a whole number from 0 to'),
    ("map {R} --layer 0 --values --head mean", "--values goes with one head"),
    ("map --query q.npy --key q.npy --values", "--values goes with a RECORDING"),
    ("attend {R} --layer 0", "nothing to do: expected --output, --lse, --verify or --json"),
    ("tile words.txt --layer 0", "words.txt: expected an .npy, .npz or .safetensors file"),
    ("heads other.safetensors", "other.safetensors"),
    ("heads {R} --sort size", "--sort: expected one of share,"),
    ("heads {R} {R} --output heads.png", "--output: expected a name that ends in .json or .csv for several recordings"),
    ("heads {R} --output heads.txt", "--output: expected a name that ends in .json, .csv, .png, .svg or .html"),
]


class RecordingsTest(RecordingTest):
    def test_inspect(self):
        path, _ = self.record()
        text = self.succeed("inspect", path)
        self.assertRegex(text, r"recording, 3 attentions, .* kB\n")
        for line in ("model      a model", "source     a text", "written by a test"):
            self.assertIn(line + "\n", text)
        self.assertRegex(text, r"(?m)^0 to 2 +.* self +1 +4 +2 +9 +9 +6 +3  float32  causal\(\)  scale 0\.408248$")
        self.assertIn('9 tokens  "<b>The</b>" " cat" "\\x1b[31mred" "\\u202eabc"', text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\u202e", text)
        told = json.loads(self.succeed("inspect", path, "--json"))
        self.assertEqual([a["name"] for a in told["attentions"]], ["layers.0", "layers.1", "layers.2"])
        self.assertEqual(told["attentions"][1]["heads"], [0, 1, 2, 3])
        self.assertEqual(told["tokens"], [{"name": "text", "count": LENGTH, "ids": True}])
        # The tensors, as of any other file.
        self.assertIn("layers.1.query", self.succeed("inspect", path, "--tensors"))
        self.assertIn("layers.1.query", self.succeed("inspect", path, "--names"))
        self.assertIn("float32", self.succeed("inspect", path + ":layers.1.key"))

    def test_tile_has_the_weights_and_tokens(self):
        path, layers = self.record()
        file = self.dir / "tile.npy"
        for head in range(HEADS):
            self.succeed("tile", path, "--layer", "1", "--head", str(head), "--output", str(file))
            (tile,) = read_arrays(file).values()
            for i, row in enumerate(layers[1].weights(head)):
                for j, weight in enumerate(row):
                    self.assertAlmostEqual(tile.at(i, j), weight, delta=2e-6)
        text = self.succeed("tile", path, "--layer", "1", "--rows", "2:4", "--cols", ":3", env=environment(COLUMNS="90"))
        self.assertEqual(text.splitlines()[1].split(), ["<b>The</b>", "cat", "\\x1b[31mred"])
        weight = layers[1].weights(0)[3][2]
        self.assertRegex(text, rf"(?m)^3 +\\u202eabc  .*{weight:.5f}")
        narrow = self.succeed("tile", path, "--layer", "1", env=environment(COLUMNS="60"))
        self.assertLessEqual(max(map(len, narrow.splitlines())), 60)
        self.assertIn("...", narrow)

    def test_map_labels_axes_and_pools_weights(self):
        path, layers = self.record()
        file = self.dir / "map.npy"
        self.succeed("map", path, "--layer", "2", "--head", "3", "--size", "3x3", "--reduce", "sum", "--output", str(file))
        (cells,) = read_arrays(file).values()
        weights = layers[2].weights(3)
        for row in range(3):
            for column in range(3):
                expected = sum(weights[i][j] for i in range(3 * row, 3 * row + 3)
                               for j in range(3 * column, 3 * column + 3))
                self.assertAlmostEqual(cells.at(row, column), expected, delta=1e-5)
        page = self.dir / "map.html"
        self.succeed("map", path, "--layer", "2", "--output", str(page))
        text = page.read_text()
        self.assertIn("Attention of layers.2 of ", text)
        self.assertIn("a model, a text", text)
        self.assertIn("&lt;b&gt;The&lt;/b&gt;", text)
        self.assertNotIn("<b>The", text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\u202e", text)
        stats = self.dir / "stats.json"
        self.succeed("map", path, "--layer", "2", "--stats", str(stats), "--top", "1")
        rows = json.loads(stats.read_text())["rows"]
        self.assertEqual([row["token"] for row in rows], TOKENS)
        shown = self.succeed("map", path, "--layer", "2")
        self.assertIn("\\x1b[31mred", shown)
        self.assertNotIn("\x1b", shown)

    def test_map_of_values(self):
        path, layers = self.record()
        file = self.dir / "map.npy"
        self.succeed("map", path, "--layer", "0", "--head", "2", "--values", "--reduce", "sum", "--output", str(file))
        (cells,) = read_arrays(file).values()
        layer = layers[0]
        for i, row in enumerate(layer.weights(2)):
            for j, weight in enumerate(row):
                norm = math.sqrt(sum(layer.value.at(0, 1, j, c)**2 for c in range(VALUE_DIM)))
                self.assertAlmostEqual(cells.at(i, j), weight * norm, delta=1e-5)
        without, _ = self.record("without.safetensors", [Layer(0, 1, values=False)])
        self.assertIn("expected an attention that was recorded with values, got layers.0, which has none",
                      self.fail_with(2, "map", without, "--layer", "0", "--values"))

    def test_attend(self):
        path, layers = self.record()
        out = self.dir / "context.npy"
        text = self.succeed("attend", path, "--layer", "1", "--output", str(out), "--verify")
        self.assertRegex(text, r"(?m)^mask +causal\(\)$")
        (context,) = read_arrays(out).values()
        for got, expected in zip(context.values, layers[1].context.values, strict=True):
            self.assertAlmostEqual(got, expected, delta=1e-5)
        without, _ = self.record("without.safetensors", [Layer(0, 1, values=False)])
        self.assertIn("expected values, which a context needs, got layers.0 without",
                      self.fail_with(2, "attend", without, "--layer", "0", "--json"))

    def test_masks_of_rules(self):
        """A mask that no options of the command line express."""
        def visible(_b, _h, i, j):
            return j <= i and (i - j <= 2 or j < 1)
        options = {"mask": {"all": [{"causal": True}, {"any": [{"window": [2, 0]}, {"prefix": 1}]}]}}
        path, layers = self.record("rules.safetensors", [Layer(0, 4, options=options, visible=visible)])
        file = self.dir / "tile.npy"
        self.succeed("tile", path, "--head", "1", "--output", str(file))  # the only attention
        (tile,) = read_arrays(file).values()
        for i, row in enumerate(layers[0].weights(1)):
            for j, weight in enumerate(row):
                self.assertAlmostEqual(tile.at(i, j), weight, delta=2e-6)
        self.assertIn("causal() & (window(2, 0) | prefix(1))", self.succeed("map", path))

    def test_some_heads(self):
        path, layers = self.record("some.safetensors", [Layer(5, 2, heads=[3, 8])])
        file = self.dir / "tile.npy"
        self.succeed("tile", path, "--layer", "5", "--head", "8", "--output", str(file))
        (tile,) = read_arrays(file).values()
        self.assertAlmostEqual(tile.at(4, 2), layers[0].weights(1)[4][2], delta=2e-6)
        self.assertIn(", head 8, 2 recorded; ", self.succeed("map", path, "--layer", "5", "--head", "8"))
        self.assertIn("--head: expected a head that was recorded, 3, 8, got 1",
                      self.fail_with(2, "map", path, "--layer", "5", "--head", "1"))
        heads = json.loads(self.succeed("heads", path, "--json"))["heads"]
        self.assertEqual([head["head"] for head in heads], [3, 8])

    def test_kinds(self):
        layers = [Layer(0, 1, name="encoder.0", kind="encoder", options={}, visible=lambda *_: True),
                  Layer(0, 2, name="decoder.0", kind="decoder"),
                  Layer(0, 3, name="cross.0", kind="cross", options={}, visible=lambda *_: True)]
        path, layers = self.record("both.safetensors", layers)
        self.assertIn("expected --kind with one of encoder, decoder, cross, as layer 0 has each",
                      self.fail_with(2, "map", path, "--layer", "0"))
        file = self.dir / "tile.npy"
        self.succeed("tile", path, "--layer", "0", "--kind", "cross", "--output", str(file))
        (tile,) = read_arrays(file).values()
        self.assertAlmostEqual(tile.at(1, 6), layers[2].weights(0)[1][6], delta=2e-6)
        found = json.loads(self.succeed("heads", path, "--json"))["heads"]
        self.assertEqual([head["kind"] for head in found], 4 * ["encoder"] + 4 * ["decoder"] + 4 * ["cross"])
        # Queries and keys of cross attention are different tokens.
        self.assertIsNone(found[-1]["induction"])
        self.assertIsNotNone(found[4]["induction"])
        self.assertRegex(self.succeed("heads", path), r"(?m)^ +0  cross +3 ")

    def test_heads_of_all_layers(self):
        path, layers = self.record()
        found = json.loads(self.succeed("heads", path, "--json"))
        self.assertEqual([(h["layer"], h["head"]) for h in found["heads"]],
                         [(layer, head) for layer in range(3) for head in range(HEADS)])
        self.assertEqual(found["model"], "a model")
        for head in found["heads"]:
            weights = layers[head["layer"]].weights(head["head"])
            first = sum(row[0] for row in weights) / LENGTH
            self.assertAlmostEqual(head["first_key"], first, delta=1e-5)
            repeated, duplicate, induction = 0, 0.0, 0.0
            for i, row in enumerate(weights):
                earlier = [j for j in range(i) if IDS[j] == IDS[i]]
                repeated += bool(earlier)
                duplicate += sum(row[j] for j in earlier)
                induction += sum(row[j + 1] for j in earlier)
            self.assertAlmostEqual(head["duplicate"], duplicate / repeated, delta=1e-5)
            self.assertAlmostEqual(head["induction"], induction / repeated, delta=1e-5)
        self.assertRegex(self.succeed("heads", path), r"(?m)^layer +head +entropy .* induction ")
        self.assertEqual(len(json.loads(self.succeed("heads", path, "--layer", "1", "--json"))["heads"]), HEADS)
        ordered = json.loads(self.succeed("heads", path, "--sort", "induction", "--top", "5", "--json"))["heads"]
        numbers = sorted((h["induction"] for h in found["heads"]), reverse=True)[:5]
        self.assertEqual([h["induction"] for h in ordered], numbers)
        file = self.dir / "heads.csv"
        self.succeed("heads", path, "--output", str(file))
        rows = list(csv.DictReader(io.StringIO(file.read_text())))
        self.assertEqual([row["attention"] for row in rows[::HEADS]], ["layers.0", "layers.1", "layers.2"])
        self.assertAlmostEqual(float(rows[5]["induction"]), found["heads"][5]["induction"], delta=1e-7)
        # Without ids, equal texts are equal tokens.
        texts, _ = self.record("texts.safetensors", ids=None)
        self.assertEqual([h["induction"] for h in json.loads(self.succeed("heads", texts, "--json"))["heads"]],
                         [h["induction"] for h in found["heads"]])
        without, _ = self.record("without.safetensors", [Layer(0, 1, tokens=None)], texts=None)
        self.assertIn("--sort: induction needs a recording with tokens, some of which are repeated",
                      self.fail_with(2, "heads", without, "--sort", "induction"))
        self.assertNotIn("induction", self.succeed("heads", without))

    def test_name_of_an_induction_head(self):
        """Keys carry the token before them, queries their own."""
        layer = Layer(0, 1, heads=[0])
        ids = [1, 2, 3, 1, 2, 3, 1, 2, 3]
        own = [[16.0 * (c == ids[i] - 1) for c in range(DIM)] for i in range(LENGTH)]
        earlier = [[0.0] * DIM, *own][:LENGTH]
        layer.query = Array((1, 1, LENGTH, DIM), [x for row in own for x in row])
        layer.key = Array((1, 1, LENGTH, DIM), [x for row in earlier for x in row])
        lse = attention(layer.query, layer.key, layer.value, layer.visible)[1].as_type("float32")
        layer.tensors.update({"layers.0.query": layer.query, "layers.0.key": layer.key, "layers.0.lse": lse})
        path, _ = self.record("induction.safetensors", [layer], ids=ids)
        (head,) = json.loads(self.succeed("heads", path, "--json"))["heads"]
        self.assertEqual(head["name"], "induction")
        self.assertAlmostEqual(head["induction"], 1.0, delta=1e-5)

    def test_tables_of_recordings_fit_the_width(self):
        path, _ = self.record()
        for width in range(60, 161, 10):
            for arguments in ([path], [path, path], [path, "--sort", "duplicate"]):
                text = self.succeed("heads", *arguments, env=environment(COLUMNS=str(width)))
                table = text.split("\n\n")[1].splitlines()
                self.assertEqual(len(table), 1 + 3 * HEADS)
                self.assertLessEqual(max(map(len, table)), width, arguments)

    def test_pictures_of_heads(self):
        path, _ = self.record()
        for name in ("heads.png", "heads.svg", "heads.html"):
            said = self.succeed("heads", path, "--output", str(self.dir / name))
            self.assertIn("heads  12, written to ", said)
        image = Png((self.dir / "heads.png").read_bytes())
        self.assertIn(("Title", "Heads of a model"), image.texts)
        self.assertGreater(image.width, 4 * 48)
        self.assertGreater(image.height, 3 * 48)
        for name in ("heads.svg", "heads.html"):
            text = (self.dir / name).read_text()
            self.assertIn("prefers-color-scheme", text)
            self.assertEqual(text.count("class=\"ground\""), 12)
            self.assertEqual(text.count("<image"), 1)
            self.assertNotIn("http://", text.replace("http://www.w3.org/2000/svg", ""))
        self.assertIn("layer 2, head 3", (self.dir / "heads.html").read_text())
        # Also without a recording.
        arrays = self.dir / "one.svg"
        self.succeed("heads", "--query", path + ":layers.0.query", "--key", path + ":layers.0.key", "--output", str(arrays))
        self.assertEqual(arrays.read_text().count("class=\"ground\""), HEADS)

    def test_heads_over_many_texts(self):
        paths, firsts = [], []
        for number in range(4):
            layers = [Layer(i, 10 * number + i, batch=1 + number % 2) for i in range(2)]
            path, _ = self.record(f"{number}.safetensors", layers)
            paths.append(path)
            for batch in range(1 + number % 2):
                firsts.append(sum(row[0] for row in layers[1].weights(2, batch)) / LENGTH)
        report = json.loads(self.succeed("heads", *paths, "--json"))
        self.assertEqual(report["recordings"], paths)
        self.assertEqual([(h["layer"], h["head"]) for h in report["heads"]],
                         [(layer, head) for layer in range(2) for head in range(HEADS)])
        head = report["heads"][HEADS + 2]
        self.assertEqual(head["count"], 6)
        self.assertAlmostEqual(head["first_key"]["median"], statistics.median(firsts), delta=1e-5)
        lower, _, upper = statistics.quantiles(firsts, n=4, method="inclusive")
        self.assertAlmostEqual(head["first_key"]["lower"], lower, delta=1e-5)
        self.assertAlmostEqual(head["first_key"]["upper"], upper, delta=1e-5)
        text = self.succeed("heads", *paths)
        self.assertIn("Heads of a model over 4 recordings", text)
        self.assertIn(f"{statistics.median(firsts):.2f}±", text)
        ordered = json.loads(self.succeed("heads", *paths, "--sort", "first", "--json"))["heads"]
        medians = [h["first_key"]["median"] for h in ordered]
        self.assertEqual(medians, sorted(medians, reverse=True))
        file = self.dir / "spread.csv"
        self.succeed("heads", *paths, "--output", str(file))
        rows = list(csv.DictReader(io.StringIO(file.read_text())))
        self.assertEqual([row["count"] for row in rows], 8 * ["6"])
        layer = Layer(0, 1, heads=[0])
        del layer.entry["heads"]
        fewer, _ = self.record("fewer.safetensors", [layer])
        self.assertIn(f"layers.0: expected {HEADS} heads of dimension {DIM}, as in a recording before it, got 1 of {DIM}",
                      self.fail_with(2, "heads", paths[0], fewer))
        other, _ = self.record("other.safetensors", model="another")
        self.assertIn('expected a recording of the model "a model" as ', self.fail_with(2, "heads", paths[0], other))

    def test_misuse(self):
        path, _ = self.record()
        self.write("words.txt", "words")
        self.write("other.safetensors", (self.dir / "run.safetensors").read_bytes()[:-100])
        for arguments, *parts in MISUSE:
            words = [word.replace("{R}", path).replace("words.txt", str(self.dir / "words.txt"))
                     .replace("other.safetensors", str(self.dir / "other.safetensors")) for word in arguments.split()]
            message = self.fail_with(2, *words)
            for part in parts:
                self.assertIn(part.replace("{R}", path), message, arguments)

    def test_no_attention(self):
        path, _ = self.record("none.safetensors", [])
        self.assertIn("recording, 0 attentions", self.succeed("inspect", path))
        for command in ("map", "tile", "heads"):
            self.assertIn("expected attentions, got a recording without any", self.fail_with(2, command, path))

    def test_newer_version(self):
        path, _ = self.record("newer.safetensors", version="2")
        self.assertIn("expected version 1, got version 2", self.fail_with(2, "map", path, "--layer", "0"))

    def test_dim(self):
        path, _ = self.record()
        self.assertEqual(json.loads(self.succeed("inspect", path, "--json"))["attentions"][0]["head_dim"], DIM)


if __name__ == "__main__":
    unittest.main()
