# SPDX-License-Identifier: Apache-2.0
"""`fovea explain`: the four formats, the query, sentences, and injection through words."""

import html.parser
import json
import math
import re
import shutil
import subprocess
import sys
import unicodedata
import unittest
import xml.etree.ElementTree

from support import EXAMPLES, TIMEOUT_S, CliTest, scene

SENTENCE = "Your journey starts with one step"
ESCAPE = "\x1b"


def steps_of(text):
    document = json.loads(text)
    return {step["name"]: step for step in document["steps"]}


def shape_of(values):
    shape = []
    while isinstance(values, list):
        shape.append(len(values))
        if not values:
            break
        values = values[0]
    return shape


def attention(query, key, value, causal=False):
    """Returns the context of scaled dot-product attention, computed in plain Python."""
    scale = 1 / math.sqrt(len(query[0]))
    context = []
    for i, q in enumerate(query):
        scores = [scale * sum(a * b for a, b in zip(q, k)) for k in key]
        if causal:
            scores = scores[:i + 1]
        powers = [math.exp(score - max(scores)) for score in scores]
        weights = [power / sum(powers) for power in powers]
        context.append([sum(w * v[d] for w, v in zip(weights, value))
                        for d in range(len(value[0]))])
    return context


class JsonTest(CliTest):
    def assert_close(self, actual, expected):
        if isinstance(expected, list):
            self.assertEqual(len(actual), len(expected))
            for a, e in zip(actual, expected):
                self.assert_close(a, e)
        else:
            self.assertAlmostEqual(actual, expected, places=12)

    def test_shape_of_the_document(self):
        for path in EXAMPLES:
            document = json.loads(self.succeed("explain", str(path), "--format", "json"))
            self.assertEqual(
                [key for key in document if key != "focus_item"],
                ["title", "tokens", "focus", "steps", "checks"], path)
            given = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual(document["title"], given["title"])
            if "tokens" in given:
                # A batch of one may be written without the outer brackets.
                self.assertIn(document["tokens"], (given["tokens"], [given["tokens"]]), path)
            self.assertEqual(len(document["checks"]), len(given.get("expect", [])), path)
            names = [step["name"] for step in document["steps"]]
            self.assertEqual(len(names), len(set(names)), path)
            for name in ("tokens", "embeddings", "scores", "weights", "row_sums", "context"):
                self.assertIn(name, names, path)
            for step in document["steps"]:
                self.assertEqual(set(step), {"name", "title", "formula", "shape", "values"}, path)
                self.assertEqual(shape_of(step["values"]), step["shape"], (path, step["name"]))
                self.assertTrue(step["title"], (path, step["name"]))

    def test_python_parses_the_json(self):
        for path in EXAMPLES:
            text = self.succeed("explain", str(path), "--format", "json")
            result = subprocess.run([sys.executable, "-m", "json.tool"], input=text.encode(),
                                    capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, b""), path)
            # NaN and infinity are not valid JSON, although Python accepts them.
            json.loads(text, parse_constant=self.fail)

    def test_values_match_attention(self):
        for options, causal in (([], False), (["--causal"], True)):
            steps = steps_of(self.succeed("explain", "--text", SENTENCE, "--dim", "3", "--seed", "7",
                                          "--format", "json", *options))
            words = steps["embeddings"]["values"]
            self.assertEqual(shape_of(words), [6, 3])
            self.assert_close(steps["context"]["values"], attention(words, words, words, causal))

    def test_projections_and_heads(self):
        steps = steps_of(self.succeed("explain", "--text", SENTENCE, "--dim", "4", "--heads", "2",
                                      "--projections", "random", "--format", "json"))
        words = steps["embeddings"]["values"]
        parts = {}
        for name in ("query", "key", "value"):
            weights = steps[f"{name}_weights"]["values"]
            rows = [[sum(x * w[c] for x, w in zip(word, weights)) for c in range(len(weights[0]))]
                    for word in words]
            parts[name] = [[row[2 * h:2 * h + 2] for row in rows] for h in range(2)]
            self.assert_close(steps[name]["values"], parts[name])
        heads = [attention(parts["query"][h], parts["key"][h], parts["value"][h]) for h in range(2)]
        self.assert_close(steps["context"]["values"], heads)
        self.assert_close(steps["merged_context"]["values"],
                          [a + b for a, b in zip(heads[0], heads[1])])

    def test_random_rows_match_numpy(self):
        steps = steps_of(self.succeed("explain", "--text", "a b A", "--format", "json"))
        # numpy.random.RandomState((42 + zlib.crc32(b"a")) % 2**32).rand(4)
        row = [0.7066307351565442, 0.4288286010134452, 0.9758320792143311, 0.7544240165342265]
        first, other, last = steps["embeddings"]["values"]
        self.assertEqual([first, last], [row, row])
        self.assertNotEqual(other, row)
        other = steps_of(self.succeed("explain", "--text", "a", "--seed", "0", "--format", "json"))
        self.assertEqual(other["embeddings"]["values"][0][0], 0.2550495507615361)

    def test_random_stream_matches_numpy(self):
        scene = self.write("drawn.json", json.dumps(
            {"tokens": ["a"], "seed": 42, "embeddings": {"draw": "rand", "dim": 4}}))
        steps = steps_of(self.succeed("explain", scene, "--format", "json"))
        # numpy.random.seed(42); numpy.random.rand(1, 4)
        self.assertEqual(steps["embeddings"]["values"],
                         [[0.3745401188473625, 0.9507143064099162, 0.7319939418114051,
                           0.5986584841970366]])

    def test_last_word_sees_all_others(self):
        for options, focus in ((["--causal"], 2), ([], 0), (["--causal", "--query", "@1"], 1)):
            shown = json.loads(self.succeed("explain", "--text", "a b c", *options, "--format", "json"))
            self.assertEqual(shown["focus"], focus, options)

    def test_infinities_are_strings(self):
        steps = steps_of(self.succeed("explain", "--text", "a b", "--causal", "--format", "json"))
        self.assertEqual(steps["masked_scores"]["values"][0][1], "-inf")
        self.assertEqual(steps["weights"]["values"][0], [1, 0])


class QueryTest(CliTest):
    def focus(self, *query, **changes):
        text = self.succeed("explain", "-", "--format", "json", *query, stdin=scene(**changes))
        return json.loads(text)["focus"]

    def test_query(self):
        self.assertEqual(self.focus(), 1)
        self.assertEqual(self.focus("--query", "starts"), 2)
        self.assertEqual(self.focus("--query", "@0"), 0)
        self.assertEqual(self.focus("--query=@2"), 2)
        # The last of repeated options wins.
        self.assertEqual(self.focus("--query", "Your", "--query", "starts"), 2)

    def test_query_changes_the_story(self):
        text = self.succeed("explain", "-", "--query", "starts", stdin=scene())
        self.assertIn('Scores of "starts"', text)
        self.assertNotIn('Scores of "journey"', text)

    def test_words_that_look_like_options_and_lists(self):
        tokens = ["[CLS]", "--check", "-"]
        for index, token in enumerate(tokens):
            self.assertEqual(self.focus("--query", token, tokens=tokens, focus=None), index)


class SentenceTest(CliTest):
    def test_text_says_that_numbers_are_random(self):
        text = self.succeed("explain", "--text", SENTENCE)
        self.assertIn(SENTENCE, text)
        self.assertRegex(text.lower(), r"random")
        self.assertIn("42", text)

    def test_same_seed_same_story(self):
        first = self.succeed("explain", "--text", SENTENCE)
        self.assertEqual(first, self.succeed("explain", "--text", SENTENCE, "--seed", "42",
                                             "--dim", "4", "--heads", "1", "--projections", "none"))
        self.assertNotEqual(first, self.succeed("explain", "--text", SENTENCE, "--seed", "43"))

    def test_a_file_of_the_same_name_is_not_opened(self):
        self.assertIn("missing.json", self.succeed("explain", "--text", "missing.json"))

    def test_other_scripts(self):
        for sentence in ("每 一步", "Где твой путь", "👩‍🚀 🚀 flies", "e\u0301te\u0301 chaud"):
            self.assertIn(sentence.split()[0], self.succeed("explain", "--text", sentence))


class HtmlTest(CliTest):
    def test_pages_are_well_formed(self):
        for path in EXAMPLES:
            page = self.succeed("explain", str(path), "--format", "html")
            root = xml.etree.ElementTree.fromstring(page)
            self.assertTrue(root.tag.endswith("html"), path)
            ids = [e.get("id") for e in root.iter() if e.get("id") is not None]
            self.assertEqual(len(ids), len(set(ids)), path)

    def test_two_scenes(self):
        other = self.write("other.json", scene(title="<Other>"))
        files = (str(EXAMPLES[1]), other)
        page = self.succeed("explain", *files, "--format", "html")
        self.assertEqual(page, self.succeed("explain", files[0], "-", "--format", "html", stdin=scene(title="<Other>")))
        panes = [e for e in xml.etree.ElementTree.fromstring(page).iter() if e.get("class") == "pane"]
        titles = [json.loads(EXAMPLES[1].read_text(encoding="utf-8"))["title"], "<Other>"]
        self.assertEqual([pane.get("data-title") for pane in panes], titles)
        for pane, path in zip(panes, files):
            *content, texts, _ = xml.etree.ElementTree.fromstring(
                self.succeed("explain", path, "--format", "html")).find("{*}body")
            self.assertEqual(texts.get("id"), "texts")
            self.assertEqual(["".join(e.itertext()) for e in pane], ["".join(e.itertext()) for e in content])
        # The word is that of the first scene; the script makes the second one follow.
        self.assertNotEqual(page, self.succeed("explain", *files, "--format", "html", "--query", "@0"))
        self.fail_with(2, "explain", *files, "--format", "html", "--query", "@99")

    def test_pages_need_no_network(self):
        for path in EXAMPLES:
            root = xml.etree.ElementTree.fromstring(
                self.succeed("explain", str(path), "--format", "html"))
            for element in root.iter():
                for name in ("src", "href"):
                    target = element.get(name)
                    if target is not None:
                        self.assertRegex(target, r"^(#|data:)", path)

    def test_tidy_finds_no_error(self):
        tidy = shutil.which("tidy")
        if tidy is None:
            self.skipTest("tidy is not installed")
        for path in EXAMPLES:
            page = self.succeed("explain", str(path), "--format", "html")
            result = subprocess.run([tidy, "-q", "-e", "-utf8", "--show-warnings", "no"],
                                    input=page.encode(), capture_output=True, timeout=TIMEOUT_S,
                                    check=False)
            self.assertLess(result.returncode, 2, (path, result.stderr[:1000]))


class InjectionTest(CliTest):
    """Titles, words and notes that contain markup or escape sequences."""

    WORDS = ["<script>alert(1)</script>", '"onmouseover="alert(2)', "</title><b id='pwn'>",
             "]]></script><img src=x onerror=alert(3)>", "|`**_[a](javascript:alert(4))",
             "\x1b[31mred\x1b]0;owned\x07", "<!--", "&lt;i&gt;"]

    def scene_of(self, words, text):
        return scene(title=text, tokens=words, focus=None,
                     embeddings=[[i + 1, 8 - i] for i in range(len(words))],
                     notes={"scene": text, "scores": text, "weights": text},
                     score={"kind": "dot", "scale": 0.1})

    def both(self, format_name, **options):
        """Returns the output for the hostile scene and for a harmless one of the same size."""
        attack = self.scene_of(self.WORDS, "".join(self.WORDS))
        harmless = self.scene_of([chr(ord("a") + i) * len(word)
                                  for i, word in enumerate(self.WORDS)],
                                 "x" * len("".join(self.WORDS)))
        return [self.succeed("explain", "-", "--format", format_name, stdin=text, **options)
                for text in (attack, harmless)]

    def test_html_escapes_words(self):
        class Tags(html.parser.HTMLParser):
            def __init__(self):
                super().__init__()
                self.found = set()

            def handle_starttag(self, tag, attrs):
                self.found.add((tag, *sorted(name for name, _ in attrs)))

        def as_xml(page):
            return {(e.tag, *sorted(e.attrib))
                    for e in xml.etree.ElementTree.fromstring(page).iter()}

        def as_html(page):
            parser = Tags()
            parser.feed(page)
            return parser.found

        attack, harmless = self.both("html")
        self.assertEqual(as_xml(attack), as_xml(harmless))
        self.assertEqual(as_html(attack), as_html(harmless))
        self.assertNotIn(ESCAPE, attack)

    def test_text_escapes_control_characters(self):
        attack, _ = self.both("text")
        controls = {c for c in attack if unicodedata.category(c) == "Cc"}
        self.assertEqual(controls, {"\n"})
        self.assertIn(r"\x1b[31m", attack)
        never = self.succeed("explain", "-", "--color", "never",
                             stdin=self.scene_of(self.WORDS, self.WORDS[5]))
        self.assertNotIn(ESCAPE, never)

    def test_colour_adds_only_colour_codes(self):
        text = self.succeed("explain", "-", "--color", "always",
                            stdin=self.scene_of(self.WORDS, self.WORDS[5]))
        rest = re.sub(r"\x1b\[[0-9;]*m", "", text)
        self.assertNotIn(ESCAPE, rest)
        self.assertNotIn("\x07", rest)
        self.assertIn(r"\x1b[31mred", rest)

    def test_markdown_escapes_words(self):
        attack, harmless = self.both("markdown")
        prose = re.sub(r"`[^`\n]*`", "", attack)
        self.assertNotRegex(prose, r"(?<!\\)<[a-zA-Z/!]")
        self.assertNotRegex(prose, r"(?<!\\)\]\(javascript")
        self.assertNotIn(ESCAPE, attack)
        # An unescaped bar in a word would add a column.
        def bars(text):
            return [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()
                    if line.startswith("|")]
        self.assertEqual(bars(attack), bars(harmless))

    def test_json_round_trips_words(self):
        attack, _ = self.both("json")
        document = json.loads(attack)
        self.assertEqual(document["title"], "".join(self.WORDS))
        self.assertEqual(document["tokens"], self.WORDS)
        self.assertNotIn(ESCAPE, attack)


if __name__ == "__main__":
    unittest.main()
