# SPDX-License-Identifier: Apache-2.0
"""`fovea map`: values compared with the formula, each kind of output, and errors."""

import csv
import json
import math
import re
import signal
import subprocess
import time
import unittest
import xml.etree.ElementTree as ElementTree

from attend_problem import BATCH, DIM, HEADS, KV_LEN, Q_LEN, problem
from map_problem import MapTest, as_it_is, causal, row_weights
from support import FOVEA, TIMEOUT_S, CliTest, await_handler, default_signals, environment, run
from tensor_files import Array


class NumbersTest(MapTest):
    """Complete and partial maps of the first and last head of each batch item, compared with the formula."""

    PARTS = [{}, {"rows": (1, 4)}, {"cols": (2, 6)}, {"rows": (2, 5), "cols": (0, 5)}]

    def check_all(self, arrays, *options, **oracle):
        for batch in range(BATCH):
            for head in (0, HEADS - 1):
                for part in self.PARTS:
                    self.check(arrays, options, batch, head, **part, **oracle)

    def test_plain_and_causal(self):
        self.check_all(problem())
        self.check_all(problem(), "--causal", visible=causal)

    def test_alibi_and_sinks_per_head(self):
        slopes, sinks = [0.5, 0.25, 0.1, 1.5], [0.5, -1, 0, 2]
        self.check_all(problem(), "--alibi", "0.5,0.25,0.1,1.5", "--sinks", "0.5,-1,0,2", sinks=sinks,
                       score=lambda at, s: s - slopes[at[1]] * abs(at[2] + KV_LEN - Q_LEN - at[3]))

    def test_masks_and_biases_per_head_and_row(self):
        bias = Array.normal((HEADS, Q_LEN, KV_LEN), 8)
        mask = Array((BATCH, 1, Q_LEN, KV_LEN), [n % 3 > 0 for n in range(BATCH * Q_LEN * KV_LEN)], "bool")
        ids = Array((BATCH, Q_LEN), [0, 0, 1, 1, 2, 0, 1, 1, 1, 1], "int64")
        key_ids = Array((BATCH, KV_LEN), [0, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 1], "int64")
        self.check_all(problem(), "--bias", self.write_array("bias.npy", bias),
                       score=lambda at, s: s + bias.broadcast(*at))
        self.check_all(problem(), "--mask", self.write_array("mask.npy", mask),
                       visible=lambda *at: mask.broadcast(*at))
        names = ",".join(self.write_array(*each) for each in (("ids.npy", ids), ("key_ids.npy", key_ids)))
        self.check_all(problem(), "--documents", names,
                       visible=lambda b, h, i, j: ids.at(b, i) == key_ids.at(b, j))

    def test_positions_per_item_and_row(self):
        lengths, offsets = [5, 7], [0, 3]
        self.check_all(problem(), "--causal", "--key-lengths", "5,7",
                       visible=lambda b, h, i, j: j <= i + lengths[b] - Q_LEN and j < lengths[b])
        self.check_all(problem(), "--window", "2,0", "--alignment", "0,3",
                       visible=lambda b, h, i, j: 0 <= i + offsets[b] - j <= 2)

    def test_float64(self):
        self.check(problem(), ["--dtype", "f64", "--causal"], 1, 2, visible=causal, rows=(1, 3))

    def test_sums_equal_the_query_count(self):
        arrays = {"query": Array.normal((300, 8), 1), "key": Array.normal((300, 8), 2)}
        for size in ([], ["--size", "7x11"], ["--size", "1x1"], ["--size", "300x1"]):
            cells = self.cells(*self.qk(arrays), "--causal", "--reduce", "sum", *size)
            self.assertAlmostEqual(math.fsum(cells.values), 300, delta=1e-3, msg=size)
        self.assertEqual(self.cells(*self.qk(arrays), "--size", "7x11").shape, (11, 7))

    def test_mean_and_max_match_the_weights(self):
        options = [*self.qk(self.square()), "--causal"]
        weights = self.cells(*options, "--reduce", "sum")
        mean = self.cells(*options, "--size", "4x3")
        largest = self.cells(*options, "--size", "4x3", "--reduce", "max")
        for r in range(3):
            for c in range(4):
                pairs = [weights.at(i, j) for i in range(4 * r, 4 * r + 4) for j in range(3 * c, 3 * c + 3) if j <= i]
                if pairs:
                    self.assertAlmostEqual(mean.at(r, c), math.fsum(pairs) / len(pairs), delta=1e-6)
                    self.assertAlmostEqual(largest.at(r, c), max(pairs), delta=1e-6)
                else:
                    self.assertTrue(math.isnan(mean.at(r, c)))
                    self.assertEqual(largest.at(r, c), 0)

    def test_values_are_optional_and_ignored(self):
        arrays = problem()
        whole = self.cells("--input", self.input_file(arrays))
        value = arrays.pop("value")
        self.assertEqual(self.cells("--input", self.input_file(arrays)).values, whole.values)
        self.assertEqual(self.cells(*self.qk(arrays), "--value", self.write_array("v.npy", value)).values,
                         whole.values)

    def test_result_is_independent_of_threads_and_layout(self):
        arrays = problem()
        whole = self.cells("--input", self.input_file(arrays), "--head", "2")
        turned = {name: array.exchanged(1, 2) for name, array in arrays.items()}
        self.assertEqual(self.cells("--input", self.input_file(turned), "--head", "2", "--layout", "blhd",
                                    "--threads", "1").values, whole.values)


class StatisticsTest(MapTest):
    def stats(self, name, *options):
        path = self.dir / name
        self.succeed("map", *options, "--stats", str(path), "--output", str(self.dir / "map.npy"))
        return path.read_text(encoding="utf-8")

    def test_json_matches_the_weights(self):
        arrays = problem()
        told = json.loads(self.stats("s.json", *self.qk(arrays), "--causal", "--batch", "1", "--head", "3",
                                     "--rows", "1:4", "--cols", "0:2", "--top", "2"))
        self.assertEqual((told["batch"], told["head"]), (1, 3))
        self.assertEqual([row["query"] for row in told["rows"]], [1, 2, 3])
        for row in told["rows"]:
            i = row["query"]
            weights = row_weights(arrays, 1, 3, i, causal, as_it_is)
            order = sorted(weights, key=weights.get, reverse=True)
            entropy = -sum(w * math.log(w) for w in weights.values())
            mean = sum(w * (i + 2 - j) for j, w in weights.items())
            variance = sum(w * (i + 2 - j - mean) ** 2 for j, w in weights.items())
            for name, right in (("entropy", entropy), ("effective_keys", math.exp(entropy)),
                                ("maximum", weights[order[0]]), ("mean_distance", mean),
                                ("distance_variance", variance), ("first_key", weights[0])):
                self.assertAlmostEqual(row[name], right, delta=2e-5 * max(1, right), msg=(i, name))
            self.assertEqual(row["maximum_key"], order[0])
            self.assertEqual([top["key"] for top in row["top"]], order[:2])

    def test_csv_matches_json(self):
        options = [*self.qk(self.square()), "--causal", "--top", "2",
                   "--tokens", self.write("t.txt", '"a"\n' + ",\n" + "".join(f"w{i}\n" for i in range(10)))]
        rows = list(csv.DictReader(self.stats("s.csv", *options).splitlines()))
        told = json.loads(self.stats("s.json", *options))["rows"]
        self.assertEqual(len(rows), 12)
        self.assertEqual([row["token"] for row in rows[:3]], ['"a"', ",", "w0"])
        for row, right in zip(rows, told):
            self.assertEqual(row["token"], right["token"])
            for name in ("entropy", "effective_keys", "maximum", "mean_distance", "first_key"):
                self.assertAlmostEqual(float(row[name]), right[name], delta=1e-7)
            self.assertEqual(int(row["key_1"]), right["top"][0]["key"])
        # Only one key is visible to the first query.
        self.assertEqual((rows[0]["key_2"], rows[0]["weight_2"], len(told[0]["top"])), ("", "", 1))

    def test_fully_masked_query(self):
        options = [*self.qk(), "--window", "0,0", "--alignment", "5"]
        row = json.loads(self.stats("s.json", *options))["rows"][4]
        self.assertEqual((row["effective_keys"], row["maximum"], row["maximum_key"], row["mean_distance"]),
                         (0, 0, None, None))
        row = list(csv.DictReader(self.stats("s.csv", *options).splitlines()))[4]
        self.assertEqual((row["maximum_key"], row["mean_distance"]), ("", "nan"))


class PictureTest(MapTest):
    def test_png_cells_and_metadata(self):
        png = self.png(*self.qk(self.square()), "--causal", "--tone", "linear")
        self.assertEqual((png.width, png.height), (12, 12))
        for r in range(12):
            for c in range(12):
                self.assertEqual(png.color(r, c)[3], 255 if c <= r else 0, (r, c))
        self.assertEqual(png.color(0, 0)[:3], (0xfd, 0xe7, 0x25))  # weight 1, the maximum
        texts = dict(png.texts)
        self.assertEqual(texts["Title"], f"Attention of {self.dir}/q.npy to {self.dir}/k.npy")
        self.assertRegex(texts["Software"], r"\Afovea \d")
        self.assertEqual((texts["fovea:queries"], texts["fovea:keys"], texts["fovea:reduce"]),
                         ("0:12", "0:12", "mean"))
        self.assertEqual((texts["fovea:tone"], texts["fovea:colormap"], texts["fovea:range"]),
                         ("linear", "viridis", "0 1"))
        self.assertIn(("Description", "mask: causal; scores: scale 0.353553"), png.texts)

    def test_brightness_is_monotonic_in_every_tone(self):
        options = self.qk(self.square())
        weights = self.cells(*options).values
        for tone in ("linear", "sqrt", "log"):
            png = self.png(*options, "--colormap", "grey", "--tone", tone)
            greys = [png.color(r, c)[0] for r in range(12) for c in range(12)]
            order = sorted(range(144), key=weights.__getitem__)
            self.assertEqual([greys[i] for i in order], sorted(greys), tone)
            self.assertEqual(max(greys), 255, tone)
            largest = max(weights)
            if tone != "log":
                for grey, weight in zip(greys, weights):
                    share = weight / largest
                    self.assertAlmostEqual(grey / 255, share if tone == "linear" else share**0.5, delta=0.005)

    def test_nan_has_its_own_colour(self):
        arrays = self.square()
        arrays["query"].values[3 * 8] = math.nan
        for colors, right in (("viridis", (255, 45, 85)), ("magma", (0, 214, 163)), ("cividis", (255, 45, 85)),
                              ("grey", (255, 45, 85))):
            png = self.png(*self.qk(arrays), "--causal", "--colormap", colors)
            self.assertEqual([png.color(3, c) for c in range(5)], [(*right, 255)] * 4 + [(228, 228, 228, 0)])
            self.assertNotEqual(png.color(4, 0)[:3], right)

    def test_svg_is_well_formed_and_labelled(self):
        tokens = ["<s>", "a & b", "\u202eevil", "日本"] + [f"w{i}" for i in range(8)]
        options = [*self.qk(self.square()), "--causal", "--tokens", self.write("t.txt", "\n".join(tokens))]
        root = ElementTree.fromstring(self.map(*options, output="map.svg").read_text(encoding="utf-8"))
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for word in ("<s>", "a & b", "日本", "w7"):
            self.assertEqual(texts.count(word), 2, word)  # on both axes
        self.assertEqual((texts.count("query"), texts.count("key"), texts.count("masked")), (1, 1, 1))
        self.assertNotIn("\u202e", "".join(text or "" for text in texts))
        self.assertIn("1", texts)  # the maximum, next to the colour bar

    def test_svg_embeds_an_image_for_many_cells(self):
        arrays = {"query": Array.normal((60, 4), 1), "key": Array.normal((70, 4), 2)}
        text = self.map(*self.qk(arrays), output="map.svg").read_text()
        ElementTree.fromstring(text)
        self.assertEqual(text.count("data:image/png;base64,iVBORw0KGgo"), 1)
        self.assertLess(text.count("<rect"), 20)

    def test_page_is_self_contained(self):
        options = [*self.qk(self.square()), "--causal",
                   "--tokens", self.write("t.txt", "</script>\n" * 12)]
        page = self.map(*options, output="map.html").read_text(encoding="utf-8")
        self.assertEqual(page.count("</script>"), 1)
        self.assertEqual(re.findall(r'(?:src|href)="(?!data:)', page), [])
        self.assertNotIn("http://", page.replace("http://www.w3.org/2000/svg", ""))
        self.assertIn("prefers-color-scheme:dark", page)
        self.assertIn("rows: 12, columns: 12, queries: [0,12], keys: [0,12]", page)

    def test_output_is_deterministic(self):
        for output in ("a.png", "a.svg", "a.html"):
            first = self.map(*self.qk(), output=output).read_bytes()
            self.assertEqual(self.map(*self.qk(), "--threads", "1", output=output).read_bytes(), first)

    def test_extreme_aspect_ratios(self):
        for queries, keys in ((1, 1), (1, 500), (500, 1), (3, 2000)):
            arrays = {"query": Array.normal((queries, 2), 1), "key": Array.normal((keys, 2), 2)}
            png = self.png(*self.qk(arrays))
            self.assertEqual((png.width, png.height), (min(keys, 1024), queries))
            for output in ("map.svg", "map.html"):
                text = self.map(*self.qk(arrays), output=output).read_text()
                self.assertNotRegex(text, r'="-?(?:nan|inf)')
            self.succeed("map", *self.qk(arrays), env=environment(COLUMNS="70"))


class TerminalTest(MapTest):
    def test_small_map_in_shades(self):
        lines = self.succeed("map", *self.qk(self.square()), "--causal",
                             "--tokens", self.write("t.txt", "".join(f"w{i}\r\n" for i in range(12)))).splitlines()
        rows = [line for line in lines if re.match(r"\d+ w\d", line)]
        self.assertEqual(len(rows), 12)
        self.assertEqual(rows[0], "0 w0".ljust(18) + "██" + "·" * 22)
        self.assertEqual([row.count("·") for row in rows], [2 * (11 - i) for i in range(12)])

    def test_large_map_fits_the_terminal(self):
        arrays = {"query": Array.normal((900, 4), 1), "key": Array.normal((900, 4), 2)}
        for color in ("never", "always"):
            for columns in (60, 120):
                text = self.succeed("map", *self.qk(arrays), "--causal", "--color", color,
                                    env=environment(COLUMNS=str(columns)))
                self.assertEqual("\x1b[" in text, color == "always")
                plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
                for line in plain[4:]:
                    self.assertLessEqual(len(line), max(columns, 100), line)
                # Without colours, masked cells are dots; with colours, cells are half blocks.
                self.assertTrue(any("·" in line or "▀" in line for line in plain))

    def test_escape_sequences_in_names_are_escaped(self):
        text = self.succeed("map", *self.qk(self.square(2)), "--tokens", self.write("t.txt", "\x1b[31mred\nb\n"))
        self.assertNotIn("\x1b", text)


# Arguments, and expected parts of the message.
MISUSE = [
    ("--query q.npy", "expected --query and --key, or --input FILE; --key is missing"),
    ("--query q.npy --key k.npy --input k.npy", "--input: expected no file where --query and --key are given"),
    ("{QK} --head 4", "--head: expected a number below 4, as there are that many heads of queries, got 4"),
    ("{QK} --batch 2", "--batch: expected a number below 2, as there are that many batch items, got 2"),
    ("{QK} --head -1", "--head: expected a whole number from 0 to", 'mean or max, got "-1"'),
    ("{QK} --head median", "--head: expected a whole number from 0 to", 'mean or max, got "median"'),
    ("{QK} --head mean --stats s.json --top 2",
     "--top goes with one head, as each has largest keys of its own; got --head mean"),
    ("{QK} --rows 3:3", '--rows: expected FIRST:END, whole numbers with 0 <= FIRST < END <= 5, got "3:3"'),
    ("{QK} --rows 4:2", '--rows: expected FIRST:END', 'got "4:2"'),
    ("{QK} --rows 0:6", '--rows: expected FIRST:END', 'END <= 5, got "0:6"'),
    ("{QK} --rows -1:3", '--rows: expected FIRST:END', 'got "-1:3"'),
    ("{QK} --rows 3", '--rows: expected FIRST:END', 'got "3"'),
    ("{QK} --rows=", "--rows: expected a value"),
    ("{QK} --cols 0:8", '--cols: expected FIRST:END', 'END <= 7, got "0:8"'),
    ("{QK} --cols a:b", '--cols: expected FIRST:END', 'got "a:b"'),
    ("{QK} --size 0x3", '--size: expected WIDTHxHEIGHT, whole numbers of 1 or more, got "0x3"'),
    ("{QK} --size 3", '--size: expected WIDTHxHEIGHT', 'got "3"'),
    ("{QK} --size 3x", '--size: expected WIDTHxHEIGHT', 'got "3x"'),
    ("{QK} --size 8x5", "--size: expected at most 7x5, one cell for each of 7 keys across and 5 queries down, got 8x5"),
    ("{QK} --size 7x5 --rows 1:3", "--size: expected at most 7x2", "got 7x5"),
    ("{QK} --tone loud", '--tone: expected one of linear, log, sqrt; got "loud"'),
    ("{QK} --colormap jet", '--colormap: expected one of viridis, magma, cividis, grey; got "jet"'),
    ("{QK} --reduce median", '--reduce: expected one of sum, mean, max; got "median"'),
    ("{QK} --tokens six.txt", "--tokens: six.txt: expected 7 lines, one for each key, got 6"),
    ("{QK} --tokens none.txt", "--tokens: none.txt: cannot be"),
    ("{QK} --tokens q.npy", "--tokens: q.npy: expected text in UTF-8"),
    ("{QK} --top 3", "--top goes with --stats FILE"),
    ("{QK} --stats s.json --top 8", "--top: expected at most 7, as there are that many keys, got 8"),
    ("{QK} --stats s.json --top 65", "--top: expected a whole number from 1 to 64"),
    ("{QK} --stats s.txt", '--stats: expected a name that ends in .json or .csv, which is what is written, got "s.txt"'),
    ("{QK} --output map.jpg", '--output: expected a name that ends in .png, .svg, .html or .npy', '"map.jpg"'),
    ("{QK} --output -", '--output: expected a name that ends in'),
    ("{QK} --sinks 1", "--sinks: expected one number per query head (4), got 1"),
    ("{QK} --mask k.npy", "--mask: k.npy: expected bool"),
    ("--query q.npy --key q3.npy", "--key: q3.npy: expected 4 dimensions as the query has, got shape"),
    ("--query none.npy --key none.npy", "nothing to show: there are 0 queries and 0 keys"),
    ("--query batch.npy --key batch.npy", "nothing to show: there are 2 queries and 2 keys of 0 batch items"),
]


class RefusalTest(MapTest):
    def setUp(self):
        super().setUp()
        self.qk()
        self.write("six.txt", "a\nb\nc\nd\ne\nf\n")
        self.write_array("q3.npy", Array.normal((3, 5, DIM), 1))
        self.write_array("none.npy", Array((0, DIM), []))
        self.write_array("batch.npy", Array((0, 1, 2, DIM), []))
        self.write("old.png", "old")

    def test_misuse(self):
        for arguments, *parts in MISUSE:
            with self.subTest(arguments):
                words = arguments.replace("{QK}", "--query q.npy --key k.npy").split()
                message = self.fail_with(2, "map", "--output", "old.png", *words, cwd=self.dir)
                for part in parts:
                    self.assertIn(part, message)
        self.assertEqual((self.dir / "old.png").read_text(), "old")
        self.assertEqual(self.files(), ["batch.npy", "k.npy", "none.npy", "old.png", "q.npy", "q3.npy", "six.txt"])

    def test_unwritable_outputs(self):
        for option in ("--output", "--stats"):
            name = "none/map.png" if option == "--output" else "none/s.csv"
            message = self.fail_with(1, "map", "--query", "q.npy", "--key", "k.npy", option, name, cwd=self.dir)
            self.assertIn(f"{name}: cannot be written: No such file or directory", message)

    def test_interrupted(self):
        slow = self.slow_problem()
        path = self.write("c.png", "old")
        with subprocess.Popen([FOVEA, "map", *slow[1:], "--output", path], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment(),
                              preexec_fn=default_signals) as process:
            await_handler(process, signal.SIGINT)
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, out, err), (130, b"", b""))
        self.assertEqual((self.dir / "c.png").read_text(), "old")
        self.assertEqual([name for name in self.files() if "tmp" in name], [])


class PageTest(CliTest):
    def test_help_options_exist(self):
        page = self.succeed("map", "--help")
        shown = sorted(set(re.findall(r"--[a-z][a-z-]+", page)))
        self.assertGreater(len(shown), 30)
        for option in shown:
            self.assertNotIn(b"unknown option", run("map", option, "1").stderr, option)
            self.assertEqual(len(re.findall(rf"(?m)^    (?:-\w, )?{option}(?: |$)", page)), 1, option)


if __name__ == "__main__":
    unittest.main()
