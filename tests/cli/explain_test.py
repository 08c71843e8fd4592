# SPDX-License-Identifier: Apache-2.0
"""`fovea explain`: the four formats, the query, sentences, output files, colours and width."""

import fcntl
import html.parser
import json
import math
import os
import pty
import re
import shutil
import stat
import struct
import subprocess
import sys
import termios
import unicodedata
import unittest
import xml.etree.ElementTree

from support import EXAMPLES, FOVEA, TIMEOUT_S, CliTest, environment, run, scene

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


def columns_of(line):
    """What a line takes on a terminal; joined emoji are one picture."""
    line = re.sub("\u200d.", "", line)
    return sum(0 if unicodedata.category(c) in ("Mn", "Me", "Cf")
               else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def attention(query, key, value, causal=False):
    """Scaled dot-product attention in plain Python."""
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
                # A batch of one may be written without its brackets.
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

    def test_python_reads_it(self):
        for path in EXAMPLES:
            text = self.succeed("explain", str(path), "--format", "json")
            result = subprocess.run([sys.executable, "-m", "json.tool"], input=text.encode(),
                                    capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, b""), path)
            # Not even the numbers that JSON lacks and Python would forgive.
            json.loads(text, parse_constant=self.fail)

    def test_the_numbers_are_attention(self):
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

    def test_the_stream_is_numpys(self):
        steps = steps_of(self.succeed("explain", "--text", "a", "--format", "json"))
        # numpy.random.seed(42); numpy.random.rand(1, 4)
        self.assertEqual(steps["embeddings"]["values"],
                         [[0.3745401188473625, 0.9507143064099162, 0.7319939418114051,
                           0.5986584841970366]])
        other = steps_of(self.succeed("explain", "--text", "a", "--seed", "0", "--format", "json"))
        self.assertEqual(other["embeddings"]["values"][0][0], 0.5488135039273248)

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
        # The last of several counts.
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
    def test_it_says_that_nothing_is_trained(self):
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
    """Titles, words and notes that try to be more than text."""

    WORDS = ["<script>alert(1)</script>", '"onmouseover="alert(2)', "</title><b id='pwn'>",
             "]]></script><img src=x onerror=alert(3)>", "|`**_[a](javascript:alert(4))",
             "\x1b[31mred\x1b]0;owned\x07", "<!--", "&lt;i&gt;"]

    def scene_of(self, words, text):
        return scene(title=text, tokens=words, focus=None,
                     embeddings=[[i + 1, 8 - i] for i in range(len(words))],
                     notes={"scene": text, "scores": text, "weights": text},
                     score={"kind": "dot", "scale": 0.1})

    def both(self, format_name, **options):
        """The story of the attacking scene and of a harmless one of the same extent."""
        attack = self.scene_of(self.WORDS, "".join(self.WORDS))
        harmless = self.scene_of([chr(ord("a") + i) * len(word)
                                  for i, word in enumerate(self.WORDS)],
                                 "x" * len("".join(self.WORDS)))
        return [self.succeed("explain", "-", "--format", format_name, stdin=text, **options)
                for text in (attack, harmless)]

    def test_html_makes_no_element_of_them(self):
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

    def test_text_shows_escape_codes(self):
        attack, _ = self.both("text")
        controls = {c for c in attack if unicodedata.category(c) == "Cc"}
        self.assertEqual(controls, {"\n"})
        self.assertIn(r"\x1b[31m", attack)
        never = self.succeed("explain", "-", "--color", "never",
                             stdin=self.scene_of(self.WORDS, self.WORDS[5]))
        self.assertNotIn(ESCAPE, never)

    def test_colour_codes_are_only_ours(self):
        text = self.succeed("explain", "-", "--color", "always",
                            stdin=self.scene_of(self.WORDS, self.WORDS[5]))
        rest = re.sub(r"\x1b\[[0-9;]*m", "", text)
        self.assertNotIn(ESCAPE, rest)
        self.assertNotIn("\x07", rest)
        self.assertIn(r"\x1b[31mred", rest)

    def test_markdown_escapes_them(self):
        attack, harmless = self.both("markdown")
        prose = re.sub(r"`[^`\n]*`", "", attack)
        self.assertNotRegex(prose, r"(?<!\\)<[a-zA-Z/!]")
        self.assertNotRegex(prose, r"(?<!\\)\]\(javascript")
        self.assertNotIn(ESCAPE, attack)
        # A bar in a word would make a column of its own.
        def bars(text):
            return [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()
                    if line.startswith("|")]
        self.assertEqual(bars(attack), bars(harmless))

    def test_json_gives_them_back(self):
        attack, _ = self.both("json")
        document = json.loads(attack)
        self.assertEqual(document["title"], "".join(self.WORDS))
        self.assertEqual(document["tokens"], self.WORDS)
        self.assertNotIn(ESCAPE, attack)


class OutputTest(CliTest):
    def explain(self, name, *options, **run_options):
        path = self.dir / name
        out = self.succeed("explain", "-", "--output", str(path), *options, stdin=scene(),
                           **run_options)
        self.assertEqual(out, "")
        return path.read_text(encoding="utf-8")

    def test_the_ending_chooses_the_format(self):
        for names, format_name in ((("a.html", "b.htm", "c.HTML"), "html"), (("a.json",), "json"),
                                   (("a.md", "b.markdown"), "markdown"),
                                   (("a.txt", "story", "a.b.dat"), "text")):
            expected = self.succeed("explain", "-", "--format", format_name, stdin=scene())
            self.assertTrue(expected.endswith("\n"), format_name)
            for name in names:
                self.assertEqual(self.explain(name), expected, name)
        self.assertEqual(self.explain("page.html", "--format", "json"),
                         self.succeed("explain", "-", "--format", "json", stdin=scene()))

    def test_nothing_else_is_left(self):
        self.explain("page.html")
        self.explain("page.html")
        self.assertEqual(self.files(), ["page.html"])

    def test_relative_name(self):
        self.succeed("explain", "-", "--output", "here.txt", stdin=scene(), cwd=self.dir)
        self.assertEqual(self.files(), ["here.txt"])

    def test_permissions(self):
        for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
            path = self.dir / f"new-{mask}.txt"
            self.explain(path.name, preexec_fn=lambda m=mask: os.umask(m))
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode)
        path = self.dir / "old.txt"
        path.write_text("old")
        os.chmod(path, 0o640)
        self.explain("old.txt")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o640)

    def test_replaced_in_one_step(self):
        path = self.dir / "page.html"
        path.write_text("old")
        with open(path, encoding="utf-8") as reader:
            self.explain("page.html")
            # Who has the old file open keeps all of it.
            self.assertEqual(reader.read(), "old")

    def test_symbolic_links_stay(self):
        (self.dir / "sub").mkdir()
        for target in ("sub/there.txt", "sub/not-yet.txt"):
            link = self.dir / f"link-{os.path.basename(target)}"
            if "not-yet" not in target:
                (self.dir / target).write_text("old")
            os.symlink(target, link)
            text = self.explain(link.name)
            self.assertTrue(link.is_symlink())
            self.assertFalse((self.dir / target).is_symlink())
            self.assertEqual((self.dir / target).read_text(encoding="utf-8"), text)
        self.assertEqual(sorted(os.listdir(self.dir / "sub")), ["not-yet.txt", "there.txt"])

    def test_a_fifo_is_written_to(self):
        path = self.dir / "pipe.html"
        os.mkfifo(path)
        # Opened for both, so that neither side waits for the other to come.
        pipe = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, pipe)
        self.succeed("explain", "-", "--format", "text", "--output", str(path), stdin=scene())
        expected = self.succeed("explain", "-", stdin=scene())
        self.assertEqual(os.read(pipe, 1 << 16).decode(), expected)
        self.assertTrue(stat.S_ISFIFO(path.stat().st_mode))

    def test_devices_are_written_to(self):
        expected = self.succeed("explain", "-", stdin=scene())
        self.assertEqual(self.succeed("explain", "-", "--output", "/dev/stdout", stdin=scene()),
                         expected)
        self.succeed("explain", "-", "--output", "/dev/null", stdin=scene())
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    def test_standard_output_that_is_a_file(self):
        path = self.dir / "log.txt"
        path.write_text("before\n")
        with open(path, "ab") as log:
            run("explain", "-", "--output", "/dev/stdout", stdin=scene(), stdout=log)
        expected = "before\n" + self.succeed("explain", "-", stdin=scene())
        self.assertEqual(path.read_text(encoding="utf-8"), expected)


class TerminalTest(CliTest):
    def on_terminal(self, *arguments, columns=100, env=None):
        """What the program writes to a terminal of that many columns."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        with subprocess.Popen([FOVEA, *arguments], stdin=subprocess.DEVNULL, stdout=follower,
                              stderr=subprocess.PIPE, env=env or environment()) as process:
            os.close(follower)
            written = b""
            while True:
                try:
                    block = os.read(leader, 65536)
                except OSError:  # how Linux says that the other side is closed
                    break
                if not block:
                    break
                written += block
            os.close(leader)
            self.assertEqual((process.wait(timeout=TIMEOUT_S), process.stderr.read()), (0, b""))
        return written.decode().replace("\r\n", "\n")

    def explain(self, *options, **env):
        return self.on_terminal("explain", "--text", SENTENCE, *options, env=environment(**env))

    def assert_colours(self, text, kind):
        deep = bool(re.search(r"\x1b\[[0-9;]*[34]8;2;", text))
        indexed = bool(re.search(r"\x1b\[[0-9;]*[34]8;5;", text))
        self.assertEqual((deep, indexed),
                         {"true": (True, False), "256": (False, True), "none": (False, False)}[kind])
        if kind == "none":
            self.assertNotIn(ESCAPE, text)

    def test_auto_on_a_terminal(self):
        self.assert_colours(self.explain(), "256")
        self.assert_colours(self.explain(COLORTERM="truecolor"), "true")
        self.assert_colours(self.explain(COLORTERM="24bit"), "true")
        self.assert_colours(self.explain(NO_COLOR=""), "256")
        self.assert_colours(self.explain(NO_COLOR="1"), "none")
        self.assert_colours(self.explain(TERM="dumb"), "none")
        self.assert_colours(self.explain("--color", "never", COLORTERM="truecolor"), "none")

    def test_auto_elsewhere(self):
        self.assert_colours(self.succeed("explain", "--text", SENTENCE,
                                         env=environment(COLORTERM="truecolor")), "none")
        path = self.dir / "story.txt"
        self.explain("--output", str(path), COLORTERM="truecolor")
        self.assert_colours(path.read_text(encoding="utf-8"), "none")

    def test_always(self):
        for env, kind in (({}, "256"), ({"COLORTERM": "truecolor"}, "true"),
                          ({"NO_COLOR": "1"}, "256"), ({"TERM": "dumb"}, "256")):
            self.assert_colours(self.succeed("explain", "--text", SENTENCE, "--color", "always",
                                             env=environment(**env)), kind)

    def test_colours_change_no_words(self):
        plain = self.succeed("explain", "--text", SENTENCE, "--query", "journey")
        coloured = self.succeed("explain", "--text", SENTENCE, "--query", "journey", "--color",
                                "always")
        def numbers(text):
            return re.findall(r"\d+\.\d+", re.sub(r"\x1b\[[0-9;]*m", "", text))
        self.assertEqual(numbers(coloured), numbers(plain))

    def test_width_of_the_terminal(self):
        def width(columns, *options, **env):
            text = self.on_terminal("explain", "--text", SENTENCE, "--color", "never", *options,
                                    columns=columns, env=environment(**env))
            return text

        def fixed(columns):
            return self.succeed("explain", "--text", SENTENCE, "--width", str(columns))

        self.assertEqual(width(90), fixed(90))
        self.assertEqual(width(20), fixed(60))
        self.assertEqual(width(500), fixed(160))
        self.assertEqual(width(90, COLUMNS="75"), fixed(75))
        self.assertEqual(width(90, "--width", "70", COLUMNS="75"), fixed(70))
        self.assertEqual(width(90, COLUMNS="wide"), fixed(90))
        self.assertEqual(self.succeed("explain", "--text", SENTENCE), fixed(100))
        self.assertNotEqual(fixed(60), fixed(100))

    def test_lines_keep_to_the_width(self):
        for columns in (60, 80, 100, 160):
            for path in EXAMPLES:
                text = self.succeed("explain", str(path), "--width", str(columns))
                for line in text.splitlines():
                    self.assertLessEqual(columns_of(line), columns, (path.name, line))


if __name__ == "__main__":
    unittest.main()
